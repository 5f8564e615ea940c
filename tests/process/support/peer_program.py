"""A process of a channel that a test drives: orders come in by its standard input, one JSON object
a line, and what happens leaves by its standard output in the same form.

    python -m tests.process.support.peer_program '{"name": "a", "url": "peer:c"}'
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from antiphon import Message, ViewMessage, peers
from antiphon.errors import JMSError
from antiphon.peers.channel import driver, inbox, outbox
from antiphon.peers.stack import stacks

READS = threading.Event()
"""Cleared while the program receives nothing."""

ROWS: list[Any] = []
"""The bodies that it has received, or has taken over as a state."""


def say(**event: Any) -> None:
    # One `write`: a process that is killed leaves whole lines.
    os.write(1, json.dumps(event).encode() + b"\n")


def described(error: JMSError) -> dict[str, Any]:
    return {"error": type(error).__name__, "text": str(error), "happened": error.happened}


def channel_of(options: dict[str, Any]) -> peers.Channel:
    inbox.BEHIND_BYTES = options.get("behind_bytes", inbox.BEHIND_BYTES)
    outbox.ROOM_BYTES = options.get("room_bytes", outbox.ROOM_BYTES)
    driver.BEHIND_MS = options.get("behind_ms", driver.BEHIND_MS)
    make = getattr(stacks, options.get("stack", "total_uniform"))
    stack = make(primary_partition=options.get("primary_partition", False))
    tls = peers.Tls(*options["tls"]) if "tls" in options else None
    return peers.Channel(
        stack,
        name=options["name"],
        listen=options.get("listen"),
        tls=tls,
        plaintext=options.get("plaintext", False),
        state=lambda: state(options.get("padding_mb", 0)),
    )


def state(padding_mb: int) -> Iterator[bytes]:
    """Yield the rows, behind so much padding; say when all of it is known to the channel."""
    rows = json.dumps(ROWS).encode()
    for _ in range(padding_mb):
        yield b" " * (1 << 20)
    yield rows
    say(provided=len(ROWS))


def take_over(channel: peers.Channel) -> None:
    """Take over the rows of another one."""
    began = time.monotonic()
    stream = channel.get_state(30)
    if stream is not None:
        with stream:
            ROWS[:] = json.load(stream)
    say(took_over=None if stream is None else list(ROWS), seconds=time.monotonic() - began)


def receive(channel: peers.Channel) -> None:
    """Say what is received, until the channel ends."""
    try:
        while True:
            READS.wait()
            message = channel.receive()
            match message:
                case None:
                    break
                case ViewMessage(view=view, joined=joined, left=left):
                    say(
                        view=view.members,
                        leader=view.leader,
                        primary=view.primary,
                        joined=joined,
                        left=left,
                        together=message.together,
                    )
                case Message():
                    body = message.body
                    ROWS.append(body)
                    say(got=body if len(body) < 100 else len(body), sender=message.sender)
    except JMSError as error:
        say(lost=described(error))


def send_until_full(channel: peers.Channel, size: int, timeout: float) -> dict[str, Any]:
    """Send until there is no room, and return how that was said."""
    count = 0
    try:
        while True:
            channel.send("x" * size, timeout=timeout)
            count += 1
    except JMSError as error:
        return {"sent": count, **described(error)}


def obey(channel: peers.Channel, order: dict[str, Any]) -> Any:
    match order:
        case {"send": list() as bodies}:
            for body in bodies:
                channel.send(body, timeout=order.get("timeout"))
            return len(bodies)
        case {"fill": size}:
            return send_until_full(channel, size, order["timeout"])
        case {"status": _}:
            return channel.status()
        case {"rows": _}:
            return list(ROWS)
        case {"reads": reads}:
            (READS.set if reads else READS.clear)()
            return reads
        case {"close": _}:
            channel.close()
            return True
    raise AssertionError(order)


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.get("reads", True):
        READS.set()
    channel = channel_of(options)
    say(ready=os.getpid())
    if options.get("waits"):  # for a line: so that several can begin in the same moment
        sys.stdin.readline()
    began = time.monotonic()
    try:
        channel.connect(options["url"], timeout=options.get("timeout", 10.0))
    except JMSError as error:
        say(connected=False, seconds=time.monotonic() - began, **described(error))
        return
    say(connected=channel.view.members, seconds=time.monotonic() - began, address=channel.address)
    if options.get("takes_over"):
        take_over(channel)
    threading.Thread(target=receive, args=(channel,), daemon=True).start()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(answer=obey(channel, order))
        except JMSError as error:
            say(answer=described(error))
        if "close" in order:
            return


if __name__ == "__main__":
    main()
