"""The answers to requests, so that one that comes again counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

State: TypeAlias = list[list[Any]]


class Answers:
    """What was answered to the last requests, by the ids that their clients gave them.

    A client that hears nothing sends the same request again, to any server. The servers multicast
    requests, and each one carries them out in the order in which they are delivered:
    `answers.once(id, lambda: carry_out(request))`.

    Promise: a request is carried out once, whichever servers it came through and however often, and
    each time has the same answer. Servers that are given the same messages have the same table.

    Need: it belongs to the replicated state. A server that joins takes both over as of the same
    place (`state`, `take_over`); what it was told in a view that is not primary must change
    neither.

    Limits: the last `kept` answers are kept. A request that comes again after so many others is
    carried out again. An exception of the function is no answer.
    """

    def __init__(self, kept: int = 10_000) -> None:
        if kept < 1:
            raise ValueError(f"kept is the number of answers to keep, 1 or more, not {kept!r}")
        self._kept = kept
        self._answers: dict[str, Any] = {}  # the oldest first

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._answers

    def once(self, request_id: str, carry_out: Callable[[], Any]) -> Any:
        """Return the answer to a request; carry it out first if it has none."""
        if request_id not in self._answers:
            self._answers[request_id] = carry_out()
            if len(self._answers) > self._kept:
                del self._answers[next(iter(self._answers))]
        return self._answers[request_id]

    def state(self) -> State:
        """Return the table as something that messages can carry, if the answers are."""
        return [[request_id, answer] for request_id, answer in self._answers.items()]

    def take_over(self, state: Iterable[Iterable[Any]]) -> None:
        """Replace the table by that of another server."""
        self._answers = {str(request_id): answer for request_id, answer in state}
