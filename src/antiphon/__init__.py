"""Antiphon: group communication through the JMS model.

    with antiphon.connect("embedded:") as ctx:
        queue = ctx.create_queue("work")
        ctx.create_producer().send(queue, "hello")
        with ctx.create_consumer(queue) as consumer:
            print(consumer.receive().text)

`connect` returns a context, which makes everything else; `antiphon.aio` has the same names for
asyncio. `antiphon.blocks` has building blocks above groups, `antiphon.peers` channels between
processes without servers, `antiphon.sim` simulates and judges services, `antiphon.spark` has
pipelines. Only the public names are here.
"""

import logging

from antiphon import aio
from antiphon._names import adopt
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
from antiphon.api.face.context import ExceptionListener
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
from antiphon.api.messages.headers import SendHeaders
from antiphon.api.messages.kinds import (
    BytesMessage,
    MapMessage,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from antiphon.api.messages.message import Message
from antiphon.api.messages.properties import Properties, PropertyValue
from antiphon.api.modes import (
    AUTO_ACKNOWLEDGE,
    CLIENT_ACKNOWLEDGE,
    DUPS_OK_ACKNOWLEDGE,
    INDIVIDUAL_ACKNOWLEDGE,
    SESSION_TRANSACTED,
    DeliveryMode,
    SessionMode,
    SlowPolicy,
)
from antiphon.api.operations.front import MessageListener
from antiphon.api.operations.initial_state import StateProvider
from antiphon.api.operations.redelivery import RedeliveryOptions
from antiphon.api.options import ConnectOptions, FactoryOptions
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
from antiphon.formats.columns import Packed
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.views import View

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
    "ConnectOptions",
    "Connection",
    "ConnectionFactory",
    "ConnectionLostError",
    "ConnectionMetaData",
    "Consumer",
    "Context",
    "DeliveryMode",
    "Destination",
    "DiskFullError",
    "ExceptionListener",
    "FactoryOptions",
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
    "MessageListener",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "MessagesGoneError",
    "ObjectMessage",
    "OutcomeUnknownError",
    "Packed",
    "Producer",
    "Properties",
    "PropertyValue",
    "Queue",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueSender",
    "QueueSession",
    "RedeliveryOptions",
    "ResourceAllocationError",
    "SecurityError",
    "SendFuture",
    "SendHeaders",
    "Session",
    "SessionMode",
    "SlowPolicy",
    "StateProvider",
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
adopt(__name__, __all__)
