"""A fire alarm for one place: a consumer that receives alarms from a given location only.

This is exercise 6.14 of the textbook. The consumer needs one more argument, a *selector*: the
servers look at the properties of each message, and send it only what it asked for. The porter of
the mill never hears of the barn; the fire brigade hears of everything that is high up.

    porter of the mill: Smoke! at mill, floor 1
    porter of the mill: Fire! at mill, floor 5
    fire brigade: Fire! at barn, floor 4
    fire brigade: Fire! at mill, floor 5
"""

import sys

import antiphon


def main(url: str = "embedded:") -> None:
    with antiphon.connect(url) as ctx:
        alarms = ctx.create_topic("alarms")
        porter = ctx.create_consumer(alarms, selector="location = 'mill'")
        brigade = ctx.create_consumer(alarms, selector="floor > 3 AND cause LIKE 'Fire%'")

        raise_alarm(ctx, alarms, "Smoke!", "mill", 1)
        raise_alarm(ctx, alarms, "Fire!", "barn", 4)
        raise_alarm(ctx, alarms, "Fire!", "mill", 5)

        for name, consumer in (("porter of the mill", porter), ("fire brigade", brigade)):
            for _ in range(2):
                alarm = consumer.receive(timeout=10)
                assert alarm is not None
                place, floor = alarm.properties["location"], alarm.properties["floor"]
                print(f"{name}: {alarm.text} at {place}, floor {floor}")


def raise_alarm(
    ctx: antiphon.Context, alarms: antiphon.Topic, cause: str, location: str, floor: int
) -> None:
    properties: dict[str, str | int] = {"location": location, "floor": floor, "cause": cause}
    ctx.create_producer().send(alarms, cause, properties=properties)


if __name__ == "__main__":
    main(*sys.argv[1:])
