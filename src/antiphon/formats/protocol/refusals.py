"""Refusals: the errors that servers name on the wire, as errors."""

from __future__ import annotations

from antiphon import errors
from antiphon.errors import JMSError


def error_of(code: str, text: str) -> JMSError:
    """Return the error with this name. Servers newer than this client may know others: whether
    those are refusals is not known here."""
    kind = getattr(errors, code, None)
    if isinstance(kind, type) and issubclass(kind, JMSError) and kind is not JMSError:
        try:
            return kind(text)
        except TypeError:  # one that a server has no business with
            pass
    return JMSError(text if code in ("", "JMSError") else f"{code}: {text}")
