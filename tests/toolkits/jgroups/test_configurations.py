"""Configurations of JGroups become stacks, or errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon import peers
from antiphon.errors import ConfigurationError
from antiphon.toolkits.jgroups import JChannel, Protocol
from antiphon.toolkits.jgroups.files import read_file, read_xml
from antiphon.toolkits.jgroups.protocols import FAMILIES, configured

TEXTBOOK = ["UDP", "FRAG", "MERGE", "GMS", "CAUSAL"]


def layers(stack: peers.Stack) -> list[str]:
    return [layer.name for layer in stack.layers]


def options(stack: peers.Stack, name: str) -> dict[str, object]:
    return next(dict(layer.options()) for layer in stack.layers if layer.name == name)


def test_the_textbook_s_stack() -> None:
    stack = JChannel(TEXTBOOK).stack
    assert layers(stack) == [
        *("detour", "fragment", "reliable", "flow", "detector", "membership", "causal", "state")
    ]
    assert options(stack, "membership")["lead"] == "oldest"


@pytest.mark.parametrize("file", ["udp.xml", "tcp.xml"])
def test_the_stock_configurations(file: str) -> None:
    channel = JChannel(file)
    assert options(channel.stack, "flow") == {"window": 4_000_000}
    assert options(channel.stack, "fragment") == {"size": 60_000}
    assert options(channel.stack, "detector")["ceiling_ms"] == 40_000
    assert {"causal", "total", "uniform"}.isdisjoint(layers(channel.stack))
    assert ("safe" in layers(channel.stack)) == (file == "udp.xml")
    assert {"RED", "NAKACK2.xmit_interval", "GMS.join_timeout"} <= set(channel.ignored)
    assert {"FD_ALL3.timeout", "UFC.max_credits", "MERGE3"}.isdisjoint(channel.ignored)


def test_where_members_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(read_file("udp.xml")).cluster == "peer:{}"
    assert configured(read_file("tcp.xml")).cluster == "peer://localhost:7800,localhost:7801/{}"
    monkeypatch.setenv("jgroups.tcpping.initial_hosts", "one[1], two[2]")
    assert configured(read_file("tcp.xml")).cluster == "peer://one:1,two:2/{}"
    folder = configured([("TCP", {"bind_addr": "10.0.0.7"}), ("FILE_PING", {"location": "/run/x"})])
    assert (folder.cluster, folder.listen) == ("peer:file//run/x/{}", "10.0.0.7:0")
    dns = configured([("TCP", {"bind_port": "7"}), ("dns.DNS_PING", {"dns_query": "app"})])
    assert (dns.cluster, dns.ignored) == ("peer:dns/app:7/{}", ())
    words = configured([("TCP", {"bind_addr": "SITE_LOCAL"})])
    assert (words.listen, words.ignored) == (None, ("TCP.bind_addr",))


def test_total_order_has_causes_and_a_leader() -> None:
    stack = JChannel(["TCP", "SEQUENCER"]).stack
    assert layers(stack)[-3:] == ["causal", "total", "state"]


def test_settings_reach_their_layers() -> None:
    stack = configured(
        [
            Protocol("UDP"),
            Protocol("FRAG", {"frag_size": "8192"}),
            Protocol("MFC", {"max_credits": "2M"}),
            Protocol("UFC", {"max_credits": "1MiB"}),
            Protocol("FD", {"timeout": "3s", "max_tries": "3"}),
        ]
    ).stack
    assert options(stack, "fragment") == {"size": 8192}
    assert options(stack, "flow") == {"window": 1 << 20}
    assert options(stack, "detector")["floor_ms"] == 9000


def test_every_protocol_that_is_named_is_known() -> None:
    needed = {"TCPPING": {"initial_hosts": "a[1]"}, "FILE_PING": {"location": "x"}}
    needed["DNS_PING"] = {"dns_query": "x"}
    for names in FAMILIES.values():
        for name in names:
            assert configured(["UDP", (name, needed.get(name, {}))]).stack


def test_a_stack_of_peers_is_taken_as_it_is() -> None:
    assert JChannel(peers.TOTAL_UNIFORM).stack is peers.TOTAL_UNIFORM


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["UDP", "NAKAK2"], "no protocol 'NAKAK2' here; there are BARRIER, BPING, CAUSAL"),
        (["GMS"], "begins with a transport: UDP, TCP"),
        (["TCP", "SYM_ENCRYPT"], "SYM_ENCRYPT is not here: give the channel tls="),
        (["TCP", "TCPPING"], "TCPPING needs initial_hosts"),
        (["TCP", ("TCPPING", {"initial_hosts": "a:1"})], r"HOST\[PORT\],HOST\[PORT\], not 'a:1'"),
        (["TCP", ("FRAG", {"frag_size": "0"})], "FRAG.frag_size is a number above 0, not '0'"),
        (["TCP", ("MFC", {"max_credits": "4 apples"})], "not '4 apples'"),
        ("nowhere.xml", "'nowhere.xml': No such file"),
    ],
)
def test_what_makes_no_sense(wrong: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        JChannel(wrong)  # type: ignore[arg-type]


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    file = tmp_path / "own.xml"
    file.write_text(
        '<?xml version="1.0"?><!-- ours --><config xmlns="urn:org:jgroups">'
        '<UDP/><pbcast.GMS join_timeout="${a.b:1}"/><SEQUENCER/></config>'
    )
    assert read_file(file)[1] == ("pbcast.GMS", {"join_timeout": "1"})
    assert "total" in JChannel(file).stack.gives


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<!DOCTYPE config [<!ENTITY e "x">]><config><UDP a="&e;"/></config>', "no DOCTYPE"),
        ('<!DOCTYPE config SYSTEM "file:///etc/passwd"><config/>', "no DOCTYPE"),
        ("<config><UDP></config>", "not XML"),
        ('<config><UDP a="${no.such.variable}"/></config>', "no default"),
        ("<stacks/>", "root is <config>"),
        ("<config><FORK><fork-stacks/></FORK></config>", "no <fork-stacks>"),
    ],
)
def test_xml_that_is_no_configuration(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_xml(text.encode())
