"""The interface of a layer: one promise of a stack, without clock, socket, file or thread.

A stack is a list of layers, the one next to the network first. A layer takes inputs, one at a time,
and returns effects, which the running stack (`peers/stack/running.py`) carries out in order:

- `down(frame, to, now_ms)`: the layer above wants this sent, to all members of the view (`to` is
  None) or to some. It returns `Down` to pass it on.
- `up(frame, sender, now_ms)`: the layer below hands this out. It returns `Up` to pass it on.
- `freeze(now_ms)`: a change of the view has begun. From here on nothing is acknowledged, and
  nothing is handed out, until the view is closed.
- `close(closing, now_ms)`: the view ends; hand out what belongs to it, and drop the rest.
- `install(view, summary, now_ms)`: a new view begins; what belongs to the view starts again.
- `tick(now_ms)`, `next_deadline_ms()`: time passes.

`close` and then `install` run through all layers, from below, as one step: no other input comes
between them, so that all layers, and the program, see views and frames in one order.

**Frames** are a body, which no layer looks into, and headers. A layer that sends puts its header on
top (`Frame.push`); the layer of the same kind takes it off (`Frame.pop`). A frame without a header
of its own on top is none of a layer's business: it passes it on. A frame that is marked as
`control` (Membership, Detector, State and their like send them) passes by layers that keep frames
in order, repeat them, or wait for credit. It may go to any process, member or not.

**What layers give and need** is said in these words: `views` (the members agree on them), `in view`
(a frame is handed up only in the view that it was sent in), `reliable`, `relayed`, `fifo`,
`causal`, `total`, `uniform`, `safe`, `bounded`, `any size`, `state`, `notes`, `transitional views`.
Each layer's docstring says more.

**A summary** is what a layer adds to a change: each process of the change hands in `summary()`, the
coordinator has them put together by `merge`, and all processes get the result at `install`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from antiphon.model.peer_views import Level, MemberId, PeerView, ViewId

Body = bytes | memoryview
To: TypeAlias = tuple[MemberId, ...] | None
"""All members of the view (None), or these."""


class Header(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A message of a layer to its like in another process. A layer declares its kinds in
    `Layer.headers`; class names are unique in a stack, for they are the names on the wire."""


AnyHeader = TypeVar("AnyHeader", bound=Header)


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value that the layers, or those around them, hand to each other. Each layer makes some for
    each frame: a named tuple takes five times as long to make."""


class Frame(Value, frozen=True):
    """A frame on its way through a stack: headers, the lowest layer's last, and a body."""

    body: Body
    headers: tuple[Header, ...] = ()
    level: Level = Level.AGREED  # wanted by the program
    control: bool = False  # passes by order, repetition and credit; here only
    number: int = 0  # from `Reliable` upwards, here only: its place in the sender's stream, or,
    # negative, among the frames for this process alone; 0 for control frames

    def push(self, header: Header) -> Frame:
        headers = (*self.headers, header)
        return Frame(self.body, headers, self.level, self.control, self.number)

    def pop(self) -> Frame:
        return Frame(self.body, self.headers[:-1], self.level, self.control, self.number)

    def top(self, kind: type[AnyHeader]) -> AnyHeader | None:
        """Return the header on top if it is of this kind, else None."""
        if self.headers and isinstance(self.headers[-1], kind):
            return self.headers[-1]
        return None


# -- Effects -------------------------------------------------------------------------------------


class Down(Value, frozen=True):
    """Hand a frame to the layer below."""

    frame: Frame
    to: To = None


class Up(Value, frozen=True):
    """Hand a frame to the layer above."""

    frame: Frame
    sender: MemberId


class Suspect(Value, frozen=True):
    """The detector's opinion of a process has changed: why it seems to be gone; "" if it is back.
    All layers hear of it (`Layer.suspected`)."""

    process: MemberId
    why: str


class Freeze(Value, frozen=True):
    """Have all layers frozen (`Layer.freeze`)."""


class Install(Value, frozen=True):
    """Have the present view closed and a new one installed, by all layers, in one step. A process
    that has to show a view which it missed has two of these, one after the other."""

    closing: Closing
    view: PeerView
    summary: Mapping[str, Any]  # by the names of layers
    changed: Changed


class Change(Value, frozen=True):
    """Have the view changed, even if its members stay (`Layer.change`): some layer needs a place
    that all agree on."""


class Dial(Value, frozen=True):
    """Connect to a process at this address; to one that is connected already it changes nothing."""

    address: str


class Blocked(Value, frozen=True):
    """Sending waits for this process; None: no more. The running stack keeps what the program sends
    until no layer is blocked, and the layers above hear of it (`Layer.blocked`)."""

    process: MemberId | None
    why: str = ""


class Acknowledged(Value, frozen=True):
    """More is known of who holds a stream (`Layer.acknowledged`): for the layers above."""

    stream: MemberId


class Tell(Value, frozen=True):
    """Tell the program (`Running.take`). What `Layer.install` returns of these comes right behind
    the view, before all that is handed out in it."""

    event: Any


Effect: TypeAlias = (
    Down | Up | Suspect | Freeze | Install | Change | Dial | Blocked | Acknowledged | Tell
)


# -- Views ---------------------------------------------------------------------------------------


class Closing(NamedTuple):
    """The end of a view: how much of each member's stream belongs to it. Whoever goes on together
    has the same cut, and so the same frames in that view."""

    view: ViewId
    cut: Mapping[MemberId, int]  # stream -> its last frame in this view; 0 if it is not named
    together: tuple[MemberId, ...] = ()  # as `Changed.together` of the view that follows


