"""Runs tests and simulations with another source on the path, each in a fork of this process.

Most of a short run is loading what all of them need; here that is done once. Each line of the input
is a request, `{"source", "script", "arguments", "output"}` as JSON: `script` is a Python file, or
empty for pytest. The answer is a line with the exit code, when it is done.
"""

import json
import os
import runpy
import sys
from typing import Any

import crc32c  # noqa: F401
import hypothesis  # noqa: F401
import msgspec  # noqa: F401
import pytest
import uvloop  # noqa: F401


def main() -> None:
    assert "antiphon" not in sys.modules, "each run loads its own"
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(request: dict[str, Any]) -> int:
    """In the child."""
    redirect(request["output"])
    sys.path.insert(0, request["source"])
    os.environ["PYTHONPATH"] = request["source"]
    try:
        if not request["script"]:
            return int(pytest.main(request["arguments"]))
        sys.argv = [request["script"], *request["arguments"]]
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
    return 0


def redirect(output: str) -> None:
    target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, place in ((nothing, 0), (target, 1), (target, 2)):
        os.dup2(source, place)


if __name__ == "__main__":
    main()
