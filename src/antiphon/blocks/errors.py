"""The errors of calls to other members and to other servers."""

from __future__ import annotations

from typing import Any

from antiphon.errors import IllegalStateError, OutcomeUnknownError


class TooFewRepliesError(OutcomeUnknownError):
    """A call got fewer replies than it wanted: `replies` has those that came, by member."""

    def __init__(self, text: str, replies: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.replies = replies or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.replies)


class RefusedError(IllegalStateError):
    """The target refuses the request, which has had no effect and never will."""
