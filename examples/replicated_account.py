"""An account that survives its processes and places, under a replication manager as in Eternal.

`Account` knows nothing of replication. There is a factory at each of three places, which starts
members of the account as processes. The manager, of which every program here has a replica, creates
the account with two members; it puts one in the place of each that crashes. The client pays in, and
does not notice who answers.

    the account is at berlin and geneva
    paid in 10: 10
    berlin has crashed
    fault: location berlin
    the account is at geneva and oslo
    paid in 5: 15
    the log: add 10 -> 10, add 5 -> 15

Without an argument the processes find each other on this machine; with one, that is their URL.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from queue import Queue

import antiphon
from antiphon.toolkits import eternal

PLACES = ("berlin", "geneva", "oslo")
WAIT_S = 40.0


class Account:
    """A plain object, but for its state as bytes."""

    def __init__(self) -> None:
        self.money = 0

    def add(self, amount: int) -> int:
        self.money += amount
        return self.money

    def get_state(self) -> bytes:
        return json.dumps(self.money).encode()

    def set_state(self, state: bytes) -> None:
        self.money = json.loads(state)


def main(url: str = "peer:bank") -> None:
    with ExitStack() as stack:
        berlin = start_place(stack, url, "berlin")
        for place in ("geneva", "oslo"):  # here, to be done sooner
            stack.enter_context(factory_at(url, place))
        wait_until_ready(berlin)
        ctx = stack.enter_context(antiphon.connect(url))
        manager = stack.enter_context(eternal.ReplicationManager(ctx))
        faults: Queue[eternal.Fault] = Queue()
        eternal.FaultNotifier(manager).subscribe(faults.put)

        criteria = eternal.Criteria(eternal.ACTIVE, initial=2, minimum=2, locations=PLACES)
        group = manager.create_object("account", criteria, "savings", WAIT_S)
        print(f"the account is at {' and '.join(sorted(group.members.values()))}")
        client = stack.enter_context(eternal.ObjectRequestGateway(ctx, group))
        account = client.proxy(WAIT_S)
        print(f"paid in 10: {account.add(10)}")

        berlin.kill()
        print("berlin has crashed")
        fault = faults.get(timeout=WAIT_S)
        print(f"fault: {fault.kind} {fault.name}")
        now = manager.wait_until(lambda state: both(state.group("savings")), WAIT_S)
        print(f"the account is at {' and '.join(now)}")
        print(f"paid in 5: {account.add(5)}")
        log = [f"{r.operation} {r.arguments[0]} -> {r.reply}" for r in client.request_log()]
        print(f"the log: {', '.join(log)}")


def both(group: eternal.ObjectGroup) -> list[str]:
    """Return the places of two members, and nothing while there are fewer."""
    places = sorted(group.members.values())
    return places if len(places) == 2 else []


def start_place(stack: ExitStack, url: str, place: str) -> subprocess.Popen[str]:
    """Start a factory as a process of its own."""
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, __file__, "place", url, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    stack.callback(process.kill)
    return process


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def factory_at(url: str, place: str) -> eternal.Factory:
    return eternal.Factory(url, place, {"account": [sys.executable, __file__, "member"]})


def run_place(url: str, place: str) -> None:
    with factory_at(url, place) as factory:
        print("ready", flush=True)
        factory.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["place", url, place]:
            run_place(url, place)
        case ["member", order]:
            eternal.serve(Account, order)
        case arguments:
            main(*arguments)
