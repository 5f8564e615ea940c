"""Destinations and connection factories by name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.errors import ConfigurationError, InvalidDestinationError
from tests.api.support.fronts import PATIENCE_S

FILE = """
url = "embedded:naming"

[destinations]
alarms = "topic:Alarms"
work = "queue:work"

[factories.office]

[factories.tower]
url = "embedded:tower"
domain = "topic"
client_id = "porter"
connect_timeout = 1
send_timeout = 2.5
close_timeout = 3

[factories.workshop]
domain = "queue"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "antiphon.toml"
    path.write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTIPHON_URL", raising=False)
    return path


@pytest.mark.usefixtures("file")
def test_destinations_have_names() -> None:
    assert antiphon.lookup("alarms") == antiphon.Topic("Alarms")
    assert antiphon.lookup("work") == antiphon.Queue("work")


@pytest.mark.usefixtures("file")
def test_factories_have_names() -> None:
    assert type(antiphon.lookup("office")) is antiphon.ConnectionFactory
    assert type(antiphon.lookup("tower")) is antiphon.TopicConnectionFactory
    assert type(antiphon.lookup("workshop")) is antiphon.QueueConnectionFactory


@pytest.mark.usefixtures("file")
def test_a_factory_has_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(
        "antiphon.api.classic.sessions.connect", lambda url, **o: calls.append((url, o))
    )
    antiphon.lookup("tower").create_context()
    antiphon.lookup("office").create_context()
    (tower_url, tower), (office_url, office) = calls
    assert (tower_url, office_url) == ("embedded:tower", "embedded:naming")
    told = ("client_id", "connect_timeout", "send_timeout", "close_timeout")
    assert [tower[name] for name in told] == ["porter", 1, 2.5, 3]
    assert office.keys() == {"client_id", "session_mode"}


@pytest.mark.usefixtures("file")
def test_a_program_that_knows_only_names() -> None:
    with antiphon.lookup("office").create_connection() as connection:
        session = connection.create_session()
        work = antiphon.lookup("work")
        session.create_producer(work).send("Fire!")
        connection.start()
        assert session.create_consumer(work).receive(PATIENCE_S).text == "Fire!"


def test_the_file_may_be_anywhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = file.parent / "folder" / "names.toml"
    other.parent.mkdir()
    other.write_text('[destinations]\nalarms = "queue:other"\n')
    for path in (other, str(other)):
        assert antiphon.lookup("alarms", path) == antiphon.Queue("other")
    with pytest.raises(InvalidDestinationError, match=r"names\.toml"):
        antiphon.lookup("work", config=other)
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read"):
        antiphon.lookup("alarms", "nowhere.toml")


def test_a_factory_without_a_url_connects_as_connect_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tmp_path / "names.toml"
    names.write_text("[factories.office]\n")
    monkeypatch.setenv("ANTIPHON_URL", "embedded:environment")
    with antiphon.lookup("office", names).create_context() as context:
        context.create_producer().send(antiphon.Queue("q"), "Fire!")


def test_what_has_no_name_is_told_with_what_there_is(file: Path) -> None:
    with pytest.raises(InvalidDestinationError) as error:
        antiphon.lookup("alarm")
    for part in (str(file), "'alarm'", "alarms, work", "office, tower, workshop"):
        assert part in str(error.value)


def test_without_a_file_there_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidDestinationError, match="Destinations: none; factories: none"):
        antiphon.lookup("alarms")


@pytest.mark.usefixtures("file")
def test_a_context_looks_destinations_up() -> None:
    with antiphon.connect() as context:
        assert context.lookup("alarms") == antiphon.Topic("Alarms")
        with pytest.raises(InvalidDestinationError, match=r"antiphon.lookup\('tower'\)"):
            context.lookup("tower")
        with pytest.raises(InvalidDestinationError, match="only: alarms, work"):
            context.lookup("alarm")


@pytest.mark.usefixtures("file")
def test_a_context_of_asyncio_does_so_too() -> None:
    async def main() -> None:
        async with antiphon.aio.connect() as context:
            assert context.lookup("alarms") == antiphon.Topic("Alarms")

    asyncio.run(main())
