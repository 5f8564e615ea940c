"""Starts Spark, on this machine by default and on any master that is named.

Promise: the settings that our sources, state stores and reports rely on are the same wherever a
pipeline runs. A missing extra or Java is an error that says what to install.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.errors import ConfigurationError, ResourceAllocationError
from antiphon.spark import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL = "local[*]"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without it Spark refuses a source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Stateful Python queries need this store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_LOCAL_SETTINGS = {
    # A laptop's name may have no address, or one in a network that others share.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start(
    what: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session with the settings that our sources, state stores and reports need.

    `what` is the name of the command or program that needs it, for Spark and for error texts.
    `master` is a master as Spark names it, all cores of this machine by default. `settings` are
    Spark's own; they take precedence over ours. Raise `ResourceAllocationError`, with what to
    install, if Spark or a Java that it can use is missing. As Spark has one session a process, a
    second call returns the existing one.
    """
    require(what)
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java.choose().home)
    # The workers must run the Python, and the packages, of this program.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or LOCAL
    chosen = {**_SETTINGS, **(_LOCAL_SETTINGS if master.startswith("local") else {})}
    chosen["spark.driver.extraJavaOptions"] = _quoted(
        f"-Dlog4j2.configurationFile={_log_settings()}"
    )
    builder = SparkSession.builder.master(master).appName(what)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def parquet(spark: SparkSession, path: str | Path) -> DataFrame:
    """Return the rows of a Parquet file, or of all files of a folder.

    Names may have any characters, even those that Spark would take for patterns. Raise
    `ConfigurationError` if the name is one that Spark cannot open.
    """
    check_readable(Path(path))
    return spark.read.option(_PATTERNS, "false").parquet(str(Path(path).absolute()))


_PATTERNS = "__globPaths__"
"""Spark's own name of its option for patterns in paths. Escaping characters is not enough: where
there is a pattern, Hadoop fails at a colon."""


def check_readable(path: Path) -> None:
    """Raise `ConfigurationError` about a file with a colon in its name; folders may have them."""
    if ":" in path.name and path.is_file():
        raise ConfigurationError(
            f"Spark opens no file with a colon in its name: rename {str(path)!r}, or link to it"
        )


def check(what: str) -> None:
    """Raise the errors of `start`, for callers that do much work before they start Spark."""
    require(what)
    java.choose()


def require(what: str) -> None:
    """Raise `ResourceAllocationError`, with the way to install Spark, if it is not installed."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise ResourceAllocationError(
            f"{what} needs Spark: pip install 'antiphon[spark]'"
        ) from None


def _quoted(option: str) -> str:
    """Return one option of several, quoted if it has blanks."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _log_settings() -> str:
    """Return the settings that log only errors, from the first moment on: Spark's default logs
    warnings."""
    return str(files("antiphon.spark").joinpath("log4j2.properties"))
