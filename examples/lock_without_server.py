"""A lock among peers that only the majority grants.

Programs share one order of messages. Each asks for the lock and gives it back by messages to all,
so all know the same queue, and whoever is first in it has the lock. A program that comes takes over
the queue as the others have it. A view without a program takes it out of the queue: a holder that
crashes keeps nobody waiting. A program that is cut off from the majority gets a view that is not
primary: from then on it does not know who has the lock, and has to join anew.

    a founds the cluster
    c has the lock, and a waits
    b comes, and waits behind a
    c gives it back, and a has the lock
    a is gone, and b has the lock

Without an argument the programs find each other on this machine; with the URL of Antiphon servers
these are their name service. Here all run in one program.
"""

import json
import sys
import threading

from antiphon import Message, ViewMessage, peers

WAIT_S = 30.0


class Lock:
    """One program's place in the cluster, and the queue as it knows it."""

    def __init__(self, cluster: str, name: str) -> None:
        self._queue: list[str] = []
        self._knows = True
        self._news = threading.Condition()
        self._channel = peers.Channel(peers.TOTAL_UNIFORM, name=name, state=self._dumped)
        self._channel.connect(cluster)
        stream = self._channel.get_state(WAIT_S)
        if stream is not None:  # others are there
            with stream:
                self._queue = json.load(stream)
        self._channel.set_message_listener(self._receive)

    def ask(self) -> None:
        """Ask for the lock: it is granted when this program is the first one of the queue."""
        self._channel.send("ask")

    def give_back(self) -> None:
        """Give the lock back, or wait for it no more."""
        self._channel.send("give back")

    def wait(self, *queue: str) -> None:
        """Wait until these have the lock and wait for it, in this order, as far as it is known."""
        with self._news:
            known = self._news.wait_for(lambda: self._knows and self._queue == [*queue], WAIT_S)
        assert known, self._queue

    def close(self) -> None:
        """Leave, and the queue with that."""
        self._channel.close()

    def _receive(self, event: Message) -> None:
        with self._news:
            match event:
                case ViewMessage(view=view, left=left):
                    self._knows = self._knows and bool(view.primary)
                    self._queue = [name for name in self._queue if name not in left]
                case Message(body="ask", sender=str(name)) if name not in self._queue:
                    self._queue.append(name)
                case Message(body="give back", sender=str(name)) if name in self._queue:
                    self._queue.remove(name)
            self._news.notify_all()

    def _dumped(self) -> bytes:
        return json.dumps(self._queue).encode()


def main(url: str = "") -> None:
    cluster = f"peer:{url}/lock" if url else "peer:lock"
    a = Lock(cluster, "a")
    print("a founds the cluster")
    c = Lock(cluster, "c")
    c.ask()
    a.wait("c")
    a.ask()
    c.wait("c", "a")
    print("c has the lock, and a waits")
    b = Lock(cluster, "b")
    b.ask()
    b.wait("c", "a", "b")
    print("b comes, and waits behind a")
    c.give_back()
    a.wait("a", "b")
    print("c gives it back, and a has the lock")
    a.close()
    b.wait("b")
    print("a is gone, and b has the lock")
    for lock in (b, c):
        lock.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
