"""How a session acknowledges, and what sending waits for. The numbers are those of JMS."""

from enum import IntEnum


class SessionMode(IntEnum):
    SESSION_TRANSACTED = 0
    """Messages are acknowledged, and those sent become visible, at `commit()`."""

    AUTO_ACKNOWLEDGE = 1
    """A message is acknowledged when it was received, or when its listener returned."""

    CLIENT_ACKNOWLEDGE = 2
    """`acknowledge()` acknowledges all that the session has delivered."""

    DUPS_OK_ACKNOWLEDGE = 3
    """As automatic, but later and in larger numbers: more may come twice after a failure."""

    INDIVIDUAL_ACKNOWLEDGE = 101
    """`acknowledge()` acknowledges the one message that it is called on."""


class DeliveryMode(IntEnum):
    NON_PERSISTENT = 1
    """Sending does not wait for a majority of the servers: a failure may lose the message."""

    PERSISTENT = 2
    """A message that was sent is kept whatever fails, within the failure model."""


SESSION_TRANSACTED = SessionMode.SESSION_TRANSACTED
AUTO_ACKNOWLEDGE = SessionMode.AUTO_ACKNOWLEDGE
CLIENT_ACKNOWLEDGE = SessionMode.CLIENT_ACKNOWLEDGE
DUPS_OK_ACKNOWLEDGE = SessionMode.DUPS_OK_ACKNOWLEDGE
INDIVIDUAL_ACKNOWLEDGE = SessionMode.INDIVIDUAL_ACKNOWLEDGE
