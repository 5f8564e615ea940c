"""A name service or a member of a group of GCom, as a process that a test drives: orders come in by
its standard input, one JSON object a line, and what happens leaves by its standard output.

    python -m tests.toolkits.gcom.program '{"name": "names", "address": "127.0.0.1:1078"}'
    python -m tests.toolkits.gcom.program '{"name": "a", "join": "127.0.0.1:1078"}'
"""

import json
import sys
from typing import Any

from antiphon.errors import JMSError
from antiphon.toolkits import gcom
from tests.process.support.peer_program import described, say


class App(gcom.Client):
    """Says what it is given."""

    def deliver(self, message: Any) -> None:
        say(got=message)


def serve(options: dict[str, Any]) -> None:
    with gcom.NameService(options["address"], options.get("save")) as names:
        say(address=names.address)
        sys.stdin.read()


def take_part(options: dict[str, Any]) -> None:
    settings = {key: options[key] for key in ("ordering", "multicast") if key in options}
    try:
        member = gcom.Management(
            App(), options["join"], "chat", name=options["name"], timeout=20.0, **settings
        )
    except JMSError as error:
        say(joined=False, **described(error))
        return
    say(joined=True, address=member.address)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(answer=obey(member, order))
        except JMSError as error:
            say(answer=described(error))
        if "close" in order:
            return


def obey(member: gcom.Management, order: dict[str, Any]) -> Any:
    match order:
        case {"send": list() as bodies}:
            for body in bodies:
                member.send(body)
            return len(bodies)
        case {"view": _}:
            view = member.view
            return {"members": sorted(view.members), "leader": view.leader}
        case {"settings": _}:
            return [member.ordering, member.multicast]
        case {"close": _}:
            member.close()
            return True
    raise AssertionError(order)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    (serve if "address" in options else take_part)(options)
