"""`antiphon serve` with a configuration file and with metrics, as real processes."""

import re
import resource
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.server.local_cluster import COMMAND, free_port
from antiphon.server.metrics import ONLY_GROW
from tests.process.support.log_client import LogClient

pytestmark = pytest.mark.process


class Serving:
    """A server that is ready."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        found = re.search(r"metrics at (http://\S+)/metrics", self.said)
        assert found, self.said
        try:
            with urllib.request.urlopen(found[1] + path, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def serving(folder: Path, *options: str, under: tuple[str, ...] = ()) -> Iterator[Serving]:
    """Until the block ends; then SIGTERM must end it in order."""
    log = folder / "server.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*under, *COMMAND, "serve", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        assert ready.startswith("ready "), log.read_text()
        yield Serving(process, ready.split()[1], log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def fails(folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and complaint of a server that does not start."""
    done = subprocess.run(
        [*COMMAND, "serve", *options], cwd=folder, capture_output=True, text=True, timeout=50
    )
    return done.returncode, done.stderr


def test_a_server_as_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        'listen = "127.0.0.1:0"\ndata = "here"\nmetrics = "127.0.0.1:0"\n[limits]\nretain = 10\n'
    )
    with serving(tmp_path, "--config", str(file)) as server:
        status = LogClient(server.url).status()
        assert status.role == "leader"
        assert (tmp_path / "here" / "MANIFEST").exists()
        assert server.get("/ready") == (200, "ready\n")
        code, text = server.get("/metrics")
        assert code == 200
        assert 'antiphon_info{node="1",role="leader"' in text
        for component in ("listener", "session", "log", "journal", "broker", "dispatcher"):
            assert f"\nantiphon_{component}_" in text
        for component, names in ONLY_GROW.items():
            for name in names:
                assert f"\nantiphon_{component}_{name}_total " in text
        assert server.get("/else")[0] == 404


def test_an_option_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('listen = "127.0.0.1:0"\ndata = "here"\nstorage = "durable"\n')
    with serving(tmp_path, "--config", str(file), "--storage", "memory"):
        assert not (tmp_path / "here").exists()


def test_a_cluster_of_files(tmp_path: Path) -> None:
    ports = {node: free_port() for node in (1, 2)}
    table = "[cluster]\n" + "".join(f'{n} = "127.0.0.1:{p}"\n' for n, p in ports.items())
    (tmp_path / "cluster.toml").write_text(f'node = 1\nmetrics = "127.0.0.1:0"\n{table}')
    log = tmp_path / "other.log"
    with log.open("w") as output:
        other = subprocess.Popen(
            [*COMMAND, "serve", "--config", "cluster.toml", "--node", "2", "--data", "two"],
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
    try:
        with serving(tmp_path, "--config", "cluster.toml", "--data", "one") as server:
            assert {m.node for m in LogClient(server.url).status().membership.members} == {1, 2}
            other.kill()
            other.wait()
            # Alone it is no majority, steps down, and says that it is not ready.
            while server.get("/ready")[0] != 503:
                pass
    finally:
        other.kill()
        other.wait()


def test_wrong_files_and_options_are_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("lisen = 'x'")
    code, complaint = fails(tmp_path, "--config", "server.toml")
    assert code == 2
    assert "server.toml: no key lisen; did you mean listen?" in complaint
    code, complaint = fails(tmp_path, "--contexts", "local", "--storage", "memory")
    assert code == 2
    assert "needs storage = durable" in complaint
    assert not (tmp_path / "antiphon-data").exists()


@pytest.mark.parametrize("option", ["--listen", "--metrics"])
def test_an_address_that_is_taken_is_named(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = {"--listen": "127.0.0.1:0", option: address}
        code, complaint = fails(tmp_path, *(part for item in options.items() for part in item))
    assert code == 2
    assert f"cannot listen at {address}: " in complaint
    assert "Traceback" not in complaint


def test_garbage_at_the_metrics_port_costs_nobody_anything(tmp_path: Path) -> None:
    options = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with serving(tmp_path, *options) as server:
        found = re.search(r"metrics at http://127.0.0.1:(\d+)/", server.said)
        assert found
        address = ("127.0.0.1", int(found[1]))
        for garbage in (b"", b"\r\n\r\n", b"\x00" * 100_000, b"GET /metrics HTTP/1.1\r\n"):
            with socket.create_connection(address) as sock:
                sock.sendall(garbage)
        assert server.get("/ready") == (200, "ready\n")
        assert server.process.poll() is None


def test_a_server_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path) -> None:
    shell = ("sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(tmp_path, "--listen", "127.0.0.1:0", under=shell) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
