"""A fire alarm as a queue: each fire is put out by one fire engine, and none is forgotten.

The first engine breaks down on its way. What it had not acknowledged goes to the other one after a
moment, in which the next fire is not kept waiting, and is marked: somebody may have begun with it.

    engine 1 drives to: mill
    engine 1 breaks down
    engine 2 drives to: barn
    engine 2 drives to: mill (again)
    no fires left
"""

import sys

import antiphon


class BrokenDownError(Exception):
    pass


def main(url: str = "embedded:") -> None:
    with antiphon.connect(url) as ctx:
        fires = ctx.create_queue("fires")
        ctx.create_producer().send_all(fires, ["mill", "barn"])
        try:
            with ctx.create_consumer(fires) as engine:
                for fire in engine:
                    drive(1, fire)
                    raise BrokenDownError  # so this fire is not acknowledged
        except BrokenDownError:
            print("engine 1 breaks down")

        with ctx.create_consumer(fires) as engine:
            while (next_fire := engine.receive(timeout=1)) is not None:
                drive(2, next_fire)
        print("no fires left")


def drive(engine: int, fire: antiphon.Message) -> None:
    print(f"engine {engine} drives to: {fire.text}{' (again)' if fire.redelivered else ''}")


if __name__ == "__main__":
    main(*sys.argv[1:])
