"""A fire alarm as a topic: whoever listens hears every alarm, in the same order.

The porter listens to the whole building, floor 4 only to itself.

    porter hears: Smoke on floor 4
    porter hears: Fire on floor 4!
    porter hears: Fire on floor 2!
    floor 4 hears: Smoke on floor 4
    floor 4 hears: Fire on floor 4!
"""

import sys

import antiphon


def main(url: str = "embedded:") -> None:
    with antiphon.connect(url) as ctx:
        porter = ctx.create_consumer(ctx.create_topic("alarms.>"))
        floor4 = ctx.create_consumer(ctx.create_topic("alarms.floor4"))

        detector = ctx.create_producer()
        detector.send(ctx.create_topic("alarms.floor4"), "Smoke on floor 4")
        detector.send(ctx.create_topic("alarms.floor4"), "Fire on floor 4!")
        detector.send(ctx.create_topic("alarms.floor2"), "Fire on floor 2!")

        hear("porter", porter, 3)
        hear("floor 4", floor4, 2)


def hear(name: str, consumer: antiphon.Consumer, count: int) -> None:
    for _ in range(count):
        alarm = consumer.receive(timeout=10)
        assert alarm is not None, f"{name} heard nothing"
        print(f"{name} hears: {alarm.text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
