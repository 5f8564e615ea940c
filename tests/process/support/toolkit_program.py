"""A process of a toolkit that a test drives: orders come in by its standard input, one JSON object
a line, and what happens leaves by its standard output in the same form.

    python -m tests.process.support.toolkit_program
        '{"toolkit": "transis", "name": "a", "url": "peer:c", "trace": "/tmp/traces"}'
"""

import json
import sys
import threading
from typing import Any, Protocol

from antiphon.errors import JMSError
from antiphon.toolkits import isis, phoenix, transis
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
    def __init__(self, name: str, url: str, trace: str) -> None:
        self.box = transis.zzz_connect(name, url, trace=trace)
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
    def __init__(self, name: str, url: str, trace: str) -> None:
        super().__init__(name, url, trace=trace)

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


class Isis:
    """Its entry 1 says what comes, and replies; of entry 2 only the one named a replies."""

    def __init__(self, name: str, url: str, trace: str) -> None:
        self.isis = isis.isis_remote_init(url, name, site=f"site of {name}", trace=trace)
        self.isis.isis_entry(1, self.echo)
        self.isis.isis_entry(2, self.hear)
        self.isis.sv_monitor(lambda view, arg: say(sites=sorted(view.sites)))

    def echo(self, message: isis.Message) -> None:
        say(got=message.values[0], sender=message.sender)
        self.isis.reply(message, self.isis.name)

    def hear(self, message: isis.Message) -> None:
        say(asked=message.values[0])
        if self.isis.name == "a":
            self.isis.reply(message)

    def ask(self, order: dict[str, Any]) -> None:
        bcast = getattr(self.isis, order["bcast"])
        address = isis.Address(order["group"])
        replies = bcast(address, order["entry"], order["value"], nwanted=order["nwanted"])
        say(replied=sorted(reply.sender for reply in replies))

    def obey(self, order: dict[str, Any]) -> Any:
        match order:
            case {"join": group}:
                self.isis.pg_join(group, pg_monitor=lambda view, arg: say_view(view))
                return True
            case {"bcast": _, "nwanted": _}:
                threading.Thread(target=self.ask, args=(order,), daemon=True).start()
                return True
            case {"bcast": name, "values": list() as values, "group": group}:
                bcast = getattr(self.isis, name)
                for value in values:
                    bcast(isis.Address(group), 1, value)
                return len(values)
        raise AssertionError(order)

    def close(self) -> None:
        self.isis.close()


TOOLKITS: dict[str, type[Any]] = {"transis": Transis, "phoenix": Phoenix, "isis": Isis}


def main() -> None:
    options = json.loads(sys.argv[1])
    kind = TOOLKITS[options["toolkit"]]
    toolkit: Toolkit = kind(options["name"], options["url"], options["trace"])
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
