"""A newsroom, in the words of Transis.

Each desk has a mailbox and is in the groups that it works for. A message may go to several groups;
who is in more than one of them gets it once, and all get all messages in one order. Groups are
open: the agency is in none, and sends to both. Between two views of a group its members see a
transitional one, of those who go on together.

    anna: sports [anna]
    ben: sports [anna ben]
    ben: politics [ben]
    anna: agreed from agency to sports politics: cup final
    ben: agreed from agency to sports politics: cup final
    ben: safe from anna to politics: elections called
    anna: sports [anna ben] (transitional)
    anna: sports [anna]

Without an argument the programs find each other on this machine; with the URL of Antiphon servers
these are their name service. Here all run in one program.
"""

import sys

from antiphon.toolkits import transis
from antiphon.toolkits.transis import (
    Mailbox,
    View,
    zzz_connect,
    zzz_join,
    zzz_leave,
    zzz_receive,
    zzz_send,
)

WAIT_S = 30.0


def receive(box: Mailbox) -> str:
    """Receive the next event, and return it as a line."""
    kind, event = zzz_receive(box, WAIT_S)
    assert event is not None
    if isinstance(event, View):
        note = " (transitional)" if kind == transis.TRANSITIONAL else ""
        return f"{box.name}: {event.group} [{' '.join(event.members)}]{note}"
    targets = " ".join(event.targets)
    return f"{box.name}: {kind} from {event.sender} to {targets}: {event.body.decode()}"


def until(box: Mailbox, members: str) -> str:
    """Receive up to a view of these members, and return it as a line."""
    while not (line := receive(box)).endswith(f"[{members}]"):
        pass
    return line


def main(url: str = "") -> None:
    cluster = f"peer:{url}/newsroom" if url else "peer:newsroom"
    with (
        zzz_connect("anna", cluster) as anna,
        zzz_connect("ben", cluster) as ben,
        zzz_connect("agency", cluster) as agency,
    ):
        zzz_join(anna, "sports")
        print(until(anna, "anna"))
        zzz_join(ben, "sports")
        print(until(ben, "anna ben"))
        zzz_join(ben, "politics")
        print(until(ben, "ben"))
        until(anna, "anna ben")
        zzz_send(agency, transis.AGREED, b"cup final", ["sports", "politics"])
        print(receive(anna))
        print(receive(ben))
        zzz_send(anna, transis.SAFE, b"elections called", "politics")
        print(receive(ben))
        zzz_leave(ben, "sports")
        print(receive(anna))
        print(receive(anna))


if __name__ == "__main__":
    main(*sys.argv[1:])
