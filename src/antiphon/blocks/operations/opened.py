"""Blocks that are opened once, used, and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from antiphon.blocks.operations.front import Front
from antiphon.blocks.pure.scripts import Script


class Opened(ABC):
    """A block that is opened once and closed; its front decides when, and how to wait for it."""

    _front: Front

    @abstractmethod
    def _opening(self) -> Script[None]: ...

    @abstractmethod
    def _closing(self) -> Script[None]: ...

    @abstractmethod
    def close(self) -> Any: ...  # no text: `help()` would show it in place of each block's own
