"""Prints the output of commands, a line at a time: the only place that calls `print`.

Promise: a line stays one line, and text from outside (names, bodies, paths, errors of servers) can
do no more than be read: a character that would move a cursor, change a colour, end a line or turn
the direction of the text is shown as an escape. `terminal/screen.py` promises the same for tables
and progress bars.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

# Control characters but the tab; separators of lines; marks and overrides of the direction;
# characters without a width, but for joiners of letters; half characters, which cannot be encoded.
_HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def say(text: object, *, error: bool = False, flush: bool = False) -> None:
    """Print one line; `error`: to stderr."""
    print(harmless(str(text)), file=sys.stderr if error else sys.stdout, flush=flush)


def complain(text: object) -> None:
    """Print an error, which may have several lines, to stderr; the later ones are indented, so that
    none of them passes for another error."""
    for number, line in enumerate(str(text).split("\n")):
        say(f"    {line}" if number else line, error=True)


def say_json(
    value: object, *, default: Callable[[object], object] | None = None, flush: bool = False
) -> None:
    """Print an object on one line; `default` is that of `json.dumps`."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    print(_HARMFUL.sub(lambda found: _as_json(found[0]), text), flush=flush)


def harmless(text: str) -> str:
    return _HARMFUL.sub(lambda found: ascii(found[0])[1:-1], text)


def _as_json(character: str) -> str:
    # JSON leaves DEL as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
