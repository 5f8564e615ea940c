"""Several programs that do something in the same moments."""

import threading
from collections.abc import Callable


def at_once(rounds: int, *sends: Callable[[int], object]) -> None:
    """Have each of these called with the number of the round, all of a round together."""
    barrier = threading.Barrier(len(sends))

    def work(send: Callable[[int], object]) -> None:
        for i in range(rounds):
            barrier.wait()
            send(i)

    jobs = [threading.Thread(target=work, args=(send,)) for send in sends]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
