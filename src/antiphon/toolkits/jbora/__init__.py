"""JBora: group communication for replicated servers whose clients are not members (University of
Trieste, project ADAPT, 2003).

    grp = jbora.Group("peer:shop", name="a")
    grp.join()
    while (event := grp.receive()) is not None:
        match event:
            case jbora.ViewChange(view) if view.expanded:
                table, events = grp.propagate(state())
            case jbora.LocalCall(body):
                grp.local_respond(event, serve(body))
            case jbora.Message(body):
                apply(body)

**Promised by JBora, and here**: one loop receives messages, views and calls of the process's own
threads. Messages are delivered uniformly in one total order, with *prefix delivery* (its section
3.5): whoever leaves the primary view has been given a prefix of what the others are given in it.
Each view says whether it is primary; transitional views are hidden. A whiteboard of integers
travels with what is sent anyway. `propagate` exchanges small states when a view has new members.
Clients talk to any one server, and may submit a request again elsewhere.

**Mapping**: a group is an `antiphon.peers.Channel` with the stack `total_uniform(whiteboard=True)`;
the thread of the JBora that received from Spread is one that receives from the channel. What JBora
said of replicated requests is `Answers`: a table that the servers keep with their state.

**Other than in JBora**: of the views at a time at most one is primary, where JBora had others that
were marked so and soon disappeared; views that are not primary deliver messages, too. Primary is a
view with a quorum of the primary one before, not with a majority of a fixed list. `propagate` takes
a function as well, for states that messages change. Adaptive packing is always on.

**Left out**: nothing of its text. Two of its names are spellings of others (`mCast`, `Write`).
"""

from antiphon import Message
from antiphon._names import adopt
from antiphon.toolkits.jbora.group import Event, Group, Whiteboard
from antiphon.toolkits.jbora.pure.answers import Answers
from antiphon.toolkits.jbora.pure.events import LocalCall, View, ViewChange

__all__ = ["Answers", "Event", "Group", "LocalCall", "Message", "View", "ViewChange", "Whiteboard"]

adopt(__name__, __all__)
