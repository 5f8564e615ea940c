"""Blocks of memory that are freed and taken again, as packs are."""

import platform
import subprocess
import sys

import pytest

TAKE_AND_FREE = """
import resource
from antiphon.io.malloc import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free(times):
    before = faults()
    for _ in range(times):
        blocks = [bytes(range(256)) * 1024 for _ in range(12)]
        del blocks
    return faults() - before

keep_freed_memory()
take_and_free(2)  # what is needed is there now
print(take_and_free(50))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that learns")
def test_memory_that_is_free_again_is_not_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKE_AND_FREE], capture_output=True, text=True, check=True
    )
    # 50 times 12 blocks of 64 pages each: 38,400 faults otherwise, or some thousands at best.
    assert int(done.stdout) < 1000
