"""Antiphon: group communication through the JMS model.

The public names, re-exported; nothing else lives here.
"""

import logging

from antiphon import aio
from antiphon._version import __version__
from antiphon.api.classic.domains import (
    QueueConnection,
    QueueConnectionFactory,
    QueueSession,
    TopicConnection,
    TopicConnectionFactory,
    TopicSession,
)
from antiphon.api.classic.endpoints import (
    MessageConsumer,
    MessageProducer,
    QueueReceiver,
    QueueSender,
    TopicPublisher,
    TopicSubscriber,
)
from antiphon.api.classic.sessions import (
    Connection,
    ConnectionFactory,
    ConnectionMetaData,
    Session,
)
from antiphon.api.log_reader import LogBounds, LogPack, LogReader, LogSlice, open_log
from antiphon.api.lookup import lookup
from antiphon.api.messages.destinations import (
    Destination,
    Group,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from antiphon.api.messages.group_messages import SuspicionMessage, ViewMessage
from antiphon.api.messages.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    View,
)
from antiphon.api.modes import (
    AUTO_ACKNOWLEDGE,
    CLIENT_ACKNOWLEDGE,
    DUPS_OK_ACKNOWLEDGE,
    INDIVIDUAL_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    DeliveryMode,
    SessionMode,
)
from antiphon.api.sync import Browser, Consumer, Context, Member, Producer, SendFuture, connect
from antiphon.errors import (
    ConfigurationError,
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
    MessagesGoneError,
    OutcomeUnknownError,
    ResourceAllocationError,
    SecurityError,
    StorageError,
    SyncFailedError,
    TransactionInProgressError,
    TransactionRolledBackError,
    UnknownVersionError,
)
from antiphon.model.conflicts import ConflictRelation

__all__ = [
    "AUTO_ACKNOWLEDGE",
    "CLIENT_ACKNOWLEDGE",
    "DUPS_OK_ACKNOWLEDGE",
    "INDIVIDUAL_ACKNOWLEDGE",
    "SESSION_TRANSACTED",
    "Browser",
    "BytesMessage",
    "ConfigurationError",
    "ConflictRelation",
    "Connection",
    "ConnectionFactory",
    "ConnectionLostError",
    "ConnectionMetaData",
    "Consumer",
    "Context",
    "DeliveryMode",
    "Destination",
    "DiskFullError",
    "FormatError",
    "Group",
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSError",
    "JournalDamagedError",
    "LogBounds",
    "LogPack",
    "LogReader",
    "LogSlice",
    "MapMessage",
    "Member",
    "Message",
    "MessageConsumer",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "MessagesGoneError",
    "ObjectMessage",
    "OutcomeUnknownError",
    "Producer",
    "Queue",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueSender",
    "QueueSession",
    "ResourceAllocationError",
    "SecurityError",
    "SendFuture",
    "Session",
    "SessionMode",
    "StorageError",
    "StreamMessage",
    "SuspicionMessage",
    "SyncFailedError",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicSession",
    "TopicSubscriber",
    "TransactionInProgressError",
    "TransactionRolledBackError",
    "UnknownVersionError",
    "View",
    "ViewMessage",
    "__version__",
    "aio",
    "connect",
    "lookup",
    "open_log",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user asks
