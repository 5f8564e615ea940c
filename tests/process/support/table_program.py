"""A program on a `peer:` URL: a member of a group that keeps a table, which all of them write to.

    python -m tests.process.support.table_program URL NAME FOLDER

Its trace is in FOLDER; what it has is in FOLDER/NAME.json, again and again. While there is a file
CALM in FOLDER it writes nothing. It comes back whenever it is lost or removed.
"""

import json
import sys
import time
from pathlib import Path

import antiphon

CALM = "calm"
EVERY_S = 0.05


class Table:
    def __init__(self, ctx: antiphon.Context, name: str, folder: Path) -> None:
        self._folder = folder
        self._table: dict[str, int] = {}
        group = ctx.create_group("tables", remove_after=3)
        self._me = ctx.join(group, name, state_provider=lambda: json.dumps(self._table).encode())
        if (state := self._me.initial_state) is not None:
            self._table = json.load(state)
        self._members: tuple[str, ...] = ()
        self._written = 0

    def run(self) -> None:
        next_s = 0.0
        while not self._me.closed:
            match self._me.receive(timeout=EVERY_S):
                case antiphon.ViewMessage(view=view):
                    self._members = view.members
                case antiphon.SuspicionMessage():
                    pass
                case antiphon.Message(body={"key": str(key), "value": int(value)}):
                    self._table[key] = value
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + EVERY_S
                self._write()
                self._say()

    def _write(self) -> None:
        if not (self._folder / CALM).exists():
            self._written += 1
            self._me.multicast(
                {"key": f"{self._me.name}/{self._written % 7}", "value": self._written}
            )

    def _say(self) -> None:
        path = self._folder / f"{self._me.name}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"members": self._members, "table": self._table}))
        new.replace(path)


def main(url: str, name: str, place: str) -> None:
    folder = Path(place)
    while True:
        try:
            with antiphon.connect(
                f"{url}", connect_timeout=60, send_timeout=60, trace=place
            ) as ctx:
                while True:
                    Table(ctx, name, folder).run()
        except antiphon.JMSError as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
