"""The order in which a client tries the servers of its URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Address = TypeVar("Address")


class Rotation(Generic[Address]):
    """Some addresses, in turn, from a random one on, so that clients spread over the servers."""

    def __init__(
        self, addresses: Sequence[Address], shuffle: Callable[[list[Address]], None]
    ) -> None:
        self._addresses = list(addresses)
        shuffle(self._addresses)

    def next(self) -> Address:
        """Return the address to try next."""
        self._addresses.append(self._addresses.pop(0))
        return self._addresses[-1]
