"""Replicated objects under the care of a replication manager, as Eternal and IRL had them in CORBA.

**What the originals promised.** An object that knows nothing of replication has members in several
places. A replication manager, itself replicated, creates and deletes these object groups by
policy, and adds and removes members at locations; after a crash it restores their number. Requests
of clients reach the group wherever its members are now, each has its effect once, and requests and
replies are logged. Who wants to know of faults subscribes. Eternal intercepts CORBA's calls beneath
the program, IRL above the ORB; both keep the replicas consistent by totally ordered multicast.

**What maps to what.** `ReplicationManager` is a replica of the manager: every program that uses it
has one. `Factory` is a location: a process that starts members, which are processes of their own
and call `serve`. A member is an object with `get_state` and `set_state` behind an
`IncomingRequestGateway` (IRL's IRGW), which logs requests; a client's `ObjectRequestGateway` (ORGW)
makes the group look like one object. `FaultNotifier` tells subscribers. Groups are
`antiphon.blocks.Replica`s, which order requests, filter those that come again and hand the state
to new members, active or passive (`Criteria`).

**What it promises.** As long as one replica of the manager lives, and one member of a group that
runs, every group has its minimum of members again soon after a crash of members, locations or
replicas of the manager, if there are locations for them; no effect is lost or doubled, and
subscribers get each fault once. Members of one group are at different locations; each is started
where starts have not failed and the fewest members are.

**What is different.** References are names of groups. The calls of the thesis' tables 2.6 and 2.7
have its arguments; `factory_creation_id` is the name of the group. `create_object` and
`create_member` return when the members run. A group whose members have all failed is lost, for its
state is in them alone: the manager reports it, and does not start over. A member whose process
stands still is replaced when its group has removed it, half a second after it was suspected.
"""

from antiphon._names import adopt
from antiphon.toolkits.eternal.factory import Factory
from antiphon.toolkits.eternal.members import Member, ObjectRequestGateway, serve
from antiphon.toolkits.eternal.pure.gateway import (
    Checkpointable,
    IncomingRequestGateway,
    Logged,
)
from antiphon.toolkits.eternal.pure.groups import Fault, ObjectGroup
from antiphon.toolkits.eternal.pure.policy import ACTIVE, PASSIVE, Criteria
from antiphon.toolkits.eternal.replication_manager import FaultNotifier, ReplicationManager

__all__ = [
    "ACTIVE",
    "LEFT_OUT",
    "PASSIVE",
    "Checkpointable",
    "Criteria",
    "Factory",
    "Fault",
    "FaultNotifier",
    "IncomingRequestGateway",
    "Logged",
    "Member",
    "ObjectGroup",
    "ObjectRequestGateway",
    "ReplicationManager",
    "serve",
]

LEFT_OUT = {
    "Interceptor": "programs call a gateway: nothing beneath them is captured or changed",
    "ObjectGroupHandler": "no object in between: the group's own order keeps its members the same",
    "Immune": "byzantine faults are outside of what the project considers",
}
"""Names of the originals that are not here, with the reason."""

adopt(__name__, __all__)
