"""A trading floor made of building blocks: quotes, a book, and one order at a time.

Each desk is a program with a connection of its own. A broker asks all desks for a quote, and takes
the best (`RpcDispatcher`, `RpcClient`). How many shares each desk has stands in a book of which
every desk has a copy (`ReplicatedTable`). An order looks at quotes and book and then changes the
book, so one is filled at a time (`Lock`); a member that leaves with the lock in its hands
loses it. Orders are numbered (`Counter`).

    London quotes 103, Paris 101, Tokyo 102
    order 1: 60 shares from Paris at 101
    Paris: only 40 shares are left
    order 2: 60 shares from Tokyo at 102
    London begins an order, and is switched off
    Paris quotes 101, Tokyo 102
    order 3: 30 shares from Paris at 101
    London is back, and has the book: London 100, Paris 10, Tokyo 40
"""

import sys
from types import TracebackType

import antiphon
from antiphon.blocks import Counter, Lock, ReplicatedTable, RpcClient, RpcDispatcher


class Quotes:
    """What others may ask a desk."""

    def __init__(self, name: str, price: int, book: ReplicatedTable) -> None:
        self._name, self._price, self._book = name, price, book

    def quote(self, shares: int) -> int:
        """The price of a share. Raises `ValueError` if there are not so many."""
        left = self._book.get(self._name)  # as everybody knows it; this copy may be behind
        if shares > left:
            raise ValueError(f"only {left} shares are left")
        return self._price


class Desk:
    def __init__(self, url: str, name: str, price: int) -> None:
        self.name = name
        self._ctx = antiphon.connect(url)
        self.book = ReplicatedTable(self._ctx, "floor.book", name=name)
        self.order = Lock(self._ctx, "floor.order", name=name)
        self.orders = Counter(self._ctx, "floor.orders", name=name)
        self.book.replace(name, None, 100)  # unless it was here before
        self._quotes = RpcDispatcher(
            self._ctx, "floor.quotes", Quotes(name, price, self.book), name=name
        )

    def switch_off(self) -> None:
        """Whatever it is doing: with its connection it leaves all groups."""
        self._ctx.close()

    def __enter__(self) -> "Desk":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.switch_off()


def ask(broker: RpcClient, shares: int) -> dict[str, int]:
    """The price at each desk that has so many. Says which have not."""
    prices = {}
    for desk, price in sorted(broker.call("quote", shares).items()):
        if isinstance(price, Exception):
            print(f"{desk}: {price}")
        else:
            prices[desk] = price
    return prices


def fill(desk: Desk, broker: RpcClient, shares: int) -> None:
    with desk.order.hold(timeout=10):
        number = desk.orders.add()
        prices = ask(broker, shares)
        best = min(prices, key=lambda name: prices[name])
        desk.book[best] = desk.book.get(best) - shares
        print(f"order {number}: {shares} shares from {best} at {prices[best]}")


def show(prices: dict[str, int]) -> None:
    first, *others = [f"{desk} {price}" for desk, price in prices.items()]
    print(", ".join([first.replace(" ", " quotes "), *others]))


def main(url: str = "embedded:floor") -> None:
    with (
        Desk(url, "Paris", 101) as paris,
        Desk(url, "Tokyo", 102) as tokyo,
        antiphon.connect(url) as ctx,
        RpcClient(ctx, "floor.quotes") as broker,
    ):
        with Desk(url, "London", 103) as london:
            show(ask(broker, 1))
            fill(london, broker, 60)
            fill(tokyo, broker, 60)
            london.order.acquire()
            print("London begins an order, and is switched off")
        show(ask(broker, 1))
        fill(paris, broker, 30)
        with Desk(url, "London", 103) as london:
            shares = ", ".join(f"{name} {left}" for name, left in sorted(london.book.items()))
            print(f"London is back, and has the book: {shares}")


if __name__ == "__main__":
    main(*sys.argv[1:])
