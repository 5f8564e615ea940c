"""`pytest tests/scenarios --rewrite` writes what happens into the files; then read the diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the traces that scenarios give now into their files",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    # When pytest starts elsewhere, this file is read too late to add an option.
    return bool(request.config.getoption("--rewrite", default=False))
