"""The running stack carries out effects in an order that layers can count on."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId
from antiphon.peers.layers.layer import (
    Blocked,
    Changed,
    Closing,
    Down,
    Effect,
    Frame,
    Header,
    Install,
    Layer,
    Tell,
    To,
    Up,
)
from antiphon.peers.stack.running import Delivered, Running, Shown, Waits
from antiphon.peers.stack.stack import Stack

ME = MemberId("a", 1)
OTHER = MemberId("b", 1)


class Both(Layer):
    """Hands out two frames for one that came in, and what is sent to the own process, too."""

    name = "both"

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        return (Up(frame, sender), Up(replace(frame, body=b"second"), sender))

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        return (Down(frame, to), Up(frame, self.me))


class Asked(Header):
    """A question."""


class Answers(Layer):
    """Answers each question."""

    name = "answers"
    headers = (Asked,)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        if frame.top(Asked):
            return (Up(frame.pop(), sender), Down(Frame(b"answer")))
        return (Up(frame, sender),)


class Gate(Layer):
    """Blocks once it is told to, and frees at the next tick."""

    name = "gate"

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        return (Down(frame, to), Blocked(OTHER, "it is slow"))

    def tick(self, now_ms: int) -> Sequence[Effect]:
        return (Blocked(None),)

    def next_deadline_ms(self) -> int | None:
        return 10


class Watches(Layer):
    """Sees who is blocked."""

    name = "watches"

    def __init__(self) -> None:
        self.seen: list[MemberId | None] = []

    def blocked(self, process: MemberId | None, now_ms: int) -> Sequence[Effect]:
        self.seen.append(process)
        return ()


def running(*layers: Layer) -> Running:
    return Running(Stack(*layers), ME, lambda _name: Random(0), 0)


def bodies(stack: Running) -> list[bytes]:
    return [bytes(output.body) for output in stack.take() if isinstance(output, Delivered)]


def test_what_is_handed_out_together_comes_before_the_own_answer_to_it() -> None:
    stack = running(Both(), Answers())
    question = Frame(b"first", (Asked(),))
    other = running(Answers())._codec.encode(question)
    stack.received(OTHER, other, 0)
    heard = bodies(stack)
    assert heard.index(b"second") < heard.index(b"answer")


def test_a_blocked_layer_keeps_what_the_program_sends_and_frees_it_in_order() -> None:
    stack = running(Gate(), Watches())
    watches = stack.layers[1]
    assert isinstance(watches, Watches)
    for body in (b"1", b"2", b"3"):
        stack.send(body, 0, level=Level.FIFO)
    assert stack.waiting == 2
    outputs = stack.take()
    assert [output.body for output in outputs if isinstance(output, Delivered)] == [b"1"]
    assert Waits(OTHER, "it is slow") in outputs
    stack.tick(10)
    stack.tick(20)
    assert bodies(stack) == [b"2", b"3"]
    assert watches.seen == [OTHER, None, OTHER, None, OTHER]


class Sees(Layer):
    """Notes the views and frames that pass, and hands out a frame at each begin of a view."""

    headers = ()

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name  # type: ignore[misc]
        self.log = log

    def fresh(self) -> "Sees":
        return self

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        self.log.append(f"{self.name} closes")
        return ()

    def install(self, view: PeerView, summary: object, now_ms: int) -> Sequence[Effect]:
        super().install(view, summary, now_ms)
        self.log.append(f"{self.name} installs")
        return (Up(Frame(self.name.encode()), OTHER), Tell(f"{self.name} tells"))

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        self.log.append(f"{self.name} gets")
        return (Up(frame, sender),)


def test_a_view_passes_through_all_layers_before_anything_else_does() -> None:
    log: list[str] = []
    stack = running(Sees("low", log), Sees("high", log))
    view = PeerView(ViewId(1, ME), (ME, OTHER), ME)
    install = Install(Closing(stack.view.id, {}), view, {}, Changed((ME,)))
    stack.act(stack.layers[0], [install], 0)
    assert log == ["low closes", "high closes", "low installs", "high installs", "high gets"]
    shown, *told, low, high = stack.take()[-5:]
    assert isinstance(shown, Shown)
    assert told == ["low tells", "high tells"]
    assert [bytes(each.body) for each in (low, high)] == [b"low", b"high"]