class Changed(NamedTuple):
    """How a view came about. `together`: the members that come from the same view as this process
    (with itself); `merged`: the views that were put together; `past`: of a primary view the last
    one that is known to have been shown before it, and the later ones that may have been; `origin`:
    the view that this process comes from, the one before or one that was hidden meanwhile."""

    together: tuple[MemberId, ...] = ()
    merged: tuple[PeerView, ...] = ()
    past: tuple[ViewId, ...] = ()
    founding: ViewId | None = None
    origin: ViewId | None = None


class Streams(Protocol):
    """The frames of views, as Membership needs them to bring members to one cut; `Reliable` is one.

    A member's *stream* is what it sent to all members of a view, numbered from 1 in each view. Of
    two views the frames are kept: of the present one, and of the last primary one (which may be the
    same), also through views that are not primary, until a later primary view is installed.
    """

    def held(self, view: ViewId) -> Mapping[MemberId, int]:
        """Return up to where this process has each stream of a view, without a gap. Once the stack
        is frozen this does not change, but by `add`."""

    def committed(self, view: ViewId) -> Mapping[MemberId, int]:
        """Return up to where each stream may have been handed out to the program: what is held, or
        less, if a layer above (`Uniform`, `Safe`) holds frames back (`commits`)."""

    def read(self, view: ViewId, stream: MemberId, first: int, last: int) -> Sequence[bytes]:
        """Return these frames, as bytes that `add` takes; fewer if not all are held."""

    def add(self, view: ViewId, stream: MemberId, first: int, frames: Sequence[bytes]) -> None:
        """Take frames that another process has read, while the stack is frozen. What is held
        already, or would leave a gap, is ignored."""


class Codec(Protocol):
    """Frames as bytes, with the headers of all layers of the stack."""

    def encode(self, frame: Frame) -> bytes: ...

    def decode(self, data: Body) -> Frame:
        """Raise `FormatError` on garbage."""


class Layer:
    """One promise. Subclasses say it in their docstring, with what they need and their limits.

    The methods of this class pass everything on and keep nothing. `bind` is called once, before any
    input.
    """

    name: ClassVar[str] = ""
    """Its name in a printed stack, in status and in summaries."""
    gives: ClassVar[frozenset[str]] = frozenset()
    """What the layers above may count on."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What layers below must give; a stack without it is refused."""
    headers: ClassVar[tuple[type[Header], ...]] = ()
    local: ClassVar[bool] = False
    """The other processes cannot tell whether a process has it, and need not have it too."""

    me: MemberId
    view: PeerView
    random: Random
    learns: bool | None = None
    """Whether this process lacks what a member must have to count for a quorum; None: nothing."""
    codec: Codec
    """Of the whole stack; set before `bind`."""
    stack: Sequence[Layer] = ()
    """All layers of the running stack, the lowest first; set before `bind`."""

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        """Learn who this process is, its first view (itself alone), and the layers below, the
        nearest last. `random` is this layer's own stream of chance."""
        self.me = me
        self.view = view
        self.random = random

    def start(self, now_ms: int) -> Sequence[Effect]:
        """Begin; called once, from below upwards."""
        return ()

    def down(self, frame: Frame, to: To, now_ms: int) -> Sequence[Effect]:
        return (Down(frame, to),)

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        return (Up(frame, sender),)

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        """There is a connection to a process, which can be dialled at this address."""
        return ()

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        """The connection to a process is gone. `goodbye`: it said that it ends."""
        return ()

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        """A layer has said `Suspect`."""
        return ()

    def acknowledged(self, stream: MemberId, now_ms: int) -> Sequence[Effect]:
        """A layer below has said `Acknowledged`: ask it for what changed."""
        return ()

    def blocked(self, process: MemberId | None, now_ms: int) -> Sequence[Effect]:
        """A layer below has said `Blocked`."""
        return ()

    def change(self, now_ms: int) -> Sequence[Effect]:
        """A layer has said `Change`."""
        return ()

    def freeze(self, now_ms: int) -> Sequence[Effect]:
        return ()

    def summary(self) -> Any:
        """Return what this process hands in to a change: None, or what msgpack can carry."""
        return None

    def merge(self, summaries: Mapping[MemberId, Any]) -> Any:
        """Put the summaries of the processes of a change together; called at its coordinator."""
        return None

    def close(self, closing: Closing, now_ms: int) -> Sequence[Effect]:
        """End the present view. Frames that are returned in `Up` still belong to it; `Down` is not
        allowed."""
        return ()

    def install(self, view: PeerView, summary: Any, now_ms: int) -> Sequence[Effect]:
        """Begin a view, thawed; whoever overrides this calls `super().install` first."""
        self.view = view
        return ()

    def behind(self, is_behind: bool, now_ms: int) -> Sequence[Effect]:
        """The program has more to receive than may wait for it (True), or has caught up (False).
        While it is behind, `Flow` gives the others no leave to send more."""
        return ()

    def found(self, now_ms: int) -> Sequence[Effect]:
        """This process holds the founding record: its next view may begin a chain of primary
        views."""
        return ()

    def listens(self, address: str, now_ms: int) -> Sequence[Effect]:
        """Others reach this process at this address; called before anything arrives."""
        return ()

    def leave(self, now_ms: int) -> Sequence[Effect]:
        """This process wants to leave."""
        return ()

    def tick(self, now_ms: int) -> Sequence[Effect]:
        return ()

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` must be called at the latest; None: time means nothing now."""
        return None

    def status(self) -> Mapping[str, Any]:
        """Return what people may want to know of this layer: counts, and who is waited for."""
        return {}

    def options(self) -> Mapping[str, Any]:
        """Return the settings that all members must share, for the printed stack and its digest."""
        return {}

    def fresh(self) -> Layer:
        """Return a layer with the same settings that has run in no stack."""
        return type(self)(**self.options())
