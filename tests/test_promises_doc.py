"""docs/PROMISES.md says what the code does, in its numbers, and no other page repeats them."""

import re
from pathlib import Path

import pytest

from antiphon.api.messages.sending import BODY_MAX
from antiphon.api.protocol.attaching import LEASE_MS
from antiphon.blocks.pure import calls
from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine import last_values, pending_packs, requests, transactions
from antiphon.broker.machine.consumers import opening
from antiphon.broker.machine.groups import membership
from antiphon.broker.machine.sessions import producers
from antiphon.model import destinations
from antiphon.peers.channel import driver
from antiphon.peers.layers import detector, state
from antiphon.peers.whiteboard import whiteboard

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/PROMISES.md").read_text(encoding="utf-8")
DAY_MS = 24 * 3600 * 1000

DETECTOR = detector.Detector().options()

TIMES = {
    "the *lease* of a session": f"{LEASE_MS // 1000} s",
    "a connection that is silent": f"after {3 * HomeSettings().heartbeat_ms // 1000} s",
    "a named producer's sequence": f"{producers.RETENTION_MS // DAY_MS} days",
    "a commit's token": (
        f"{transactions.TOKEN_RETENTION_MS // DAY_MS} days, the newest {pending_packs.TOKENS_MAX:,}"
    ),
    "messages that were staged": f"{transactions.STAGED_RETENTION_MS // DAY_MS} day",
    "a group that was named": f"{membership.KEPT_MS // 3_600_000} hour",
    "a member that is silent": (
        f"after {DETECTOR['floor_ms'] // 1000} to {DETECTOR['ceiling_ms'] // 1000} s"
    ),
    "a member whose connection was lost": f"after {detector.ANSWER_MS / 1000} s",
    "a program that takes nothing": f"after {driver.BEHIND_MS // 1000} s",
    "a member that hands out a state": f"after {state.PATIENCE_MS // 1000} s",
    "a value on the whiteboard": f"after {(whiteboard.WAIT_MS + 25) / 1000:.1f} s",
    "`close` waits": f"{driver.LEAVE_MS // 1000} s",
}

LIMITS = [
    f"{BODY_MAX >> 20} MiB a message; {opening.CONSUMERS_MAX:,} consumers",
    f"{requests.TEMPORARIES_MAX:,} temporary destinations",
    f"{requests.PRODUCERS_MAX:,} named producers",
    f"{destinations.NAME_MAX} characters a name",
    f"{pending_packs.PACKS_MAX:,} packs that are delayed",
    f"{last_values.TOPICS_MAX:,} last-value topics, {last_values.KEYS_MAX:,} keys",
    f"{last_values.KEY_MAX} characters a key",
    f"at most {membership.MEMBERS_MAX:,} members",
    f"the last {calls.REMEMBERED:,} calls",
]


@pytest.mark.parametrize("what", TIMES)
def test_the_times_are_those_of_the_code(what: str) -> None:
    (row,) = re.findall(rf"^\| {re.escape(what)}.*\| (.*) \|$", PAGE, re.M)
    assert row.startswith(TIMES[what])


@pytest.mark.parametrize("limit", LIMITS)
def test_the_limits_are_those_of_the_code(limit: str) -> None:
    assert limit in " ".join(PAGE.split())


REPEATED = re.compile(
    r"lease of 30 s|\b30 s\b|seven days|7 days of|64 MiB a message|ten deliveries"
)


def test_no_other_page_repeats_them() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = {
        f"{page.name}: {match}"
        for page in pages
        if page.name not in ("PROMISES.md", "PERFORMANCE.md")
        for match in REPEATED.findall(page.read_text(encoding="utf-8"))
    }
    assert found == set()
