"""The common part of all targets, the servers that a replicated service calls: refusals and ids.

A target is *pessimistic* if it keeps its locks until a replica commits or aborts the request
(`postgres.py`), and *optimistic* if it carries a request out at once, and a compensating request
undoes it (`http.py`). Either way every request has an id, and every replica that knows it may end
the request, any number of times: a new primary ends the requests that the old one has left.

A request may be ended before it arrives, for a primary that was suspected may be only slow. The
target notes that, and refuses the request when it comes.
"""

from __future__ import annotations

from antiphon.errors import IllegalStateError

ID_BYTES_MAX = 180
"""PostgreSQL has room for less than 200 bytes, of which our prefix needs some."""


class AlreadyCommittedError(IllegalStateError):
    """The request cannot be aborted, for it is committed."""


class UnknownRequestError(IllegalStateError):
    """The target knows no such request: it was never there, or is being aborted at this moment."""


def check_id(request_id: str) -> str:
    """Return the id. Raise `ValueError` for one that not every target can keep."""
    if not request_id or not request_id.isprintable():
        raise ValueError(f"the id of a request is printable text, not {request_id!r}")
    if len(request_id.encode()) > ID_BYTES_MAX:
        raise ValueError(f"the id of a request has at most {ID_BYTES_MAX} bytes: {request_id!r}")
    return request_id
