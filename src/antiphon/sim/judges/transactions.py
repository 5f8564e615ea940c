"""Transactions of simulated programs, judged entry by entry.

A program reports the messages that it sends and has received in a transaction, and the request by
which it commits. The state machine answers that request at one entry of the log; at that entry,
checked with the state right after it:

- all messages that the transaction sent become visible, one directly behind the other, or none
  does, then or ever; without a commit none becomes visible;
- all messages that it received are acknowledged if it was committed, and not if it was refused: so
  there is an output for each input that is gone, and none for one that is not;
- it is refused only for a reason; with a token that was committed before it is void, and never
  without one.

The program gets the true outcome of its commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from antiphon.broker.machine import events as ev
from antiphon.errors import JMSError
from antiphon.formats.protocol import Result
from antiphon.sim.violations import ViolationError


class Input(NamedTuple):
    """A message that a transaction has received."""

    reading: str  # of its queue or subscription
    position: int
    is_over: Callable[[], bool]  # whether the servers do not keep it there any more


class Deal:
    """One transaction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bodies: list[bytes] = []  # that it sent, in this order
        self.delayed: dict[bytes, int] = {}  # of these: visible this many ms after the others
        self.inputs: list[Input] = []
        self.token = ""
        self.handles: tuple[str, ...] = ()
        self.risky: dict[bytes, str] = {}  # of these: to a destination that may have ended
        self.lends = False  # its inputs may have gone to another consumer
        self.stages = False  # it is staged instead of committed
        self.on_commit: Callable[[], None] = lambda: None
        self.result: Result | None = None  # the state machine's answer

    @property
    def done(self) -> bool:
        """Whether it was committed."""
        return self.result is not None and not self.result.code


class Deals:
    """Judges the transactions (deals) of all simulated programs."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], Deal] = {}  # by session and request
        self._by_body: dict[bytes, Deal] = {}
        self._visible: list[tuple[int, bytes]] = []  # at this entry, of all deals
        self._due: list[Deal] = []  # committed at this entry
        self._delayed: dict[bytes, int] = {}  # committed and not visible yet -> when it is due
        self._staged: dict[str, Deal] = {}  # by handle
        self._tokens: set[str] = set()
        self._outputs: dict[tuple[str, int], Deal] = {}  # of each input
        self.outcomes: Counter[str] = Counter()
        self.has_ended: Callable[[str], bool] = lambda destination: False
        """Returns whether this temporary destination is gone, after the entry that is being
        judged."""

    # -- Reports of programs -------------------------------------------------------------------

    def sends(self, deal: Deal, body: bytes, delay: int = 0) -> None:
        deal.bodies.append(body)
        if delay:
            deal.delayed[body] = delay
        self._by_body[body] = deal

    def asks(self, deal: Deal, session: int, request: int) -> None:
        """Note the request that commits or stages this transaction."""
        self._asked[session, request] = deal

    def told(self, deal: Deal, error: JMSError | None, value: int) -> None:
        """Compare the outcome of a transaction that its program got with the true one."""
        result = deal.result
        if error is None and (result is None or result.code or result.value != value):
            raise ViolationError(f"{deal.name} was told {value}, and what happened is {result}")
        if error is not None and error.happened == "no" and deal.done:
            raise ViolationError(f"{deal.name} is committed, and was told {error!r}")

    # -- Reports of the state machine ----------------------------------------------------------

    def answered(self, event: ev.Answered) -> None:
        """Judge the first answer to a transaction's request; repetitions do not count."""
        deal = self._asked.get((event.session, event.result.number))
        if deal is None or deal.result is not None:
            return
        deal.result = result = event.result
        if result.code:
            self.outcomes["refused"] += 1
            self._is_refused_rightly(deal, result)
        elif deal.stages:
            self.outcomes["staged"] += 1
            self._staged[result.data.decode()] = deal
        else:
            self.outcomes["committed" if result.value else "void"] += 1
            self._commit(deal, result.value)

    def _is_refused_rightly(self, deal: Deal, result: Result) -> None:
        wrong = [handle for handle in deal.handles if handle not in self._staged]
        if not (wrong or deal.lends):
            raise ViolationError(f"{deal.name} is refused, and nothing is wrong: {result.text}")
        for one in deal.inputs:
            if one.is_over() and not deal.lends:
                raise ViolationError(
                    f"{deal.name} is refused, and {one.reading} has lost {one.position}"
                )

    def _commit(self, deal: Deal, value: int) -> None:
        expected = int(deal.token == "" or deal.token not in self._tokens)
        if value != expected:
            raise ViolationError(f"{deal.name} is answered {value}, and its token is {deal.token}")
        if not value and deal.inputs:
            raise ViolationError(f"{deal.name} has inputs, and is void: they were used before")
        self._tokens.add(deal.token)
        handed_over = [self._staged.pop(h, None) for h in dict.fromkeys(deal.handles)]
        if value:
            self._due += [deal, *(staged for staged in handed_over if staged is not None)]
        for one in deal.inputs:
            self._is_used_once(deal, one)
        deal.on_commit()

    def _is_used_once(self, deal: Deal, one: Input) -> None:
        first = self._outputs.setdefault((one.reading, one.position), deal)
        if first is not deal:
            raise ViolationError(
                f"{one.position} of {one.reading} is used by {first.name} and by {deal.name}"
            )
        if not one.is_over():
            raise ViolationError(
                f"{deal.name} is committed, and {one.reading} still has {one.position}"
            )

    def accepted(self, position: int, body: bytes, stamp: int) -> None:
        """Judge a message that becomes visible."""
        if (due := self._delayed.pop(body, None)) is not None:
            if stamp < due:
                raise ViolationError(f"{body!r} is visible at {stamp}, and is delayed to {due}")
        elif body in self._by_body:
            self._visible.append((position, body))

    def applied(self, stamp: int) -> None:
        """Judge an entry after all its effects were reported."""
        if not self._visible and not self._due:
            return
        visible, self._visible = self._visible, []
        due, self._due = self._due, []
        seen = {body for _, body in visible}
        dropped = {
            body
            for deal in due
            for body, destination in deal.risky.items()
            if body not in seen and self.has_ended(destination)
        }
        self.outcomes.update("dropped" for _ in dropped)
        expected = [b for deal in due for b in deal.bodies if b not in deal.delayed]
        expected = [b for b in expected if b not in dropped]
        for deal in due:
            self._delayed.update((body, stamp + delay) for body, delay in deal.delayed.items())
        if [body for _, body in visible] != expected:
            raise ViolationError(f"committed at one entry: {expected}, visible: {visible}")
        if visible and visible[-1][0] - visible[0][0] != len(visible) - 1:
            raise ViolationError(f"committed at one entry, and not one after the other: {visible}")

    # -- The end -------------------------------------------------------------------------------

    def hidden(self) -> list[bytes]:
        """Return delayed messages that were committed, and are not visible yet."""
        return sorted(self._delayed)

    @property
    def handles(self) -> set[str]:
        """Return the handles of the messages that are staged and were not committed."""
        return set(self._staged)
