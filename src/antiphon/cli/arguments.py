"""Kinds of arguments of the commands: each takes the text that was typed and returns its value, or
raises `ArgumentTypeError` with a sentence.
"""

from __future__ import annotations

import argparse
import json
import os

from antiphon.errors import FormatError, InvalidDestinationError

Address = tuple[str, int]

MOST = 1_000_000_000
"""The largest number, also of seconds: more is a slip, and not every format has room for it."""

SERVERS_MAX = 25
"""Limit of `cluster up`: each server is a process, and all answer a leader. Many more than a test
needs."""


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, from 0 to {MOST}")
    return value


def duration(text: str) -> float:
    """Return a duration, in the unit of its option."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to {MOST}")
    return value


def positive(text: str) -> int:
    if not (text.isdecimal() and len(text) < 20 and 0 < int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to {MOST}")
    return int(text)


def servers(text: str) -> int:
    """Return how many servers to start on this machine."""
    if positive(text) > SERVERS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} are too many servers for one machine: at most {SERVERS_MAX}"
        )
    return positive(text)


def path(text: str) -> str:
    """Return the path; an empty one, as of a variable that is not set, would be the current
    folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path names nothing; the current folder is .")
    return text


def words(text: str) -> str:
    """Return the text, which a server must be able to read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def priority(text: str) -> int:
    if text not in tuple("0123456789"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a priority from 0 to 9")
    return int(text)


def destination(text: str) -> str:
    from antiphon.model import destinations

    try:
        destinations.parse(text)
    except InvalidDestinationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def named_value(text: str) -> tuple[str, object]:
    """Return name and value of `floor=4`, `urgent=true`, `name=north wing` or `digits="4"`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    return name, read if isinstance(read, bool | int | float | str) else value


def url(text: str) -> str:
    """Return the URL; `-` takes it from the environment."""
    if text != "-":
        return text
    try:
        return os.environ["ANTIPHON_URL"]
    except KeyError:
        raise argparse.ArgumentTypeError("- needs ANTIPHON_URL to be set") from None


def address(text: str) -> Address:
    """Return the address in `127.0.0.1:7470`, `localhost:0` or `[::1]:7470`."""
    from antiphon.io.transport import parse_address

    try:
        return parse_address(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def node_address(text: str) -> tuple[int, Address]:
    """Return node and address of `4=127.0.0.1:7474`."""
    node, equals, where = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NODE=HOST:PORT")
    return positive(node), address(where)


def cluster(text: str) -> dict[int, Address]:
    """Return the addresses in `1=127.0.0.1:7471,2=127.0.0.1:7472`, by node."""
    listed = [node_address(part) for part in text.split(",")]
    if len(dict(listed)) < len(listed):
        raise argparse.ArgumentTypeError(f"{text!r} lists a node twice")
    return dict(listed)
