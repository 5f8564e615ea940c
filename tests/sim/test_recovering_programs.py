"""Programs that have messages come again, and nothing else comes that would wake them."""

from antiphon.sim.run import run_seed

EXPIRED = 930000034
"""A seed in which a program's last awaited message expires, and it recovers those before it."""


def test_who_recovers_messages_because_the_next_one_expired_handles_them() -> None:
    assert run_seed(EXPIRED).violation == ""
