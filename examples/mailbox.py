"""A mailbox for notifications: exercise 6.8 of "Distributed Systems: Concepts and Design".

The exercise asks for a service that stores notifications for many subscribers, each of whom says
when they are to be delivered. Here a mailbox is a durable subscription:

- It is opened once, under a name, and from then on stores what its subscriber does not take.
- Delivery is on while the subscriber has a consumer on it, and off while it has none, connected or
  not. Nobody else notices.
- A subscriber that crashes with delivery on finds everything in its mailbox that it had not
  acknowledged, marked as redelivered: it may have begun with it.

    bob has opened a mailbox and left
    3 notifications were published; carol was there and read: Monday Tuesday Wednesday
    bob is back and reads: Monday
    bob crashes while he reads: Tuesday
    bob is back and reads: Tuesday (again) Wednesday
    bob has closed his mailbox
"""

import sys

import antiphon


class CrashError(Exception):
    pass


def main(url: str = "embedded:mailbox") -> None:
    with antiphon.connect(url) as publisher:
        Mailbox(url, "bob").open()
        print("bob has opened a mailbox and left")

        with antiphon.connect(url, client_id="carol") as carol:
            mail = carol.create_durable_consumer(carol.create_topic("news.>"), "mailbox")
            days = ["Monday", "Tuesday", "Wednesday"]
            count = publisher.create_producer().send_all(publisher.create_topic("news.day"), days)
            read = " ".join(shown(mail.receive(timeout=10)) for _ in days)
            print(f"{count} notifications were published; carol was there and read: {read}")
            mail.close()
            carol.unsubscribe("mailbox")

        bob = Mailbox(url, "bob")
        print("bob is back and reads:", *bob.read(1))
        try:
            bob.read_and_crash()
        except CrashError as crash:
            print("bob crashes while he reads:", crash)
        print("bob is back and reads:", *bob.read(2))
        bob.throw_away()
        print("bob has closed his mailbox")


class Mailbox:
    """All notifications for one subscriber."""

    def __init__(self, url: str, owner: str) -> None:
        self._url = url
        self._owner = owner

    def open(self) -> None:
        """From now on everything is stored; the subscriber need not be there."""
        with self._connect() as ctx:
            self._turn_delivery_on(ctx)

    def read(self, count: int) -> list[str]:
        """Delivery is on until so many were read."""
        with self._connect() as ctx, self._turn_delivery_on(ctx) as mail:
            return [shown(mail.receive(timeout=10)) for _ in range(count)]

    def read_and_crash(self) -> None:
        with self._connect() as ctx, self._turn_delivery_on(ctx) as mail:
            for notification in mail:
                raise CrashError(notification.text)  # before it is acknowledged

    def throw_away(self) -> None:
        with self._connect() as ctx:
            ctx.unsubscribe("mailbox")

    def _connect(self) -> antiphon.Context:
        return antiphon.connect(self._url, client_id=self._owner)

    def _turn_delivery_on(self, ctx: antiphon.Context) -> antiphon.Consumer:
        return ctx.create_durable_consumer(ctx.create_topic("news.>"), "mailbox")


def shown(notification: antiphon.Message | None) -> str:
    assert notification is not None, "nothing came"
    return f"{notification.text} (again)" if notification.redelivered else notification.text


if __name__ == "__main__":
    main(*sys.argv[1:])
