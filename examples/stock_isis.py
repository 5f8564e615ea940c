"""A stock that three programs keep, in the words of Isis.

Each keeps its own copy. Orders are broadcast by `abcast`, so all copies see them in one order; the
buyer, who is no member, waits for the replies of a majority. The stock is counted by `gbcast`: the
broadcasts of other kinds, too, come on one side of it everywhere, so all count the same. When a
member ends, nobody waits for it, and who watches its site is told.

    a majority says: 7 bolts are left
    a sell-out: 0 bolts are left
    all count: 0 bolts
    the site rome fails
    two members count: 20 bolts

Without an argument the programs find each other on this machine; with the URL of Antiphon servers
these are their name service. Here all run in one program.
"""

import sys
from queue import Queue

from antiphon.toolkits import isis
from antiphon.toolkits.isis import ALL, MAJORITY, W_FAIL, Address, Message

WAIT_S = 30.0
BUY, DELIVER, COUNT = 1, 2, 3
"""The entries of a member."""


class Stock:
    """One copy of the stock."""

    def __init__(self, cluster: str, name: str, site: str) -> None:
        self.isis = isis.isis_remote_init(cluster, name, site)
        self._bolts = 10
        self.isis.isis_entry(BUY, self._buy)
        self.isis.isis_entry(DELIVER, self._deliver)
        self.isis.isis_entry(COUNT, lambda message: self.isis.reply(message, self._bolts))
        self.isis.pg_join("stock")

    def _buy(self, message: Message) -> None:
        (wanted,) = message.values
        self._bolts -= min(wanted, self._bolts)
        self.isis.reply(message, self._bolts)

    def _deliver(self, message: Message) -> None:
        (bolts,) = message.values
        self._bolts += bolts


def main(url: str = "") -> None:
    cluster = f"peer:{url}/stock" if url else "peer:stock"
    sites = {"a": "paris", "b": "rome", "c": "paris"}
    stocks = [Stock(cluster, name, site) for name, site in sites.items()]
    buyer = isis.isis_remote_init(cluster, "buyer", "oslo")
    stock = Address("stock")

    replies = buyer.abcast(stock, BUY, 3, nwanted=MAJORITY, timeout=WAIT_S)
    assert len(replies) >= 2
    print(f"a majority says: {replies[0].values[0]} bolts are left")
    replies = buyer.abcast(stock, BUY, 100, nwanted=1, timeout=WAIT_S)
    print(f"a sell-out: {replies[0].values[0]} bolts are left")
    counted = {one.values[0] for one in buyer.gbcast(stock, COUNT, nwanted=ALL, timeout=WAIT_S)}
    print(f"all count: {counted.pop()} bolts")
    assert not counted

    failed: Queue[str] = Queue()
    buyer.sv_watch("rome", W_FAIL, lambda site, event, arg: failed.put(site))
    stocks[1].isis.close()
    print(f"the site {failed.get(timeout=WAIT_S)} fails")
    buyer.fbcast(stock, DELIVER, 20)
    replies = buyer.gbcast(stock, COUNT, nwanted=ALL, timeout=WAIT_S)
    assert [reply.values for reply in replies] == [(20,), (20,)]
    print(f"two members count: {replies[0].values[0]} bolts")
    for program in (buyer, stocks[0].isis, stocks[2].isis):
        program.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
