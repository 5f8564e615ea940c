"""The treatment of free memory by the process: whether it goes back to the system.

Packs come and go by the hundred kilobytes. As it begins, the C library gives such blocks back to
the system at once, and the next one is new memory, page by page: that costs several times more than
all work on the pack. But glibc learns: from the largest block that was ever freed it takes how much
to keep (`mallopt(3)`, "dynamic mmap threshold"). So this module frees a large one.
"""

from __future__ import annotations

from functools import cache

LARGE_BYTES = 16 << 20
"""Up to twice as much free memory is kept. Blocks above 32 MiB would teach nothing."""


@cache
def keep_freed_memory() -> None:
    """Once for a process is enough. With another C library nothing is gained, and nothing lost."""
    bytes(LARGE_BYTES)  # never touched, so it costs no memory
