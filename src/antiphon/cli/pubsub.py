"""`antiphon pub` and `antiphon sub`: send and receive by hand, with the public API.

`sub` acknowledges a message only once it is written and flushed: a message that a broken pipe or
Ctrl-C kept from being seen is delivered again.
"""

from __future__ import annotations

import argparse
import base64
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import antiphon
from antiphon.api.messages.properties import DEAD_REASON
from antiphon.terminal.lines import say, say_json

ACKNOWLEDGE_EVERY = 256
"""Messages that are shown before they are acknowledged; without more to show, they are acknowledged
at once."""

IN_FLIGHT_MAX = 4096


# -- Publishing ------------------------------------------------------------------------------------


def publish(args: argparse.Namespace) -> int:
    """Send the messages; return 1 if not all of them were sent."""
    bodies = _lines() if args.body == "-" else [args.body]
    headers = {
        "properties": dict(args.properties),
        "priority": args.priority,
        "time_to_live": args.ttl,
        "delivery_delay": args.delay,
    }
    sent = _Sent()
    try:
        with antiphon.connect(args.url) as ctx:
            destination = antiphon.Destination.parse(args.destination)
            _send_all(ctx.create_producer(), destination, bodies, headers, sent)
    except antiphon.JMSError as error:
        _report(args, sent.count, str(error))
        raise
    except KeyboardInterrupt:
        _report(args, sent.count, "interrupted")
        return 1
    _report(args, sent.count)
    return 0


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.removesuffix(b"\n").decode()
        except UnicodeDecodeError:
            raise antiphon.FormatError(f"line {number} of the input is not UTF-8") from None


class _Sent:
    count = 0


def _send_all(
    producer: antiphon.Producer,
    destination: antiphon.Destination,
    bodies: Iterable[str],
    headers: dict[str, Any],
    sent: _Sent,
) -> None:
    """Send each line as it is read, for a person may be typing; answers come meanwhile."""
    waiting: deque[antiphon.SendFuture] = deque()
    try:
        for body in bodies:
            waiting.append(producer.send_async(destination, body, **headers))
            while waiting and (waiting[0].done() or len(waiting) > IN_FLIGHT_MAX):
                _settle(waiting, sent)
    finally:  # the messages sent before are counted, even after an error of the input
        while waiting:
            _settle(waiting, sent)


def _settle(waiting: deque[antiphon.SendFuture], sent: _Sent) -> None:
    waiting.popleft().result()
    sent.count += 1


def _report(args: argparse.Namespace, sent: int, error: str = "") -> None:
    if args.json:
        report = {"destination": args.destination, "sent": sent}
        say_json(report | {"error": error} if error else report)
    else:
        say(f"sent {sent} message{'' if sent == 1 else 's'} to {args.destination}")


# -- Subscribing -----------------------------------------------------------------------------------


def subscribe(args: argparse.Namespace) -> int:
    """Show messages; return 1 if `--count` of them were asked for and did not come in time."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with antiphon.connect(
            args.url, client_id=args.client_id, session_mode=antiphon.CLIENT_ACKNOWLEDGE
        ) as ctx:
            seen = _browse(ctx, args) if args.browse else _show_all(ctx, _open(ctx, args), args)
    except KeyboardInterrupt:
        return 0
    return 1 if args.count is not None and seen < args.count else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _open(ctx: antiphon.Context, args: argparse.Namespace) -> antiphon.Consumer:
    destination = antiphon.Destination.parse(args.destination)
    if args.durable is not None:
        assert isinstance(destination, antiphon.Topic)  # the command line has seen to it
        return ctx.create_durable_consumer(destination, args.durable, selector=args.selector)
    if args.shared is not None:
        assert isinstance(destination, antiphon.Topic)
        return ctx.create_shared_consumer(destination, args.shared, selector=args.selector)
    return ctx.create_consumer(destination, selector=args.selector)


def _browse(ctx: antiphon.Context, args: argparse.Namespace) -> int:
    queue = antiphon.Destination.parse(args.destination)
    assert isinstance(queue, antiphon.Queue)
    seen = 0
    for message in islice(ctx.create_browser(queue, args.selector), args.count):
        _show(message, args)
        seen += 1
    return seen


def _show_all(ctx: antiphon.Context, consumer: antiphon.Consumer, args: argparse.Namespace) -> int:
    """Show messages until there were `--count`, or none came for `--timeout`; return how many."""
    seen = 0
    while args.count is None or seen < args.count:
        message = consumer.receive_no_wait()
        if message is None:
            _acknowledge(ctx)
            message = consumer.receive(timeout=args.timeout)
        if message is None:
            break
        _show(message, args)
        seen += 1
        if seen % ACKNOWLEDGE_EVERY == 0:
            _acknowledge(ctx)
    _acknowledge(ctx)
    return seen


def _acknowledge(ctx: antiphon.Context) -> None:
    sys.stdout.flush()
    ctx.acknowledge()


def _show(message: antiphon.Message, args: argparse.Namespace) -> None:
    if args.json:
        say_json(_as_json(message), default=_plain)
    else:
        say(_as_text(message))


def _as_text(message: antiphon.Message) -> str:
    body = message.body if isinstance(message.body, str) else repr(message.body)
    properties = [f"{name}={value!r}" for name, value in message.properties.items()]
    again = ["(redelivered)"] if message.redelivered else []
    reason = message.get_string_property(DEAD_REASON)
    dead = [f"({message.destination}: {reason})"] if reason is not None else []
    return "  ".join([body, *properties, *again, *dead])


def _as_json(message: antiphon.Message) -> dict[str, object]:
    report = {
        "position": message.position,
        "id": message.id,
        "destination": str(message.destination),
        "timestamp": message.timestamp,
        "delivery_count": message.delivery_count,
        "properties": dict(message.properties),
        "body": message.body,
    }
    optional = {
        "correlation_id": message.correlation_id,
        "reply_to": str(message.reply_to) if message.reply_to is not None else None,
        "type": message.type,
        "dead_reason": message.get_string_property(DEAD_REASON),
    }
    report |= {name: value for name, value in optional.items() if value is not None}
    return report


def _plain(value: object) -> object:
    """Return a value that JSON can have, for bytes, dates and others."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return str(value)
