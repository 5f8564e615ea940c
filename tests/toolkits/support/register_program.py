"""A member of an object group for tests, until it is killed: `register_program.py URL NAME`.

It adds up numbers and keeps them in their order. Asked for its own name, it never replies.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import antiphon
from antiphon.toolkits.objectgroups import (
    Groupable,
    GroupAdministrator,
    NumReplies,
    OperationSemantics,
)

GROUP = "registers"


class Register(Groupable):
    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: list[int] = []

    def deliver(self, msg: Any) -> Any:
        if msg == self.name:
            print("hangs", flush=True)
            threading.Event().wait()
        return msg

    def add(self, number: int) -> int:
        self.numbers.append(number)
        return sum(self.numbers)

    def kept(self) -> list[int]:
        return self.numbers

    def get_state(self) -> bytes:
        return json.dumps(self.numbers).encode()

    def set_state(self, state: bytes) -> None:
        self.numbers = json.loads(state)


def main(url: str, name: str) -> None:
    semantics = {
        "add": OperationSemantics(NumReplies.MAJORITY),
        "kept": OperationSemantics(NumReplies.ALL),
    }
    with antiphon.connect(url) as ctx, GroupAdministrator(ctx, GROUP) as administrator:
        administrator.create_group(remove_after=0.3)
        administrator.join_group(Register(name), semantics, name=name)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
