"""A client of the replicated table. It is not a member of the group; answers come to a queue of its
own.

    python client.py URL put KEY VALUE      prints the value that KEY had before
    python client.py URL get KEY
    python client.py URL contains_key KEY
    python client.py URL remove KEY         prints the value that it had
    python client.py URL compare REPLICA... whether these replicas hold the same; exit 1 if not
"""

import sys
import time
from collections.abc import Iterator
from types import TracebackType

import antiphon

GROUP = "replicated-table"
ANSWER_S = 30.0

Answer = str | bool | None


class Table:
    """The table, as if it were here; each call takes effect once, whatever dies meanwhile."""

    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._ctx = antiphon.connect(url)
        self._group = self._ctx.create_group(GROUP)
        self._producer = self._ctx.create_producer()
        self._queue = self._ctx.create_temporary_queue()
        self._answers = self._ctx.create_consumer(self._queue)

    def put(self, key: str, value: str) -> str | None:
        """Returns the value that was there before."""
        before = self._ask(do="put", key=key, value=value)
        return None if before is None else str(before)

    def get(self, key: str) -> str | None:
        value = self._ask(do="get", key=key)
        return None if value is None else str(value)

    def contains_key(self, key: str) -> bool:
        return bool(self._ask(do="contains_key", key=key))

    def remove(self, key: str) -> str | None:
        """Returns the value that was there."""
        value = self._ask(do="remove", key=key)
        return None if value is None else str(value)

    def compare(self, *replicas: str) -> dict[str, str]:
        """The whole table of each of these, as of one point of the order."""
        found: dict[str, str] = {}
        for replica, table in self._send(do="all"):
            if replica in replicas:
                found[replica] = str(table)
            if len(found) == len(replicas):
                return found
        raise TimeoutError(f"only {sorted(found)} of {sorted(replicas)} have answered")

    def _ask(self, **request: str) -> Answer:
        for _, answer in self._send(**request):
            return answer  # all replicas answer the same: the first will do
        raise TimeoutError(f"no replica has answered {request} within {self._answer_s:g} s")

    def _send(self, **request: str) -> Iterator[tuple[str, Answer]]:
        """The answers to one request, as they come, with the names of those who gave them."""
        message = self._ctx.create_map_message(request)
        self._producer.send(self._group, message, reply_to=self._queue)
        until = time.monotonic() + self._answer_s
        while (left_s := until - time.monotonic()) > 0:
            reply = self._answers.receive(timeout=left_s)
            # Late answers to earlier requests are of no interest any more.
            if reply is not None and reply.correlation_id == message.id:
                yield reply.body["replica"], reply.body["answer"]

    def close(self) -> None:
        self._ctx.close()

    def __enter__(self) -> "Table":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def main(url: str, operation: str, *arguments: str) -> int:
    with Table(url) as table:
        if operation == "compare":
            found = table.compare(*arguments)
            print("\n".join(f"{name}: {content}" for name, content in sorted(found.items())))
            return 0 if len(set(found.values())) == 1 else 1
        if operation not in ("put", "get", "contains_key", "remove"):
            raise SystemExit(__doc__)
        print(getattr(table, operation)(*arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
