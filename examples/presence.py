"""A board of who is there, without a server.

Each program is a channel of peers, and keeps its own board. A view says who has come and who is
gone; whoever was there before tells those who come its status, and them alone. Nobody asks anybody,
nothing expires, and a program that crashes is gone from all boards at once.

    anna: anna (on the phone)
    anna: anna (on the phone), ben (at the desk)
    carl: anna (on the phone), ben (at the desk), carl (on the road)
    carl: anna (on the phone), ben (at lunch), carl (on the road)
    anna: anna (on the phone), carl (on the road)

Without an argument the programs find each other on this machine; with the URL of Antiphon servers
these are their name service: `python presence.py antiphon://127.0.0.1:7470`. Here all run in one
program. Statuses of different people need no common order, so the stack keeps none.
"""

import sys
import threading
from contextlib import suppress
from types import TracebackType

from antiphon import InvalidDestinationError, Message, ViewMessage, peers

WAIT_S = 30.0


class Board:
    """One program's place in the cluster, and what it knows of the others."""

    def __init__(self, cluster: str, name: str, status: str) -> None:
        self._statuses = {name: status}
        self._news = threading.Condition()
        self._name = name
        self._channel = peers.Channel(peers.FIFO, name=name)
        self._channel.connect(cluster)
        self._channel.set_message_listener(self._receive)

    def set(self, status: str) -> None:
        """Tell all, and oneself, a new status."""
        self._channel.send(status)

    def wait(self, *names_and_statuses: str) -> str:
        """Wait until the board shows exactly these, and return it as a line."""
        shown = ", ".join(names_and_statuses)
        with self._news:
            assert self._news.wait_for(lambda: self._line() == shown, WAIT_S), self._line()
        return f"{self._name}: {shown}"

    def _line(self) -> str:
        return ", ".join(f"{name} ({status})" for name, status in sorted(self._statuses.items()))

    def _receive(self, event: Message) -> None:
        with self._news:
            match event:
                case ViewMessage(view=view, joined=joined):
                    self._tell(tuple(name for name in joined if name != self._name))
                    for name in self._statuses.keys() - set(view.members):
                        del self._statuses[name]
                case Message(body=status):
                    if event.sender is not None:
                        self._statuses[event.sender] = status
            self._news.notify_all()

    def _tell(self, names: tuple[str, ...]) -> None:
        """Tell those who have come how this one is; they may be gone again."""
        with suppress(InvalidDestinationError):
            if names:
                self._channel.send(self._statuses[self._name], to=names)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def main(url: str = "") -> None:
    cluster = f"peer:{url}/presence" if url else "peer:presence"
    with Board(cluster, "anna", "on the phone") as anna:
        print(anna.wait("anna (on the phone)"))
        with Board(cluster, "ben", "at the desk") as ben:
            print(anna.wait("anna (on the phone)", "ben (at the desk)"))
            with Board(cluster, "carl", "on the road") as carl:
                print(carl.wait("anna (on the phone)", "ben (at the desk)", "carl (on the road)"))
                ben.set("at lunch")
                print(carl.wait("anna (on the phone)", "ben (at lunch)", "carl (on the road)"))
                ben.close()
                print(anna.wait("anna (on the phone)", "carl (on the road)"))


if __name__ == "__main__":
    main(*sys.argv[1:])
