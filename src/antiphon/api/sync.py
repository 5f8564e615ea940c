"""The blocking front: contexts, producers and consumers for programs with threads.

Objects may be used from any thread. Sockets are served by one background thread of the process
(`io/background_loop.py`); listeners run on one thread for each context. The promise of each call is
in `api/face`, its work in `api/operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import EllipsisType, TracebackType
from typing import IO, Any, Self, Unpack

from antiphon.api import arguments
from antiphon.api.connection import Connection
from antiphon.api.face.consumer import BrowserFace, ConsumerFace
from antiphon.api.face.context import ContextFace
from antiphon.api.face.member import MemberFace
from antiphon.api.face.producer import ProducerFace, SendFutureFace
from antiphon.api.messages.destinations import (
    Destination,
    Group,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from antiphon.api.messages.headers import DEFAULT_HEADERS, SendHeaders
from antiphon.api.messages.message import Message
from antiphon.api.messages.properties import PropertyValue
from antiphon.api.modes import SessionMode, SlowPolicy
from antiphon.api.operations import closing, destinations, opening, transactions
from antiphon.api.operations.acknowledgements import Loop
from antiphon.api.operations.context import ContextCore
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.member import MemberCore
from antiphon.api.operations.producer import ProducerCore, split
from antiphon.api.operations.scripts import Deadline
from antiphon.api.options import DEFAULTS, ConnectOptions, parts_of
from antiphon.api.signatures import made_by, spelled_out
from antiphon.api.urls import default_url, route_to
from antiphon.api.waiting.threads import Threads, run, wait
from antiphon.errors import JMSError, OutcomeUnknownError
from antiphon.formats.columns import Packed
from antiphon.io.background_loop import background_loop
from antiphon.model.conflicts import ConflictRelation


@spelled_out(ConnectOptions, DEFAULTS)
def connect(url: str | None = None, **options: Unpack[ConnectOptions]) -> Context:
    """Connect to servers, and return a context on the new connection, started.

    `url`: `antiphon://HOST:PORT[,HOST:PORT...]` for a server or a cluster; `embedded:`,
    `embedded:NAME` or `embedded:///PATH` for a server in this process, which is private, shared by
    its name, or keeps a journal. Without one: the URL in the environment variable `ANTIPHON_URL`,
    or else the one in `antiphon.toml`.

    Options, all by keyword. `client_id`: the name to which durable subscriptions belong; one live
    connection has it at a time. `session_mode`: when a message that the context receives counts as
    handled (`SessionMode`). `connect_timeout`: seconds until a server must have taken the session.
    `send_timeout`: seconds that `send` waits for an answer, None: no limit. `close_timeout`:
    seconds that `close` waits for the answers to sent messages. `packing`: when a pack of messages
    leaves: "adaptive" by itself, "off" with each message, "fixed=N" when it has N messages, or
    "hill-climbing", which looks for the best N. `allow_pickle`: object messages may contain any
    object; only between programs that trust each other, for the sender of such a message can run
    code in the receiver. `trace`: a folder in which this program records all messages that it sends
    and receives, for an audit. `user`, `password` and `tls` are refused, since servers of this
    version know neither users nor encryption.

    Raise `ConfigurationError` for a URL that makes no sense, `TypeError` or `ValueError` for such
    an option, `SecurityError` for a user or a password, `IllegalStateError` for `tls`,
    `ConnectionLostError` if no server took the session within `connect_timeout`, and
    `InvalidClientIDError` if a live connection has the client id."""
    terms, rest, mode = parts_of(**options)
    loop = background_loop()
    route = route_to(url or default_url())
    connection = Connection(loop, loop.call_soon_threadsafe, route, terms, rest)
    core = ContextCore(connection, mode, True, Threads)
    run(core.connecting())
    return Context(core)


class SendFuture(SendFutureFace, eq=False, gc=False):
    __doc__ = SendFutureFace.__doc__

    def result(self, timeout: float | None = None) -> None:
        self._wait(timeout)
        self._outcome()

    def exception(self, timeout: float | None = None) -> JMSError | None:
        self._wait(timeout)
        return self._error()

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback` with this future when the answer is there, on the context's listener
        thread."""
        self._batch.watch(lambda: self._context.front.call_soon(callback, self))

    def _wait(self, timeout: float | None) -> None:
        limit = None if timeout is None else arguments.timeout("a timeout", timeout)
        if not wait(self._batch, limit):
            raise OutcomeUnknownError(
                f"no answer for a message to {self._batch.destination} within {timeout:g} s; a "
                "server may have stored it"
            )


class Producer(ProducerFace):
    __doc__ = ProducerFace.__doc__

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    def send(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> None:
        run(self._core.sending(destination, message_or_body, headers))

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    def send_async(
        self, destination: Destination, message_or_body: Any, **headers: Unpack[SendHeaders]
    ) -> SendFuture:
        core = self._core
        batch = core.post(destination, message_or_body) if not headers else None
        if batch is None:
            flags, rest = split(headers)
            message = core.prepare(destination, message_or_body, rest)
            deadline = Deadline(core.timeout)
            batch = run(core.putting(destination, message_or_body, flags, message, deadline))
        return SendFuture(batch, core.context)

    @spelled_out(SendHeaders, DEFAULT_HEADERS)
    def send_all(
        self, destination: Destination, messages: Iterable[Any], **headers: Unpack[SendHeaders]
    ) -> int:
        return run(self._core.sending_all(destination, messages, headers))

    def send_packed(self, destination: Destination, messages: Packed) -> None:
        run(self._core.sending_packed(destination, messages))

    def close(self) -> None:
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Consumer(ConsumerFace):
    __doc__ = ConsumerFace.__doc__

    def receive(self, timeout: float | None = None) -> Message | None:
        core = self._core
        if timeout is not None:
            arguments.timeout("a timeout", timeout)  # wrong also while messages are there
        message = core.take()
        if message is not None or (timeout == 0 and not core.must_provide):
            return message
        return run(core.receiving(timeout))

    def receive_no_wait(self) -> Message | None:
        return self.receive(0)

    def close(self) -> None:
        run(self._core.closing())

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterable[Message]]:
        """Yield messages in runs: many at once, if there are many and no trace must record each."""
        core = self._core
        loop = Loop(core.caller())
        try:
            while True:
                if core.lends and not core.finished and (loan := core.borrow(loop)) is not None:
                    yield core.lent(loan)
                    continue
                message = None if core.finished or core.lends else core.take(loop)
                if message is None:
                    message = run(core.looping(loop))
                if message is None:
                    return
                yield (message,)
        finally:
            core.leaves(loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._core.leaving(failed=error is not None))


