"""The modes of sessions, messages and consumers: acknowledging, sending, and falling behind."""

from enum import IntEnum
from typing import Literal, TypeAlias


class SessionMode(IntEnum):
    """When a message that a session receives counts as handled, so that it is not delivered again:
    `AUTO_ACKNOWLEDGE`, when it was received or its listener returned; `DUPS_OK_ACKNOWLEDGE`, the
    same; `CLIENT_ACKNOWLEDGE`, with all others at `acknowledge()`; `INDIVIDUAL_ACKNOWLEDGE`, one by
    one at `message.acknowledge()`; `SESSION_TRANSACTED`, at `commit()`. The numbers are those of
    JMS."""

    SESSION_TRANSACTED = 0
    """Messages are acknowledged, and those sent become visible, at `commit()`."""

    AUTO_ACKNOWLEDGE = 1
    """A message is acknowledged when it was received, or when its listener returned."""

    CLIENT_ACKNOWLEDGE = 2
    """`acknowledge()` acknowledges all that the session has delivered."""

    DUPS_OK_ACKNOWLEDGE = 3
    """The same as `AUTO_ACKNOWLEDGE`, which gathers acknowledgements already: JMS allows this mode
    to be slower to acknowledge, and it need not be."""

    INDIVIDUAL_ACKNOWLEDGE = 101
    """`acknowledge()` acknowledges the one message that it is called on."""


class DeliveryMode(IntEnum):
    """Whether a sent message outlives the failure of servers: `PERSISTENT`, it does;
    `NON_PERSISTENT`, a failure may lose it. The numbers are those of JMS."""

    NON_PERSISTENT = 1
    """Sending does not wait for a majority of the servers: a failure may lose the message."""

    PERSISTENT = 2
    """A sent message outlives all failures of the failure model (`docs/PROMISES.md`)."""


SESSION_TRANSACTED = SessionMode.SESSION_TRANSACTED
AUTO_ACKNOWLEDGE = SessionMode.AUTO_ACKNOWLEDGE
CLIENT_ACKNOWLEDGE = SessionMode.CLIENT_ACKNOWLEDGE
DUPS_OK_ACKNOWLEDGE = SessionMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL_ACKNOWLEDGE = SessionMode.INDIVIDUAL_ACKNOWLEDGE

SlowPolicy: TypeAlias = Literal["spill", "disconnect", "drop"]
"""The fate of a topic's consumer that does not keep up. "spill" (the default): its messages wait in
the servers' journal; "disconnect": it is closed, and its calls raise; "drop": it misses
messages."""
