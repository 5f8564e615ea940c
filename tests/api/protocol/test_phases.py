"""Every phase of a conversation with everything that can happen to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from antiphon.api.protocol.attaching import ATTACH_MS, DIAL_MS, HEARTBEATS, LEASE_MS, NOT_LET_IN
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.phases import TRANSITIONS, Cause, Phase, next_phase
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats import protocol as cw
from tests.api.protocol.test_conversation import HEARTBEAT_MS, SESSION, Talk, a_pack

PAUSING, DIALLING, ATTACHING, ATTACHED, OVER = Phase


def in_phase(phase: Phase) -> Talk:
    """Return a conversation that has come to this phase and has a consumer, a request, and a
    message under way if it ever can."""
    talk = Talk()
    if phase is DIALLING:
        talk.step()
    elif phase is ATTACHING:
        talk.dial()
    elif phase is ATTACHED:
        talk.attach()
        talk.open_consumer()
    elif phase is OVER:
        talk.c.abandon()
    if phase is not OVER:
        talk.send("x")
        talk.c.request(cw.CreateTemporary("temp-queue:x"))
    if phase is ATTACHED:
        talk.step()
    assert phase_of(talk.c) is phase
    return talk


def phase_of(conversation: Conversation) -> Phase:
    return conversation._way.phase


ATTACHED_ANSWER = cw.Attached(SESSION, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX)
ANSWERS: dict[str, cw.Answer] = {
    "attached": ATTACHED_ANSWER,
    "attached to another session": cw.Attached(SESSION + 1, 1, (), (), HEARTBEAT_MS, cw.PACK_MAX),
    "published": cw.Published(0, 1),
    "published too much": cw.Published(0, 99),
    "not published": cw.NotPublished(0, 1, 1, "InvalidDestinationError", "no"),
    "result": cw.Result(2),
    "result of nothing": cw.Result(77),
    "acked": cw.Acked(0),
    "acked too much": cw.Acked(9),
    "deliver": cw.Deliver(1, 1, 0, 1, a_pack("topic:a", "x")),
    "deliver nowhere": cw.Deliver(1, 0, 0, 1, a_pack("topic:a", "x")),
    "browsed": cw.Browsed(1),
    "consumer ended": cw.ConsumerEnded(1, "IllegalStateError", "too slow"),
    "pong": cw.Pong(),
    "ended": cw.Ended("IllegalStateError", "ended"),
    "redirect": cw.Redirect(2, "b:2"),
    "refused": cw.Refused("it makes no sense"),
}


def waits(ms: int) -> Callable[[Talk], object]:
    return lambda talk: talk.step(ms)


def answers(answer: cw.Answer) -> Callable[[Talk], object]:
    return lambda talk: talk.answer(answer)


INPUTS: dict[str, Callable[[Talk], object]] = {
    "connected": lambda talk: talk.c.connected(talk.now),
    "lost": lambda talk: talk.lose(),
    "fail": lambda talk: talk.c.fail(IllegalStateError("hopeless")),
    "dials": lambda talk: talk.c.dials("a:1"),
    "abandon": lambda talk: talk.c.abandon(),
    "nothing": waits(0),
    "a short while": waits(100),
    "the server's time": waits(max(DIAL_MS, ATTACH_MS, HEARTBEATS * HEARTBEAT_MS)),
    "the lease": waits(LEASE_MS + 1),
    "a part": lambda talk: talk.c.part_came(talk.now),
    "garbage": lambda talk: (talk.c.received(b"\xff\xff", talk.now), talk.step()),
    "close": lambda talk: talk.c.request(cw.CloseSession()),
    "request": lambda talk: talk.c.request(cw.CreateTemporary("temp-queue:y")),
    "acknowledge": lambda talk: talk.c.acknowledge(()),
    "send": lambda talk: talk.send("y"),
    **{f"answer: {name}": answers(answer) for name, answer in ANSWERS.items()},
}

NEVER_OVER = {"close", "request", "acknowledge", "send"}
"""What an application cannot ask for when the session is over."""

ENDS = {
    (DIALLING, "fail"): OVER,
    (ATTACHING, "answer: ended"): OVER,
    (ATTACHING, "answer: refused"): OVER,
    (ATTACHED, "answer: ended"): OVER,
    (ATTACHED, "answer: refused"): OVER,
    (PAUSING, "nothing"): DIALLING,
    (PAUSING, "a short while"): DIALLING,
    (PAUSING, "the server's time"): DIALLING,
    (DIALLING, "connected"): ATTACHING,
    (DIALLING, "lost"): PAUSING,
    (DIALLING, "the server's time"): PAUSING,
    (ATTACHING, "lost"): PAUSING,
    (ATTACHING, "the server's time"): PAUSING,
    (ATTACHING, "garbage"): PAUSING,
    (ATTACHING, "answer: attached"): ATTACHED,
    (ATTACHED, "lost"): PAUSING,
    (ATTACHED, "the server's time"): PAUSING,
    (ATTACHED, "garbage"): PAUSING,
    (ATTACHED, "answer: attached"): PAUSING,
    (ATTACHED, "answer: attached to another session"): PAUSING,
    (ATTACHED, "answer: published too much"): PAUSING,
    (ATTACHED, "answer: result of nothing"): PAUSING,
    (ATTACHED, "answer: acked too much"): PAUSING,
    (ATTACHED, "answer: deliver nowhere"): PAUSING,
    (ATTACHED, "answer: redirect"): PAUSING,
    (ATTACHED, "the lease"): PAUSING,
    (PAUSING, "the lease"): OVER,
    (DIALLING, "the lease"): OVER,
    (ATTACHING, "the lease"): OVER,
}
"""The phase afterwards, where no rule of `expected` says it."""


def expected(phase: Phase, name: str) -> Phase:
    if (phase, name) in ENDS:
        return ENDS[phase, name]
    if name == "abandon":
        return OVER
    if phase is ATTACHING and name.startswith("answer: "):
        return PAUSING
    if phase is PAUSING and (name.startswith("answer: ") or name in ("lost", "garbage")):
        return DIALLING  # it is not heard; and time has come to dial
    return phase


@pytest.mark.parametrize(("phase", "name"), [*product(Phase, INPUTS)], ids=str)
def test_every_phase_with_every_input(phase: Phase, name: str) -> None:
    talk = in_phase(phase)
    if phase is OVER and name in NEVER_OVER:
        with pytest.raises(JMSError):
            INPUTS[name](talk)
    else:
        INPUTS[name](talk)
    after = phase_of(talk.c)
    assert after is expected(phase, name), after
    assert after is phase or any(
        to is after for (begin, _), to in TRANSITIONS.items() if begin is phase
    )
    if after is OVER:
        assert talk.c.next_deadline_ms() is None
        assert talk.c.idle


def test_what_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(AssertionError, match="a conversation that is over has no CONNECTED"):
        next_phase(OVER, Cause.CONNECTED)


def test_a_server_that_ends_the_connection_lets_nobody_in() -> None:
    talk = in_phase(ATTACHING)
    talk.lose()
    talk.step(LEASE_MS)
    assert NOT_LET_IN in str(talk.c.ready.error)
