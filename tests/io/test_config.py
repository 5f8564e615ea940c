"""Configuration files: what they say, what wins, and what is said about mistakes."""

import re
from functools import partial
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.io.config import ClientConfig, Limits, ServeOptions, client_config, serve_options

WHOLE = """
node = 2
listen = "0.0.0.0:7470"
data = "/var/lib/antiphon"
storage = "memory"
contexts = "replicated"
metrics = "127.0.0.1:9470"

[cluster]
1 = "10.0.0.1:7470"
2 = "[::1]:7471"

[limits]
retain = 500
uncommitted_max_bytes = 1_000_000
cache_max_bytes = 2_000_000
snapshot_every_bytes = 3_000_000
snapshot_every_entries = 4_000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.toml"


def test_a_file_says_everything(file: Path) -> None:
    file.write_text(WHOLE)
    options = serve_options({}, str(file))
    assert options.node == 2
    assert options.listen == ("0.0.0.0", 7470)
    assert options.data == "/var/lib/antiphon"
    assert options.storage == "memory"
    assert options.metrics == ("127.0.0.1", 9470)
    assert options.cluster == {1: ("10.0.0.1", 7470), 2: ("::1", 7471)}
    assert options.retain == 500
    settings = options.settings
    assert settings.volatile
    assert settings.uncommitted_max_bytes == 1_000_000
    assert settings.cache_max_bytes == 2_000_000
    assert settings.snapshot_every_bytes == 3_000_000
    assert settings.snapshot_every_entries == 4_000


def test_without_a_file_there_are_defaults() -> None:
    options = serve_options({})
    assert options.listen == ("127.0.0.1", 7470)
    assert options.data == "./antiphon-data"
    assert options.storage == "durable"
    assert not options.settings.volatile
    assert options.retain == 1_000_000
    assert serve_options({"storage": "memory"}).retain == 1_000


def test_nothing_but_what_subscriptions_need_may_be_kept(file: Path) -> None:
    file.write_text("[limits]\nretain = 0")
    assert serve_options({}, str(file)).retain == 0


def test_the_command_line_counts_more_than_the_file(file: Path) -> None:
    file.write_text(WHOLE)
    options = serve_options({"node": 1, "storage": "durable", "listen": ("b", 1)}, str(file))
    assert (options.node, options.storage, options.listen) == (1, "durable", ("b", 1))
    assert options.metrics == ("127.0.0.1", 9470)


def test_a_server_listens_where_the_cluster_says(file: Path) -> None:
    file.write_text('node = 2\n[cluster]\n1 = "a:1"\n2 = "b:2"\n')
    assert serve_options({}, str(file)).listen == ("b", 2)
    assert serve_options({"node": 1}, str(file)).listen == ("a", 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node =", "is not TOML: Invalid value"),
        ("liste = 'a:1'", "no key liste; did you mean listen? Allowed are node, listen, data"),
        ("hue = 'red'", "no key hue; Allowed are node, listen"),
        ("[limits]\nretian = 1", "no key limits.retian; did you mean limits.retain?"),
        ("[limits]\nretain = '1'", "limits.retain: expected a whole number, got a text in quotes"),
        ("[limits]\nretain = -1", "limits.retain: expected a whole number >= 0"),
        ("[limits]\ncache_max_bytes = 0", "limits.cache_max_bytes: expected a whole number >= 1"),
        ("limits = 3", "limits: expected a table, got a whole number"),
        ("node = true", "node: expected a whole number"),
        ("node = 0", "node: expected a whole number >= 1"),
        ("data = 1", "data: expected a text in quotes"),
        ("listen = '7470'", "listen: '7470' is not HOST:PORT"),
        ("metrics = 'here'", "metrics: 'here' is not HOST:PORT"),
        ("storage = 'tape'", "storage: no 'tape'; it is one of durable, memory"),
        ("contexts = 'global'", "contexts: no 'global'; it is one of replicated, local"),
        ("[cluster]\none = 'a:1'", "cluster.one: servers have numbers, from 1 on"),
        ("[cluster]\n1 = 'a'", "cluster.1: 'a' is not HOST:PORT"),
        ("[cluster]\n1 = 1", "expected a text in quotes, got a whole number"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        serve_options({}, str(file))
    assert complaint in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node = 1", "--node and --cluster go together"),
        ("[cluster]\n1 = 'a:1'", "--node and --cluster go together"),
        ("node = 3\n[cluster]\n1 = 'a:1'\n2 = 'a:2'", "lists no node 3, only 1, 2"),
        ("contexts = 'local'\nstorage = 'memory'", "needs storage = durable"),
    ],
)
def test_what_does_not_go_together_is_refused(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        serve_options({}, str(file))


def test_a_file_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        serve_options({}, str(file))
    file.write_bytes(b"data = '\xff'")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        serve_options({}, str(file))


# -- Programs --------------------------------------------------------------------------------------


def test_a_programs_file(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(
        'url = "antiphon://a:1,b:2"\n[destinations]\nalarms = "topic:Alarms"\nwork = "queue:w"\n'
    )
    config = client_config(tmp_path)
    assert config.url == "antiphon://a:1,b:2"
    assert config.destinations == {"alarms": "topic:Alarms", "work": "queue:w"}


def test_a_server_and_programs_may_have_one_file(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(
        'url = "antiphon://a:1"\nnode = 1\nlisten = "127.0.0.1:0"\nstorage = "memory"\n'
        '[cluster]\n1 = "a:1"\n[limits]\nretain = 5\n[destinations]\nalarms = "topic:Alarms"\n'
    )
    assert client_config(tmp_path) == ClientConfig("antiphon://a:1", {"alarms": "topic:Alarms"})
    assert (serve_options({}, str(path)).storage, serve_options({}, str(path)).retain) == (
        "memory",
        5,
    )
    path.write_text("stroage = 'memory'\n")  # neither knows this
    for read in (partial(client_config, tmp_path), partial(serve_options, {}, str(path))):
        with pytest.raises(ConfigurationError, match="no key stroage"):
            read()


def test_it_is_looked_for_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert client_config() == ClientConfig()
    (tmp_path / "antiphon.toml").write_text('url = "embedded:"')
    assert client_config().url == "embedded:"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("uri = 'embedded:'", "no key uri; did you mean url?"),
        ("url = 1", "url: expected a text in quotes"),
        ("[destinations]\nalarms = 'Alarms'", "destinations.alarms: 'Alarms' is not a destination"),
        ("[destinations]\nalarms = 7", "destinations.alarms: expected a text in quotes"),
        ("destinations = 7", "destinations: expected a table, got a whole number"),
        ("[factories]\noffice = 'x'", "factories.office: expected a table"),
        ("[factories.office]\nuri = 'x'", "no key factories.office.uri; did you mean"),
        ("[factories.office]\nurl = 1", "factories.office.url: expected a text in quotes"),
        ("[factories.office]\nsend_timeout = -1", "factories.office.send_timeout: expected"),
        ("[factories.office]\ndomain = 'x'", "factories.office.domain: no 'x'; it is one of topic"),
        (
            "[factories.office]\nuser = 'anna'",
            "factories.office.user: servers of this version keep",
        ),
        ("[factories.office]\npassword = ''", "factories.office.password: servers of this"),
        ("[factories.office]\ndomain = 1", "factories.office.domain: expected"),
        ("[destinations]\na = 'queue:a'\n[factories.a]", "factories.a: a destination has that"),
    ],
)
def test_mistakes_in_a_programs_file(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "antiphon.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        client_config(tmp_path)
    assert complaint in str(error.value)
    assert "antiphon.toml" in str(error.value)


# -- The documentation -----------------------------------------------------------------------------

OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"


def test_the_files_in_the_documentation_are_right(tmp_path: Path) -> None:
    server, client = re.findall(r"^```toml\n(.*?)^```$", OPERATIONS.read_text(), re.M | re.S)
    (tmp_path / "server.toml").write_text(server)
    assert len(serve_options({"node": 1}, str(tmp_path / "server.toml")).cluster or {}) == 3
    (tmp_path / "antiphon.toml").write_text(client)
    assert client_config(tmp_path).destinations


def test_the_documentation_has_every_key() -> None:
    told = re.findall(r"^\| `\[?([\w.]+)\]?` \|", OPERATIONS.read_text(), re.M)
    keys = {*ServeOptions.__struct_fields__} - {"limits", "json"}  # no file says how to print
    assert {*told} == keys | {f"limits.{name}" for name in Limits.__struct_fields__}
