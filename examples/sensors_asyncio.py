"""The same API with asyncio: sensors publish, an average is kept, all in one event loop.

What it prints:

    kitchen: 3 readings, 21.0 degrees on average
    cellar: 3 readings, 12.0 degrees on average
"""

import asyncio
import sys
from collections import defaultdict

import antiphon.aio


async def main(url: str = "embedded:sensors") -> None:
    async with antiphon.aio.connect(url) as ctx:
        # Subscribed before anybody publishes: a topic has no past for those who come later.
        readings = await ctx.create_consumer(ctx.create_topic("temperature.>"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sensor(url, "kitchen", [20.0, 21.0, 22.0]))
            tasks.create_task(sensor(url, "cellar", [12.0, 12.5, 11.5]))
            averaging = tasks.create_task(average(readings, 6))
    by_room = averaging.result()
    for room in ("kitchen", "cellar"):
        count, mean = by_room[room]
        print(f"{room}: {count} readings, {mean:.1f} degrees on average")


async def sensor(url: str, room: str, degrees: list[float]) -> None:
    async with antiphon.aio.connect(url) as ctx:
        producer = ctx.create_producer()
        for value in degrees:
            await producer.send(ctx.create_topic(f"temperature.{room}"), {"degrees": value})


async def average(readings: antiphon.aio.Consumer, count: int) -> dict[str, tuple[int, float]]:
    by_room = defaultdict[str, list[float]](list)
    async for message in readings:
        assert message.destination is not None
        by_room[message.destination.name.removeprefix("temperature.")].append(
            message.body["degrees"]
        )
        count -= 1
        if count == 0:
            break
    return {room: (len(values), sum(values) / len(values)) for room, values in by_room.items()}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
