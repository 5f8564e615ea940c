"""Antiphon: group communication through the JMS model.

The public names, re-exported; nothing else lives here.
"""

import logging

from antiphon._version import __version__
from antiphon.errors import (
    ConnectionLostError,
    DiskFullError,
    FormatError,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JournalDamagedError,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    OutcomeUnknownError,
    ResourceAllocationError,
    SecurityError,
    StorageError,
    SyncFailedError,
    TransactionInProgressError,
    TransactionRolledBackError,
    UnknownVersionError,
)

__all__ = [
    "ConnectionLostError",
    "DiskFullError",
    "FormatError",
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSError",
    "JournalDamagedError",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "OutcomeUnknownError",
    "ResourceAllocationError",
    "SecurityError",
    "StorageError",
    "SyncFailedError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
    "UnknownVersionError",
    "__version__",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user asks
