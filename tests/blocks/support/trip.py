"""The programs of `examples/trip`, for tests."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[3] / "examples" / "trip"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"trip_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
