"""Money between two accounts, each a queue of coins: a transaction moves some, or nothing happens.

A transfer takes coins from one queue and puts as many into another. It is one transaction: the
receives and the sends count together, at one place in the order, when `commit` returns. The second
transfer finds too little and rolls back; the third one ends in the middle, and the coins that it
had taken are back. Whoever looks at both accounts finds ten coins.

    Ann 10, Bob 0
    Ann gives Bob 4
    Ann 6, Bob 4
    Ann gives Bob 7: there are only 6
    Ann 6, Bob 4
    Ann gives Bob 2: the program ends before it commits
    Ann 6, Bob 4
"""

import sys

import antiphon


class TooLittleError(Exception):
    pass


def main(url: str = "embedded:bank") -> None:
    with antiphon.connect(url) as bank:
        ann, bob = bank.create_queue("account.ann"), bank.create_queue("account.bob")
        bank.create_producer().send_all(ann, ["coin"] * 10)
        show(bank, ann, bob)

        print("Ann gives Bob 4")
        transfer(url, ann, bob, 4)
        show(bank, ann, bob)

        try:
            transfer(url, ann, bob, 7)
        except TooLittleError as error:
            print(f"Ann gives Bob 7: {error}")
        show(bank, ann, bob)

        print("Ann gives Bob 2: the program ends before it commits")
        transfer(url, ann, bob, 2, commits=False)
        show(bank, ann, bob)


def transfer(
    url: str, source: antiphon.Queue, target: antiphon.Queue, amount: int, commits: bool = True
) -> None:
    with antiphon.connect(url, session_mode=antiphon.SESSION_TRANSACTED) as ctx:
        purse = ctx.create_consumer(source)
        producer = ctx.create_producer()
        for taken in range(amount):
            coin = purse.receive(timeout=1)
            if coin is None:
                ctx.rollback()  # the coins are back, and nothing was sent
                raise TooLittleError(f"there are only {taken}")
            producer.send(target, coin)
        if commits:
            ctx.commit()


def show(bank: antiphon.Context, ann: antiphon.Queue, bob: antiphon.Queue) -> None:
    """A browser looks at a queue, and leaves the messages there."""
    amounts = [sum(1 for _ in bank.create_browser(account)) for account in (ann, bob)]
    print(f"Ann {amounts[0]}, Bob {amounts[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