class Browser(BrowserFace):
    __doc__ = BrowserFace.__doc__

    @made_by("`create_browser`")
    def __init__(self, context: ContextCore, queue: Queue, selector: str | None) -> None:
        super().__init__(queue, selector)
        self._context = context

    def __iter__(self) -> Iterator[Message]:
        with Consumer(run(opening.browsing(self._context, self.queue, self.selector))) as consumer:
            yield from consumer

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Member(MemberFace, Consumer):
    __doc__ = MemberFace.__doc__

    @made_by("`join`")
    def __init__(self, core: MemberCore) -> None:
        super().__init__(core)
        self._producer = Producer(core.producer)

    @property
    def initial_state(self) -> IO[bytes] | None:
        return run(self._core.knowing_state())

    def multicast(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> None:
        self._producer.send(self.destination, body, tag=tag, key=key, properties=properties)

    def multicast_async(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> SendFuture:
        return self._producer.send_async(
            self.destination, body, tag=tag, key=key, properties=properties
        )

    def remove(self, *names: str) -> None:
        run(self._core.removing(names))

    def invite(self, name: str, durable: bool = False) -> None:
        run(self._core.inviting(name, durable))

    def set_conflict(self, relation: ConflictRelation) -> None:
        run(self._core.setting_conflict(relation))

    def leave(self) -> None:
        run(self._core.leaving_group())

    def close(self) -> None:
        run(self._core.closing())


class Context(ContextFace):
    __doc__ = ContextFace.__doc__

    def create_context(self, session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE) -> Context:
        return Context(self._core.another(session_mode))

    def create_producer(self, name: str | None = None) -> Producer:
        self._core.check()
        core = ProducerCore(self._core, name)
        run(core.opening())
        return Producer(core)

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
        exclusive: bool = False,
    ) -> Consumer:
        script = opening.opening(
            self._core, destination, selector, no_local, prefetch, slow, exclusive=exclusive
        )
        return Consumer(run(script))

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Consumer:
        script = opening.opening_durable(
            self._core, topic, name, selector, no_local, prefetch, slow
        )
        return Consumer(run(script))

    def create_shared_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Consumer:
        script = opening.opening_shared(
            self._core, topic, name, selector, prefetch, slow, durable=False
        )
        return Consumer(run(script))

    def create_shared_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        prefetch: int | None = None,
        slow: SlowPolicy | None = None,
    ) -> Consumer:
        script = opening.opening_shared(
            self._core, topic, name, selector, prefetch, slow, durable=True
        )
        return Consumer(run(script))

    def create_browser(self, queue: Queue, selector: str | None = None) -> Browser:
        self._core.check()
        opening.check_browsable(queue, selector)
        return Browser(self._core, queue, selector)

    def unsubscribe(self, name: str, group: str | Topic | None = None) -> None:
        run(destinations.unsubscribing(self._core, name, group))

    def create_group(
        self,
        name: str,
        *,
        conflict: ConflictRelation | None = None,
        remove_after: float | EllipsisType | None = ...,
    ) -> Group:
        return run(destinations.creating_group(self._core, name, conflict, remove_after))

    def delete_group(self, name: str | Group, *, force: bool = False) -> None:
        run(destinations.deleting_group(self._core, name, force))

    def join(
        self,
        group: Topic,
        name: str | None = None,
        durable: bool = False,
        workers: int = 1,
        state_provider: StateProvider | None = None,
    ) -> Member:
        script = opening.joining(self._core, group, name, durable, workers, state_provider)
        return Member(run(script))

    def create_last_value_topic(self, name: str) -> Topic:
        return run(destinations.creating_last_value_topic(self._core, name))

    def create_temporary_topic(self) -> TemporaryTopic:
        return run(destinations.creating_temporary(self._core, TemporaryTopic))

    def create_temporary_queue(self) -> TemporaryQueue:
        return run(destinations.creating_temporary(self._core, TemporaryQueue))

    def delete_temporary(self, destination: TemporaryTopic | TemporaryQueue) -> None:
        run(destinations.deleting_temporary(self._core, destination))

    def acknowledge(self) -> None:
        run(transactions.acknowledging(self._core))

    def recover(self) -> None:
        run(transactions.recovering(self._core))

    def commit(self, token: str | None = None, staged: Iterable[str] = ()) -> bool:
        return run(transactions.committing(self._core, token, staged))

    def rollback(self) -> None:
        run(transactions.rolling_back(self._core))

    def stage(self) -> str:
        return run(transactions.staging(self._core))

    def stop(self) -> None:
        run(closing.stopping(self._core))

    def close(self) -> None:
        run(closing.closing(self._core))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(closing.leaving(self._core, failed=error is not None))
