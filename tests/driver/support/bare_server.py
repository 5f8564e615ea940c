"""A whole server, log and clients, on a port that does nothing by itself."""

from __future__ import annotations

from random import Random

from antiphon.broker.home.settings import HomeSettings
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.servers import REPLICATED
from antiphon.driver.assembly import open_log
from antiphon.driver.server import ServerDriver
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ReplicaId
from antiphon.formats.server_messages import Append, Appended, Envelope, Message, RequestVote, Vote
from antiphon.journal.segments import Record
from antiphon.log.settings import Settings
from tests.driver.support.bare_log import EPOCH, LEADER, ME, OTHER, Disk, Port, found

LIFE = 1 << 20


class Pipe:
    """A connection of a client."""

    name = "a client"
    waiting_bytes = 0

    def __init__(self, bare: BareServer) -> None:
        self.ended = False
        self.heard: list[cw.Answer] = []
        self.client = bare.driver.clients.connect(self)

    def send_body(self, *parts: bytes) -> None:
        self.heard.append(cw.decode_answer(b"".join(parts)))

    def attached(self, frame_max: int) -> None: ...
    def hold(self, hold: bool) -> None: ...
    def end(self, reason: str = "") -> None:
        self.ended = True
        self.client.closed()


class BareServer(Port):
    """One of three servers that were founded together; it is not started yet."""

    def __init__(
        self, contexts: str = REPLICATED, *records: Record, known_contexts: str = ""
    ) -> None:
        """`records`: in its journal, of its former life. `known_contexts`: those of its cluster,
        as its snapshot has them."""
        super().__init__(Disk(volatile=False))
        found(self.disk, *records)
        self.broker = Broker()
        self.broker.servers.restore_contexts(known_contexts)
        opened = open_log(
            ME.node,
            {1: "", 2: "", 3: ""},
            self.disk,
            self.broker,
            Settings(),
            self,
            lambda: ME.incarnation,
            Random(1),
        )
        self.node = opened.node
        self.driver = ServerDriver(opened, self.broker, self, self, LIFE, HomeSettings(), contexts)
        self.ends = 0  # reported

    def turn(self) -> None:
        self.driver.turn()

    # -- What a test does ----------------------------------------------------------------------

    def end(self) -> None:
        """End in order; `ends` counts when that is done."""
        self.driver.end(self._has_ended)
        self.settle()

    def _has_ended(self) -> None:
        self.ends += 1

    def hears(self, sender: ReplicaId, message: Message) -> None:
        self.driver.log.receive(Envelope(sender, ME, message))
        self.settle()

    def follow(self) -> None:
        """Hear that server 2 leads."""
        self.hears(LEADER, Append(EPOCH, 1, 1, (), 0, 1))

    def campaign(self) -> None:
        """Lead: nobody has been heard for long, and the others vote for this server."""
        self.time_ms += 60_000
        for _ in range(2):  # what has arrived is read first
            self.driver.log.tick()
        for pre in (True, False):
            self.settle()
            self.end_all_syncs()
            asked = [m for m in self.sent if isinstance(m, RequestVote) and m.pre is pre]
            self.hears(LEADER, Vote(asked[-1].epoch, granted=True, pre=pre))
        self.end_all_syncs()
        assert self.driver.log.leads

    def acknowledge(self, sender: ReplicaId) -> None:
        """This server has the whole log of the leader."""
        replica = self.node.replica
        last = replica.log.last
        self.hears(sender, Appended(replica.epoch, last, 1))
        self.end_all_syncs()

    def is_overtaken(self) -> None:
        """Another server leads."""
        self.hears(OTHER, RequestVote(self.node.replica.epoch + 1, 99, 99, pre=False, forced=True))

    # -- The desk (`driver/clients.py: Desk`) --------------------------------------------------

    def status(self) -> cw.Status:
        raise NotImplementedError("no test asks for it here")

    def address_of(self, node: int) -> str:
        return f"node-{node}"

    def check_address(self, text: str) -> None: ...


def started(contexts: str = REPLICATED, *records: Record) -> BareServer:
    """Return a server that takes part."""
    bare = BareServer(contexts, *records)
    bare.driver.start()
    bare.settle()
    bare.end_all_syncs()
    return bare
