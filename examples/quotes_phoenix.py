"""Prices of shares, in the words of Phoenix.

Two members of a group agree on prices. A client sends orders to the group and is told who is in it;
a sink, the display, gets every message and every view, and sends nothing. If a member goes, the
other one sees an intermediate view, and then all see the view without it.

    display: [exchange1 exchange2]
    broker: [exchange1 exchange2]
    exchange1: buy 100
    display: buy 100
    display: price 101
    exchange1: intermediate [exchange1]
    display: [exchange1]
    broker: [exchange1]

Without an argument the programs find each other on this machine; with the URL of Antiphon servers
these are their name service. Here all run in one program.
"""

import sys
from queue import Queue

from antiphon.toolkits import phoenix
from antiphon.toolkits.phoenix import Message, Order, View

WAIT_S = 30.0


class Display(phoenix.Sink):
    """Keeps what it is told, as lines."""

    def __init__(self, name: str, cluster: str) -> None:
        self.lines: Queue[str] = Queue()
        super().__init__(name, cluster)

    def deliver(self, message: Message) -> None:
        self.lines.put(f"{self.name}: {message.body.decode()}")

    def view_change_delivery_cb(self, view: View) -> None:
        self.lines.put(f"{self.name}: [{' '.join(view.members)}]")

    def wait(self, text: str) -> str:
        """Return the first line that ends so; those before it are dropped."""
        while not (line := self.lines.get(timeout=WAIT_S)).endswith(text):
            pass
        return line


class Broker(Display, phoenix.Client):
    """Sends orders."""


class Exchange(Broker, phoenix.Member):
    """Agrees on prices: the first order that comes raises the price."""

    def intermediate_view_delivery_cb(self, view: View) -> None:
        self.lines.put(f"{self.name}: intermediate [{' '.join(view.members)}]")


def main(url: str = "") -> None:
    cluster = f"peer:{url}/quotes" if url else "peer:quotes"
    with (
        Exchange("exchange1", cluster) as first,
        Exchange("exchange2", cluster) as second,
        Broker("broker", cluster) as broker,
        Display("display", cluster) as display,
    ):
        first.join("shares")
        first.wait("[exchange1]")
        second.join("shares")
        first.wait("[exchange1 exchange2]")
        display.sink_subscribe("shares")
        print(display.wait("[exchange1 exchange2]"))
        broker.client_subscribe("shares")
        print(broker.wait("[exchange1 exchange2]"))
        broker.multicast(b"buy 100", Order.STRONG_TOTAL, "shares")
        print(first.wait("buy 100"))
        print(display.wait("buy 100"))
        first.multicast(b"price 101", Order.GLOBAL)
        print(display.wait("price 101"))
        second.close()
        print(first.wait("intermediate [exchange1]"))
        print(display.wait("[exchange1]"))
        print(broker.wait("[exchange1]"))


if __name__ == "__main__":
    main(*sys.argv[1:])
