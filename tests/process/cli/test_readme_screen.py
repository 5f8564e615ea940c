"""The first screen of README.md works when it is pasted. (Installing it is left out here: it needs
a network. `python -m tests.paste_readme` does everything, on a clean clone.)"""

import sys
from pathlib import Path

import pytest

from tests.paste_readme import desk, watch_the_screen, with_path

pytestmark = pytest.mark.process


def test_the_first_screen_works_as_pasted(tmp_path: Path) -> None:
    with desk(tmp_path, with_path(Path(sys.executable).parent)) as mine:
        assert "in order" in watch_the_screen(mine)
