"""A dealing room: section 6.3 of "Distributed Systems: Concepts and Design".

Information providers publish the prices of shares as they change. A dealer deals in a few shares,
and subscribes with a *selector*: the servers send what is of interest to this dealer alone.

Some things no single price can tell. A *pattern* watches all prices, on Spark: if a share rises by
at least 5 % and then falls by at least 3 %, all within ten minutes, an alert goes to the group of
the dealers on duty. Each of them gets it, once, and in the same place among what the group hears.

    anna: ACME 100.00
    anna: ACME 106.00
    anna: ACME 102.00
    bert: OAK 50.00
    bert: OAK 53.00
    bert: OAK 51.00
    bert: ELM 12.00
    anna hears: ACME fell from 106.00 to 102.00
    bert hears: ACME fell from 106.00 to 102.00

OAK took twelve minutes for the same. Needs servers, and the extra `antiphon[spark]`:
`python dealing_room.py antiphon://HOST:PORT`.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import antiphon
from antiphon.spark import patterns, session

FALLEN = patterns.rise_and_fall("price", rise=0.05, fall=0.03, within="10 minutes", key="symbol")
START_S = 120.0
"""Spark takes its time to begin."""

# When, which share, at what price.
LONDON = [("09:00", "ACME", 100.0), ("09:04", "ACME", 106.0), ("09:09", "ACME", 102.0)]
TOKYO = [("09:00", "OAK", 50.0), ("09:04", "OAK", 53.0), ("09:12", "OAK", 51.0)]
TOKYO += [("09:15", "ELM", 9.0), ("09:30", "ELM", 12.0)]


def main(url: str) -> None:
    with antiphon.connect(url) as ctx:
        prices = ctx.create_topic("prices.*")
        anna = ctx.create_consumer(prices, selector="symbol = 'ACME'")
        bert = ctx.create_consumer(prices, selector="symbol IN ('OAK', 'ELM') AND price > 10")
        provide(ctx, "prices.london", LONDON)
        provide(ctx, "prices.tokyo", TOKYO)
        for name, dealer, expected in (("anna", anna, 3), ("bert", bert, 4)):
            for _ in range(expected):
                print(f"{name}: {price_in(dealer.receive(timeout=10))}")

        on_duty = ctx.create_group("dealers")
        with ctx.join(on_duty, "anna") as first, ctx.join(on_duty, "bert") as second, watch(url):
            for member in (first, second):
                print(f"{member.name} hears: {next_alert(member)}")


def provide(ctx: antiphon.Context, topic: str, quotes: list[tuple[str, str, float]]) -> None:
    producer = ctx.create_producer()
    for at, symbol, price in quotes:
        quote: dict[str, str | float] = {"symbol": symbol, "price": price}
        quote["at"] = f"2024-03-01T{at}:00Z"
        producer.send(ctx.create_topic(topic), f"{symbol} {price:.2f}", properties=quote)


def price_in(message: antiphon.Message | None) -> str:
    assert message is not None, "no price came"
    return message.text


@contextmanager
def watch(url: str) -> Iterator[None]:
    """Alerts come as long as this lasts."""
    spark = session.start("dealing room", "local[2]")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        watching = patterns.run(
            spark,
            url,
            topic="prices.*",
            pattern=FALLEN,
            to="topic:dealers",
            checkpoint=checkpoint,
            time="at",
            lateness="1 minute",
        )
        yield
        watching.stop()
        spark.stop()


def next_alert(member: antiphon.Member) -> str:
    """Past the views, which tell who is on duty."""
    while True:
        event = member.receive(timeout=START_S)
        assert event is not None, "no alert came"
        if event.type == FALLEN.name:
            alert = json.loads(event.text)
            high, last = (alert["found"][name]["value"] for name in ("high", "last"))
            return f"{alert['key']} fell from {high:.2f} to {last:.2f}"


if __name__ == "__main__":
    main(*sys.argv[1:])
