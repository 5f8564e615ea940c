"""JGroups' XML configurations."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat

from antiphon.errors import ConfigurationError
from antiphon.toolkits.jgroups.protocols import Protocol

STOCK = Path(__file__).parent / "stock"
"""JGroups' own configurations: its protocols, and their settings that matter."""
FILE_MAX = 1 << 20
"""Limit of the bytes of a configuration."""

_VARIABLE = re.compile(r"\$\{([^}:]*)(?::([^}]*))?\}")


def read_file(path: str | os.PathLike[str]) -> list[Protocol]:
    """Return the protocols of a file; `udp.xml` and `tcp.xml` are there without one. Raise
    `ConfigurationError` if there is no such file, or it is no configuration."""
    found, stock = Path(path), STOCK / Path(path).name
    if not found.exists() and os.fspath(path) == stock.name and stock.exists():
        found = stock
    try:
        with found.open("rb") as file:
            data = file.read(FILE_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{os.fspath(path)!r}: {error.strerror}") from None
    if len(data) > FILE_MAX:
        raise ConfigurationError(f"{os.fspath(path)!r}: more than {FILE_MAX} bytes")
    try:
        return read_xml(data)
    except ConfigurationError as error:
        raise ConfigurationError(f"{os.fspath(path)!r}: {error}") from None


def read_xml(data: bytes) -> list[Protocol]:
    """Return the protocols of a configuration: the elements below its root. Nothing outside of the
    text is read, and entities are refused. Raise `ConfigurationError`."""
    reading = _Reading()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reading.begin
    parser.EndElementHandler = reading.end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ConfigurationError(f"it is not XML: {error}") from None
    return reading.protocols


class _Reading:
    def __init__(self) -> None:
        self.protocols: list[Protocol] = []
        self._depth = 0

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and name != "config":
            raise ConfigurationError(f"its root is <config>, not <{name}>")
        if self._depth > 1:
            raise ConfigurationError(f"a protocol has attributes alone, and no <{name}>")
        if self._depth == 1:
            given = {key: substituted(text) for key, text in attributes.items()}
            self.protocols.append(Protocol(name, given))
        self._depth += 1

    def end(self, name: str) -> None:
        self._depth -= 1


def _refuse_doctype(*declared: object) -> None:
    raise ConfigurationError("a configuration has no DOCTYPE, and no entities")


def substituted(text: str) -> str:
    """Return a text with `${name,other:default}` replaced: by the first environment variable of
    these names, or the default."""
    return _VARIABLE.sub(_value, text)


def _value(match: re.Match[str]) -> str:
    names: Sequence[str] = [name.strip() for name in match[1].split(",")]
    value = next((os.environ[name] for name in names if name in os.environ), match[2])
    if value is None:
        raise ConfigurationError(
            f"{match[0]} has no default: set an environment variable {names[0]}"
        )
    return value
