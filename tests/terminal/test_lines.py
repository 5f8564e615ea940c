"""Text from outside is shown, and does nothing. (In every command: test_hostile_text.py.)"""

import json
import logging
from collections.abc import Callable

import pytest

from antiphon.cli.serve import _Lines
from antiphon.terminal.lines import complain, harmless, say, say_json
from antiphon.terminal.screen import Columns, Group, Progress, Screen, Table, live, styled, track

MARKUP = "x[/y] [red]a[/red] :warning: [link=http://a]b"
DRIVES = "\x1b[31m \x9b2J \x07 \r \u202e \u2028 \ufeff \nforged"
SHOWN = r"\x1b[31m \x9b2J \x07 \r \u202e \u2028 \ufeff \nforged"


def in_a_table(screen: Screen, text: str) -> None:
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    screen.print(table)


def replaced(screen: Screen, text: str) -> None:
    with live(screen) as shown:
        shown.update(text)


WAYS: dict[str, Callable[[Screen, str], object]] = {
    "a line": lambda screen, text: screen.print(text),
    "a style": lambda screen, text: screen.print(styled(text, "bold red")),
    "a table": in_a_table,
    "a group": lambda screen, text: screen.print(Group(text, text)),
    "columns": lambda screen, text: screen.print(Columns([text])),
    "what is replaced": replaced,
}


@pytest.mark.parametrize("way", WAYS)
def test_on_the_screen(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    WAYS[way](Screen(), MARKUP)
    WAYS[way](Screen(), DRIVES)
    out = capsys.readouterr().out
    assert MARKUP in out
    assert SHOWN in out
    assert not any(line.startswith("forged") for line in out.splitlines())


def test_beside_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(transient=False) as progress:
        progress.add_task(MARKUP, total=1)
        progress.add_task(DRIVES, total=1)
    assert list(track([1, 2], MARKUP)) == [1, 2]
    out = capsys.readouterr().err
    assert out.count(MARKUP) == 2
    assert SHOWN in out


def test_while_something_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with Screen(stderr=True).doing(MARKUP):
        pass
    with Screen(stderr=True).doing("") as doing:
        doing(DRIVES)
    out = capsys.readouterr().err
    assert MARKUP in out
    assert SHOWN in out
    assert "\x1b[31m" not in out


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(MARKUP)
    say(f"a\tb{DRIVES}")
    assert capsys.readouterr().out == f"{MARKUP}\na\tb{SHOWN}\n"


def test_later_lines_of_an_error_pass_for_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    complain("an error:\nantiphon: another\x1b")
    assert capsys.readouterr().err == "an error:\n    antiphon: another\\x1b\n"


def test_an_object_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(map(chr, range(0x300))) + "\u202e\ufeff\ud800\U000e0041é😀"
    say_json({"text": text, "kind": str}, default=repr)
    out = capsys.readouterr().out
    assert harmless(out.removesuffix("\n")) + "\n" == out
    assert json.loads(out) == {"text": text, "kind": repr(str)}
    assert "é😀" in out


def test_what_is_harmless_stays() -> None:
    # Letters of many scripts, what joins some of them, and combined pictures.
    for text in ("Zoë", "中文", "क्\u200dष", "👩\u200d💻", "a\\nb", "100 %"):
        assert harmless(text) == text


def test_the_log_of_a_server() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 1, "client %s", (DRIVES,), None)
    assert _Lines("%(levelname)s: %(message)s").format(record) == f"INFO: client {SHOWN}"


def test_reports() -> None:
    pytest.importorskip("pyspark")
    from antiphon.reports.charts import Line, Mark, line_chart
    from antiphon.reports.html import Report

    hostile = f"</title><script>alert(1)</script>\"'&{DRIVES}"
    report = Report(hostile)
    report.heading(hostile)
    report.text(f"`{hostile}` {hostile}")
    report.table([hostile], [[hostile]])
    lines = [Line(hostile, [(0.0, 1.0)])]
    report.chart(line_chart(hostile, hostile, hostile, lines, [Mark(0.0, hostile)]))
    html = report.html()
    assert "<script>" not in html
    assert harmless(html.replace("\n", "")) == html.replace("\n", "")
    assert html.count("&lt;script&gt;alert(1)") == 14
