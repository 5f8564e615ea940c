"""A process of a toolkit that a test drives: orders come in by its standard input, one JSON object
a line, and what happens leaves by its standard output in the same form.

    python -m tests.process.support.toolkit_program '{"toolkit": "transis", "name": "a", "url": ""}'
"""

import json
import sys
import threading
from typing import Any, Protocol

from antiphon.errors import JMSError
from antiphon.toolkits import phoenix, transis
from tests.process.support.peer_program import described, say


class Toolkit(Protocol):
    """One process of a toolkit."""

    def obey(self, order: dict[str, Any]) -> Any: ...
    def close(self) -> None: ...


def say_view(view: Any, key: str = "view") -> None:
    say(
        **{key: view.members},
        group=view.group,
        joined=view.joined,
        left=view.left,
        together=view.together,
        primary=view.primary,
    )


class Transis:
    def __init__(self, name: str, url: str) -> None:
        self.box = transis.zzz_connect(name, url)
        threading.Thread(target=self.receive, daemon=True).start()

    def receive(self) -> None:
        """Say what is received, until the mailbox is closed."""
        try:
            while (received := transis.zzz_receive(self.box))[0] is not None:
                kind, event = received
                if isinstance(event, transis.View):
                    say_view(event, "view" if kind == transis.REGULAR else "passing")
                elif event is not None:
                    say(got=event.body.decode(), sender=event.sender, service=kind)
        except JMSError as error:
            say(lost=described(error))

    def obey(self, order: dict[str, Any]) -> Any:
        match order:
            case {"join": group}:
                return transis.zzz_join(self.box, group)
            case {"leave": group}:
                return transis.zzz_leave(self.box, group)
            case {"send": list() as bodies, "to": targets, "service": service}:
                for body in bodies:
                    transis.zzz_send(self.box, service, body.encode(), targets)
                return len(bodies)
        raise AssertionError(order)

    def close(self) -> None:
        self.box.close()


class Phoenix(phoenix.Member):
    def view_change_delivery_cb(self, view: phoenix.View) -> None:
        say_view(view)

    def intermediate_view_delivery_cb(self, view: phoenix.View) -> None:
        say_view(view, "passing")

    def deliver(self, message: phoenix.Message) -> None:
        say(got=message.body.decode(), sender=message.sender, order=message.order.name)

    def obey(self, order: dict[str, Any]) -> Any:
        match order:
            case {"subscribe": "sink", "group": group}:
                return self.sink_subscribe(group)
            case {"subscribe": "client", "group": group}:
                return self.client_subscribe(group)
            case {"join": group}:
                return self.join(group)
            case {"multicast": list() as bodies, "order": name}:
                for body in bodies:
                    self.multicast(
                        body.encode(),
                        phoenix.Order[name],
                        order.get("group"),
                        order.get("timeout"),
                    )
                return len(bodies)
        raise AssertionError(order)


TOOLKITS: dict[str, type[Any]] = {"transis": Transis, "phoenix": Phoenix}


def main() -> None:
    options = json.loads(sys.argv[1])
    toolkit: Toolkit = TOOLKITS[options["toolkit"]](options["name"], options["url"])
    say(connected=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(answer=toolkit.close() if "close" in order else toolkit.obey(order))
        except JMSError as error:
            say(answer=described(error))
        if "close" in order:
            return


if __name__ == "__main__":
    main()
