"""A fire alarm in the words of JGroups: an alarm and whoever listens are members of a group.

An alarm makes a channel, connects it to the group, sends, and is done. A listener does the same,
and waits for the next message; views come the same way, and tell who is there. A porter has a
receiver in place of that, and hands those who come later the alarms that were raised before.

    a listener waits
    the alarm is raised
    alarm received: Fire!
    porter hears: Fire!
    porter hears: Smoke on floor 4
    night porter was told: Fire! / Smoke on floor 4

Without an argument the members find each other on this machine; with the URL of Antiphon servers
these are their name service. Here all run in one program.
"""

import sys
import threading
from typing import IO

from antiphon.toolkits.jgroups import JChannel, Message, Receiver, View

WAIT_S = 30.0


class FireAlarm:
    """Raises alarms."""

    def __init__(self, group: str) -> None:
        self._group = group

    def raise_alarm(self, what: str) -> None:
        """Tell all members of the group."""
        with JChannel("udp.xml") as channel:
            channel.connect(self._group)
            channel.send(Message(None, None, what))


class FireAlarmConsumer:
    """Waits for an alarm."""

    def __init__(self, group: str) -> None:
        self._channel = JChannel("udp.xml")
        self._channel.connect(group)

    def wait(self) -> str:
        """Return the next alarm."""
        while True:
            match self._channel.receive(WAIT_S):
                case Message() as message:
                    self._channel.close()
                    return str(message.object)
                case View():
                    pass  # somebody came or went


class Porter(Receiver):
    """Hears every alarm, and knows all of them."""

    def __init__(self, group: str) -> None:
        self._heard: list[str] = []
        self._news = threading.Condition()
        self.channel = JChannel("udp.xml").set_receiver(self)
        self.channel.connect(group)
        self.channel.get_state(None, WAIT_S)

    def receive(self, msg: Message) -> None:
        with self._news:
            self._heard.append(msg.object)
            self._news.notify_all()

    def get_state(self, output: IO[bytes]) -> None:
        output.write("\n".join(self._heard).encode())

    def set_state(self, input: IO[bytes]) -> None:
        self._heard = input.read().decode().splitlines()

    def heard(self, count: int) -> list[str]:
        """Return the alarms, once there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._heard) >= count, WAIT_S), self._heard
            return self._heard


def main(url: str = "") -> None:
    group = f"peer:{url}/AlarmChannel" if url else "AlarmChannel"
    listener = FireAlarmConsumer(group)
    print("a listener waits")
    porter = Porter(group)
    alarm = FireAlarm(group)
    alarm.raise_alarm("Fire!")
    print("the alarm is raised")
    print("alarm received:", listener.wait())
    print("porter hears:", porter.heard(1)[0])
    alarm.raise_alarm("Smoke on floor 4")
    print("porter hears:", porter.heard(2)[1])
    night = Porter(group)
    print("night porter was told:", " / ".join(night.heard(2)))
    for each in (porter, night):
        each.channel.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
