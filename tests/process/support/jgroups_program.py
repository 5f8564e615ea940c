"""A member of a group of JGroups that a test drives, as `peer_program.py` is: with a receiver that
has a state, or with a building block.

    python -m tests.process.support.jgroups_program '{"name": "a", "url": "g", "stack": ["UDP"]}'
"""

import json
import sys
from typing import IO, Any

from antiphon.toolkits.jgroups import (
    GET_ALL,
    JChannel,
    MergeView,
    Message,
    Receiver,
    ReplicatedHashMap,
    RpcDispatcher,
    View,
)
from tests.process.support.peer_program import say


class Words(Receiver):
    """Keeps the words of all, and says what it is told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def receive(self, msg: Message) -> None:
        self.words.append(msg.object)
        say(got=msg.object, sender=msg.src)

    def view_accepted(self, view: View) -> None:
        merged = (
            [group.members for group in view.subgroups] if isinstance(view, MergeView) else None
        )
        say(view=view.members, primary=view.primary, merged=merged)

    def suspect(self, member: str) -> None:
        say(suspect=member)

    def get_state(self, output: IO[bytes]) -> None:
        output.write(json.dumps(self.words).encode())

    def set_state(self, input: IO[bytes]) -> None:
        self.words = json.load(input)


class Echo:
    """The object of a dispatcher: a method that answers, and one that does not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def who(self) -> str:
        return self._name

    def hang(self, member: str) -> str:
        if member == self._name:
            say(hangs=True)
            sys.stdin.readline()  # nothing comes: the test kills this process
        return self._name


def obey(channel: JChannel, words: Words, block: Any, order: dict[str, Any]) -> Any:
    match order:
        case {"send": list() as bodies}:
            for body in bodies:
                channel.send(None, body)
            return len(bodies)
        case {"get_state": timeout}:
            channel.get_state(None, timeout)
            return words.words
        case {"words": _}:
            return words.words
        case {"call": [str(method), *args]}:
            return block.call_remote_methods(None, method, *args, options=GET_ALL(20))
        case {"put": [key, value]}:
            return block.put(key, value)
        case {"map": _}:
            return block.copy()
    raise ValueError(f"what is {order}?")


def main() -> None:
    options = json.loads(sys.argv[1])
    words, block = Words(), None
    stack = options.get("stack", "udp.xml")
    channel = JChannel(stack, listen=options.get("listen")).name(options["name"])
    channel.set_receiver(words)
    if options.get("block") == "rpc":
        block = RpcDispatcher(channel, Echo(options["name"]))
    elif options.get("block") == "map":
        block = ReplicatedHashMap(channel)
    channel.connect(options["url"])
    say(connected=channel.address)
    for line in sys.stdin:
        say(answer=obey(channel, words, block, json.loads(line)))
    channel.close()


if __name__ == "__main__":
    main()
