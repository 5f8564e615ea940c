"""When a call tries another server, and when it gives up."""

import pytest

from antiphon.errors import ConnectionLostError, MessagesGoneError, OutcomeUnknownError
from antiphon.io.rules.attempts import PATIENCE_MAX_S, PATIENCE_S, REDIAL_S, Attempts

REFUSED = ConnectionRefusedError("a: refused")
SILENT = TimeoutError("b: nothing came")


def test_a_server_that_is_gone_is_left_after_a_pause_and_a_silent_one_at_once() -> None:
    attempts = Attempts(100.0, 3, "it")
    assert attempts.failed(REFUSED, 0.0) == REDIAL_S
    assert attempts.failed(SILENT, 0.0) == 0.0


def test_the_patience_grows_with_silence_alone_and_up_to_a_limit() -> None:
    attempts = Attempts(100.0, 3, "it")
    attempts.failed(REFUSED, 0.0)
    assert attempts.patience == PATIENCE_S
    found = []
    for _ in range(4):
        attempts.failed(SILENT, 0.0)
        found.append(attempts.patience)
    assert found == [2 * PATIENCE_S, 4 * PATIENCE_S, PATIENCE_MAX_S, PATIENCE_MAX_S]
    attempts.got_on()
    assert attempts.patience == PATIENCE_S


def test_the_patience_is_not_above_the_time_of_the_call() -> None:
    assert Attempts(0.5, 3, "it").patience == 0.5


@pytest.mark.parametrize(
    ("last", "kind"), [(SILENT, OutcomeUnknownError), (REFUSED, ConnectionLostError)]
)
def test_a_call_gives_up_when_its_time_is_over_and_every_server_was_tried(
    last: OSError, kind: type[Exception]
) -> None:
    attempts = Attempts(10.0, 2, "the end")
    attempts.failed(REFUSED, 0.0)
    attempts.failed(SILENT, 10.0)  # its time is not over
    with pytest.raises(kind) as caught:
        attempts.failed(last, 10.1)
    text = str(caught.value)
    assert text.startswith("the end: no server has made progress for 10 s")
    assert text.endswith(f"{SILENT}; {last}")


def test_one_failure_is_not_the_end_however_late_it_comes() -> None:
    attempts = Attempts(10.0, 3, "it")
    attempts.failed(REFUSED, 0.0)
    attempts.failed(SILENT, 1000.0)
    with pytest.raises(ConnectionLostError):
        attempts.failed(REFUSED, 1001.0)


def test_progress_begins_the_time_again() -> None:
    attempts = Attempts(10.0, 1, "it")
    attempts.failed(REFUSED, 0.0)
    attempts.got_on()
    attempts.failed(REFUSED, 1000.0)
    attempts.failed(REFUSED, 1010.0)
    with pytest.raises(ConnectionLostError):
        attempts.failed(REFUSED, 1010.1)


def test_messages_are_gone_when_each_server_has_said_so_in_a_row() -> None:
    gone = MessagesGoneError("gone")
    attempts = Attempts(10.0, 2, "it")
    assert attempts.failed(gone, 0.0) == 0.0
    attempts.got_on()
    assert attempts.failed(gone, 0.0) == 0.0
    with pytest.raises(MessagesGoneError):
        attempts.failed(gone, 0.0)
