"""The one family of exceptions, and whether the request that met one has happened.

    JMSError
    |-- IllegalStateError              not now: closed, taken, in conflict with what exists
    |-- InvalidClientIDError           a client id that is malformed or in use
    |-- InvalidDestinationError        no such destination, or one of another kind
    |-- InvalidSelectorError           a selector that cannot be parsed
    |-- MessagesGoneError              messages, asked for by position, that are no longer kept
    |-- MessageEOFError                read past the end of a stream or bytes message
    |-- MessageFormatError             a body or property of another type
    |-- MessageNotReadableError        a message that is still being written
    |-- MessageNotWriteableError       a received message, which is read-only
    |-- ResourceAllocationError        a stated limit would be passed
    |-- SecurityError                  not known, or not allowed
    |-- TransactionInProgressError     not inside a transaction
    |-- TransactionRolledBackError     commit was asked for, rollback happened
    |-- ConfigurationError             a URL, option or configuration file that makes no sense
    |-- ConnectionLostError            no server can be reached any more       happened: unknown
    |-- OutcomeUnknownError            no answer in time; also a TimeoutError  happened: unknown
    |-- FormatError                    bytes of another format                 happened: unknown
    `-- StorageError                   a server's own files                    happened: unknown
        |-- JournalDamagedError        a record that was synced no longer reads back
        |-- DiskFullError              no space left
        |-- SyncFailedError            the disk did not confirm a write
        `-- UnknownVersionError        a file of a program newer or older than this one

`happened` is `"no"` (the request had no effect and never will) or `"unknown"` (it may have had
one). It is a default of the class that the raiser may override by keyword: "unknown", unless the
class is a refusal and says "no". All errors pickle, with their attributes. Mistakes inside antiphon
are assertions, not members of this family.
"""

from typing import Literal

Happened = Literal["no", "unknown"]


class JMSError(Exception):
    """An error that antiphon reports to its user; all errors of this family pickle.

    `happened`: `"no"` if the request had no effect and never will, `"unknown"` if it may have one.
    """

    happened: Happened = "unknown"

    # The arguments stay in `args` unchanged, since unpickling calls the class with them.
    def __init__(self, *args: object, happened: Happened | None = None) -> None:
        super().__init__(*args)
        if happened is not None:
            self.happened = happened


class IllegalStateError(JMSError):
    """The call does not fit the present state: closed, taken, in conflict with what exists."""

    happened = "no"


class InvalidClientIDError(JMSError):
    """The client id is malformed, or a live session has it."""

    happened = "no"


class InvalidDestinationError(JMSError):
    """There is no such destination, or it is of another kind."""

    happened = "no"


class InvalidSelectorError(JMSError):
    """The selector cannot be parsed."""

    happened = "no"


class MessagesGoneError(JMSError):
    """Messages that were asked for by their positions are no longer kept."""

    happened = "no"


class MessageEOFError(JMSError):
    """A stream or bytes message was read past its end."""

    happened = "no"


class MessageFormatError(JMSError):
    """A body or property is of another type than the one asked for."""

    happened = "no"


class MessageNotReadableError(JMSError):
    """The message is still being written."""

    happened = "no"


class MessageNotWriteableError(JMSError):
    """The message was received, and is read-only until cleared."""

    happened = "no"


class ResourceAllocationError(JMSError):
    """The request would pass a stated limit."""

    happened = "no"


class SecurityError(JMSError):
    """The user is not known, or may not do this."""

    happened = "no"


class TransactionInProgressError(JMSError):
    """The call is not allowed inside a transaction. JMS has this error; no call of this version
    raises it."""

    happened = "no"


class TransactionRolledBackError(JMSError):
    """A commit ended as a rollback."""

    happened = "no"


class ConfigurationError(JMSError):
    """A URL, an option or a configuration file makes no sense; nothing was begun."""

    happened = "no"


class ConnectionLostError(JMSError):
    """The connection is lost for good; what was on its way may have arrived."""


class OutcomeUnknownError(JMSError, TimeoutError):
    """No answer came in time; the request may have taken effect, or may still."""


class FormatError(JMSError):
    """Bytes from a peer or a file are not in the format they should be in."""


class StorageError(JMSError):
    """A server cannot rely on its own files."""


class JournalDamagedError(StorageError):
    """A record below the synced offset no longer reads back: damage, not a torn tail."""

    def __init__(
        self, file: str, offset: int, detail: str, *, happened: Happened | None = None
    ) -> None:
        super().__init__(file, offset, detail, happened=happened)
        self.file = file
        self.offset = offset
        self.detail = detail

    def __str__(self) -> str:
        return f"journal file {self.file!r} is damaged at offset {self.offset}: {self.detail}"


class DiskFullError(StorageError):
    """There is no space left for the write."""


class SyncFailedError(StorageError):
    """The disk did not confirm a write; the node that met this stops."""


class UnknownVersionError(StorageError):
    """A file is whole, but of a format version that this program does not read."""
