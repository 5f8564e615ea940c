"""The errors of calls to other members and to other servers."""

from __future__ import annotations

from typing import Any

from antiphon.errors import IllegalStateError, OutcomeUnknownError


class TooFewRepliesError(OutcomeUnknownError):
    """A call has not got the replies that it wanted: `replies` are those that came."""

    def __init__(self, text: str, replies: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.replies = replies or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.replies)


class RefusedError(IllegalStateError):
    """The target says no: the request has had no effect and never will."""
