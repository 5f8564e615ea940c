"""An object group: three registers that clients use as one, in the words of OGS and Electra.

A client calls operations of a group, and each has semantics of its own: `set` waits for all
members, `get` for the first, `clear` for nobody. A member that joins later takes over the state,
and one that leaves is not waited for any more.

    all have set x to 1: ann, bob
    cid joins, and has x already: 1
    the group says that x is 1
    bob leaves; members: ann, cid
    all have set x to 2: ann, cid
    a majority of 2 replies: 2
    cleared, and x is None
"""

import json
import secrets
import sys

import antiphon
from antiphon.toolkits.objectgroups import (
    Groupable,
    GroupAccessor,
    GroupAdministrator,
    NumReplies,
    OperationSemantics,
    Semantics,
)

SEMANTICS = {
    "set": OperationSemantics(NumReplies.ALL),
    "get": OperationSemantics(NumReplies.ONE),
    "clear": OperationSemantics(NumReplies.ONEWAY),
}


class Register(Groupable):
    """A member: names with their values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, int] = {}

    def set(self, name: str, value: int) -> str:
        self.values[name] = value
        return self.name

    def get(self, name: str) -> int | None:
        return self.values.get(name)

    def clear(self) -> None:
        self.values.clear()

    def deliver(self, msg: object) -> int | None:
        return self.get(str(msg))

    def get_state(self) -> bytes:
        return json.dumps(self.values).encode()

    def set_state(self, state: bytes) -> None:
        self.values = json.loads(state)


def main(url: str = "") -> None:
    url = url or f"embedded:{secrets.token_hex(4)}"
    with antiphon.connect(url) as ctx, GroupAdministrator(ctx, "registers") as group:
        ann, bob, cid = Register("ann"), Register("bob"), Register("cid")
        group.create_group()
        group.join_group(ann, SEMANTICS, name="ann")
        group.join_group(bob, SEMANTICS, name="bob")
        with GroupAccessor(ctx, "registers") as accessor:
            everybody = accessor.reference(transparent=False)  # all replies
            print(f"all have set x to 1: {', '.join(sorted(everybody.set('x', 1)))}")
            group.join_group(cid, SEMANTICS, name="cid")
            print(f"cid joins, and has x already: {cid.values['x']}")
            registers = accessor.reference()  # as if it were one object
            print(f"the group says that x is {registers.get('x')}")
            group.leave_group(bob)
            print(f"bob leaves; members: {', '.join(accessor.get_view().members)}")
            print(f"all have set x to 2: {', '.join(sorted(everybody.set('x', 2)))}")
            replies = accessor.multicast("x", NumReplies.MAJORITY, Semantics.TOTAL_ORDER)
            print(f"a majority of {len(replies)} replies: {replies[0]}")
            registers.clear()
            print(f"cleared, and x is {registers.get('x')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
