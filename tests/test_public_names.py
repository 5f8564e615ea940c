"""The public names are pinned, and importing them stays light."""

import subprocess
import sys

import antiphon
import antiphon.blocks
import antiphon.sim

HEAVY = {"numpy", "pandas", "pyarrow", "pyspark"}


def test_the_public_names_are_these() -> None:
    assert sorted(antiphon.__all__) == [
        "AUTO_ACKNOWLEDGE",
        "Browser",
        "BytesMessage",
        "CLIENT_ACKNOWLEDGE",
        "ConfigurationError",
        "ConflictRelation",
        "Connection",
        "ConnectionFactory",
        "ConnectionLostError",
        "ConnectionMetaData",
        "Consumer",
        "Context",
        "DUPS_OK_ACKNOWLEDGE",
        "DeliveryMode",
        "Destination",
        "DiskFullError",
        "FormatError",
        "Group",
        "INDIVIDUAL_ACKNOWLEDGE",
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
        "SESSION_TRANSACTED",
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


def test_every_public_name_exists() -> None:
    assert [name for name in antiphon.__all__ if not hasattr(antiphon, name)] == []


def test_importing_antiphon_loads_nothing_heavy() -> None:
    assert modules_loaded_by("import antiphon") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    ask_for_help = (
        "import antiphon.cli\ntry: antiphon.cli.main(['--help'])\nexcept SystemExit: pass"
    )
    assert modules_loaded_by(ask_for_help) & HEAVY == set()


def modules_loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running `code`."""
    report = f"{code}\nimport sys\nprint('loaded', *{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split()[1:])


def test_the_names_of_the_building_blocks_are_these() -> None:
    assert sorted(antiphon.blocks.__all__) == [
        "ALL",
        "Barrier",
        "Counter",
        "FIRST",
        "GroupClient",
        "Invocation",
        "Kind",
        "LeaderElection",
        "Lock",
        "MAJORITY",
        "MessageDispatcher",
        "NONE",
        "NotificationBus",
        "RefusedError",
        "RemoteError",
        "Replica",
        "ReplicatedService",
        "ReplicatedTable",
        "RpcClient",
        "RpcDispatcher",
        "Semaphore",
        "ServiceClient",
        "Target",
        "TooFewRepliesError",
        "aio",
    ]
    assert sorted(antiphon.sim.__all__) == ["Operation", "linearizable", "simulate"]
