"""`antiphon pub` and `antiphon sub`, as from a terminal."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.server.local_cluster import COMMAND, LocalCluster
from tests.process.support.cluster import Cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all; each test has destinations of its own."""
    folder: Path = tmp_path_factory.mktemp("server")
    with LocalCluster(1, folder) as cluster:
        cluster.start()
        yield cluster.url


def antiphon(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=given, capture_output=True, text=True, timeout=50
    )


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def report(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_message_goes_through_a_queue(url: str) -> None:
    sent = antiphon("pub", url, "queue:one", "Fire!", "-p", "floor=4", "-p", "where=east")
    assert (sent.returncode, sent.stdout) == (0, "sent 1 message to queue:one\n")
    seen = antiphon("sub", url, "queue:one", "--count", "1", "--timeout", "20")
    assert (seen.returncode, seen.stdout) == (0, "Fire!  floor=4  where='east'\n")
    # It was acknowledged: nobody sees it again.
    again = antiphon("sub", url, "queue:one", "--timeout", "0")
    assert (again.returncode, again.stdout) == (0, "")


def test_lines_of_the_input_are_messages_in_order(url: str) -> None:
    lines = [f"line {number}" for number in range(1000)]
    sent = antiphon("pub", url, "queue:lines", "-", "--json", given="\n".join(lines))
    assert report(sent) == {"destination": "queue:lines", "sent": 1000}
    seen = antiphon("sub", url, "queue:lines", "--count", "1000", "--timeout", "20")
    assert seen.stdout.splitlines() == lines


def test_sub_as_json(url: str) -> None:
    antiphon("pub", url, "queue:json", "Grüße", "-p", "floor=4")
    seen = antiphon("sub", url, "queue:json", "--count", "1", "--timeout", "20", "--json")
    message = report(seen)
    assert message["body"] == "Grüße"
    assert message["properties"] == {"floor": 4}
    assert message["destination"] == "queue:json"
    assert message["delivery_count"] == 1
    assert message["id"].startswith("ID:")
    assert message["position"] > 0


def test_too_few_messages_are_a_failure(url: str) -> None:
    antiphon("pub", url, "queue:few", "only one")
    seen = antiphon("sub", url, "queue:few", "--count", "2", "--timeout", "0.2")
    assert (seen.returncode, seen.stdout) == (1, "only one\n")


def test_a_durable_subscription_keeps_what_comes_meanwhile(url: str) -> None:
    mailbox = ("sub", url, "topic:mail.>", "--durable", "box", "--client-id", "me")
    assert antiphon(*mailbox, "--timeout", "0").returncode == 0
    antiphon("pub", url, "topic:mail.home", "hello")
    seen = antiphon(*mailbox, "--count", "1", "--timeout", "20")
    assert (seen.returncode, seen.stdout) == (0, "hello\n")


def test_what_nobody_read_is_delivered_again(url: str) -> None:
    antiphon("pub", url, "queue:pipe", "precious")
    with running("sub", url, "queue:pipe", "--count", "1") as cut:
        assert cut.stdout is not None
        assert cut.stderr is not None
        cut.stdout.close()
        assert cut.wait(30) == 1
        assert cut.stderr.read() == ""
    seen = antiphon("sub", url, "queue:pipe", "--count", "1", "--timeout", "20")
    assert seen.stdout == "precious  (redelivered)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sub_ends_in_order_when_told(url: str, number: signal.Signals) -> None:
    destination = f"queue:{number.name}"
    with running("sub", url, destination) as watching:
        antiphon("pub", url, destination, "seen")
        assert watching.stdout is not None
        assert watching.stdout.readline() == "seen\n"
        watching.send_signal(number)
        out, err = watching.communicate(timeout=30)
        assert (watching.returncode, out, err) == (0, "", "")


def test_errors_say_what_is_wrong(url: str) -> None:
    sent = antiphon("pub", url, "topic:a.*", "x", "--json")
    assert sent.returncode == 1
    assert "InvalidDestinationError" in sent.stderr
    failed = json.loads(sent.stdout)
    assert failed["sent"] == 0
    assert "topic:a.*" in failed["error"]
    lost = antiphon("sub", "antiphon://", "queue:q")
    assert lost.returncode == 2
    assert "Traceback" not in lost.stderr


def test_input_that_is_no_text_is_named_and_the_lines_before_it_are_sent(url: str) -> None:
    sent = subprocess.run(
        [*COMMAND, "pub", url, "queue:text", "-", "--json"],
        input=b"good\n\xff\n",
        capture_output=True,
        timeout=50,
    )
    assert sent.returncode == 1
    assert b"FormatError: line 2 of the input is not UTF-8" in sent.stderr
    assert json.loads(sent.stdout)["sent"] == 1
    seen = antiphon("sub", url, "queue:text", "--count", "1", "--timeout", "20")
    assert seen.stdout == "good\n"


def test_somebody_who_types_sees_each_line_arrive(url: str) -> None:
    pub = ("pub", url, "queue:typed", "-", "--json")
    with running("sub", url, "queue:typed") as watching, running(*pub) as typing:
        assert typing.stdin is not None
        assert watching.stdout is not None
        for line in ("one\n", "two\n"):
            typing.stdin.write(line)
            typing.stdin.flush()
            assert watching.stdout.readline() == line
        typing.send_signal(signal.SIGINT)
        out, err = typing.communicate(timeout=30)
        assert (typing.returncode, err) == (1, "")
        assert json.loads(out)["error"] == "interrupted"


def test_priority_expiry_and_delay_are_given_by_hand(url: str) -> None:
    queue = "queue:special"
    for options in (
        ["late", "--delay", "1", "--priority", "0"],
        ["low", "--priority", "1"],
        ["high", "--priority", "9"],
    ):
        assert antiphon("pub", url, queue, *options).returncode == 0
    assert antiphon("pub", url, queue, "gone", "--ttl", "0.001").returncode == 0
    seen = antiphon("sub", url, queue, "--count", "3", "--timeout", "20")
    assert seen.stdout.splitlines() == ["high", "low", "late"]


def test_browsing_leaves_the_messages(url: str) -> None:
    for body in ("1", "2", "3"):
        antiphon("pub", url, "queue:browsed", body, "-p", f"n={body}")
    for _ in range(2):
        seen = antiphon("sub", url, "queue:browsed", "--browse", "--selector", "n > 1")
        assert seen.stdout.splitlines() == ["2  n=2", "3  n=3"]
    few = antiphon("sub", url, "queue:browsed", "--browse", "--count", "1")
    assert (few.returncode, few.stdout) == (0, "1  n=1\n")
    assert antiphon("sub", url, "queue:browsed", "--browse", "--count", "4").returncode == 1


def test_a_shared_subscription_is_divided(url: str) -> None:
    shared = ("sub", url, "topic:divided", "--shared", "both", "--count", "1")
    with running(*shared) as one, running(*shared) as two:
        # Nobody is told when they have begun: so until both have one, more is sent.
        while one.poll() is None or two.poll() is None:
            antiphon("pub", url, "topic:divided", "x")
        assert one.stdout is not None
        assert two.stdout is not None
        assert one.stdout.read() == two.stdout.read() == "x\n"


def test_without_a_majority_every_server_is_told_of(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        left = cluster.leader()
        gone = [node for node in cluster.servers if node != left]
        for node in gone:
            cluster.kill(node)
        sent = antiphon("pub", cluster.url, "queue:q", "x")
        assert sent.returncode == 1
        assert "it hears of no leader (do most of the servers run" in sent.stderr
        for node in gone:
            host, port = cluster.servers[node].address
            assert f"{host}:{port}: Connection refused" in sent.stderr
