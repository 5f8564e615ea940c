"""A chat in a group of GCom, whose name service goes down and comes back.

Programs find the group by the name service. The first one decides about the order of its messages,
and the highest name leads. While the name service is down the group goes on without it, also if its
leader leaves, and a newcomer gets in by the address of any member. Started again, the name service
has its groups from its file, and hears of the new leader from that one itself.

    ann creates the chat: causal, reliable
    tom wants a total order, and gets causal
    tom leads: ann tom
    ann reads: tom: is anybody here?
    tom reads: ann: I am
    the name service is down, and bob joins by ann
    bob leads, when tom has left: ann bob
    bob reads: ann: we go on
    the name service is back, and knows that bob leads

All run in one program here; each `Management` could as well be in a process of its own.
"""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from antiphon.toolkits import gcom

WAIT_S = 30.0


class Person(gcom.Client):
    """A program in the chat, and what it has read."""

    def __init__(self, name: str, address: str, ordering: gcom.Ordering = gcom.CAUSAL) -> None:
        self._read: list[str] = []
        self._news = threading.Condition()
        self.group = gcom.Management(
            self, address, "chat", ordering=ordering, multicast=gcom.RELIABLE, name=name
        )

    def deliver(self, message: object) -> None:
        with self._news:
            self._read.append(str(message))
            self._news.notify_all()

    def say(self, text: str) -> None:
        self.group.send(f"{self.group.name}: {text}")

    def wait(self, text: str) -> None:
        """Wait until this text is read."""
        with self._news:
            assert self._news.wait_for(lambda: text in self._read, WAIT_S), self._read
        print(f"{self.group.name} reads: {text}")


def wait(condition: Callable[[], bool]) -> None:
    """Look again and again, until this is true."""
    looked = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if condition():
            return
        looked.wait(0.05)
    raise AssertionError("it has not come true")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        chat(Path(folder) / "groups.json")


def chat(save: Path) -> None:
    names = gcom.NameService("127.0.0.1:0", save=save)
    ann = Person("ann", names.address)
    print(f"ann creates the chat: {ann.group.ordering}, {ann.group.multicast}")
    tom = Person("tom", names.address, gcom.TOTAL)
    print(f"tom wants a total order, and gets {tom.group.ordering}")
    wait(lambda: ann.group.leader == "tom")
    print(f"tom leads: {' '.join(ann.group.view.members)}")
    tom.say("is anybody here?")
    ann.wait("tom: is anybody here?")
    ann.say("I am")
    tom.wait("ann: I am")

    address = names.address
    names.close()
    bob = Person("bob", ann.group.address)
    print("the name service is down, and bob joins by ann")
    tom.group.close()
    wait(lambda: ann.group.leader == "bob")
    print(f"bob leads, when tom has left: {' '.join(ann.group.view.members)}")
    ann.say("we go on")
    bob.wait("ann: we go on")

    with gcom.NameService(address, save=save) as names:
        wait(lambda: names.groups["chat"].leader == "bob")
        print("the name service is back, and knows that bob leads")
        for person in (ann, bob):
            person.group.close()


if __name__ == "__main__":
    main()
