"""Generic order: what conflicts is handled in order, everything else at the same time.

A group takes bookings for accounts. Two bookings conflict if they are for the same account, so the
conflict relation is *keyed*: the account is the key. A member with several workers handles bookings
for different accounts in parallel; those of one account stay in their order, at every member.

    with 1 worker every account has its bookings in order
    with 8 workers every account has its bookings in order
    8 workers were more than twice as fast

With a second argument the times are printed: `python workers.py embedded:bank times`.
"""

import sys
import threading
import time

import antiphon

BOOKINGS = 320
ACCOUNTS = [f"account-{number}" for number in range(16)]
BOOKING_S = 0.005
"""A handler that waits for something: a disk, a database, another service."""

BY_ACCOUNT = antiphon.ConflictRelation(["book"], [("book", "book")], keyed=True)


def main(url: str = "embedded:bank", times: str = "") -> None:
    took_s = {workers: measure(url, workers) for workers in (1, 8)}
    gain = took_s[1] / took_s[8]
    if times:
        print(f"{BOOKINGS} bookings: {took_s[1]:.2f} s and {took_s[8]:.2f} s, {gain:.1f} times")
    else:
        print(f"8 workers were {'more' if gain > 2 else 'not more'} than twice as fast")


def measure(url: str, workers: int) -> float:
    """Seconds from the first booking that is handled to the last one."""
    books: dict[str, list[int]] = {account: [] for account in ACCOUNTS}
    at_s: list[float] = []
    done = threading.Event()

    def book(message: antiphon.Message) -> None:
        if isinstance(message, antiphon.ViewMessage | antiphon.SuspicionMessage):
            return
        at_s.append(time.monotonic())
        time.sleep(BOOKING_S)
        books[str(message.properties["account"])].append(message.body)
        if sum(map(len, books.values())) == BOOKINGS:
            at_s.append(time.monotonic())
            done.set()

    with antiphon.connect(url) as ctx:
        group = ctx.create_group(f"bank.{workers}", conflict=BY_ACCOUNT)
        with ctx.join(group, "teller", workers=workers) as teller:
            sendings = []
            for number in range(BOOKINGS):
                account = ACCOUNTS[number % len(ACCOUNTS)]
                sendings.append(
                    teller.multicast_async(
                        number, tag="book", key=account, properties={"account": account}
                    )
                )
            for sending in sendings:
                sending.result()
            teller.set_message_listener(book)
            assert done.wait(30), "not everything was handled"
    in_order = all(booked == sorted(booked) for booked in books.values())
    one_or_more = f"{workers} worker{'s' if workers > 1 else ''}"
    print(
        f"with {one_or_more} every account has its bookings {'in' if in_order else 'OUT OF'} order"
    )
    return at_s[-1] - at_s[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
