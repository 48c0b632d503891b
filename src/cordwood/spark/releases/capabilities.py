"""What the installed PySpark can do for a source and a sink in Python: the one place that knows versions of Spark.

4.0  sources in Python that read and write batches as Arrow
4.1  filters for a source, Arrow for the sink of a stream
4.2  a source is told the limits of a micro-batch, and of trigger(availableNow)
"""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_CHECKPOINT_FILES: Final = "FileSystemBasedCheckpointFileManager"
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_UPGRADE: Final = "Install `pyspark>=4.2` for the driver and for all executors"


class SparkTooOld(ImportError):
    """The installed PySpark has no data sources in Python. An ImportError, so that `pyspark_cordwood`, which Spark
    imports by itself, offers nothing then."""


class NotInThisSpark(RuntimeError):
    """The installed PySpark lacks a part of the data source API that the request needs."""


@dataclass(frozen=True)
class Capabilities:
    version: str
    batches: bool
    """DataFrames are read and written."""
    filters: bool
    """Spark tells the source of a batch read the filters of a query."""
    streams: bool
    """Streams are read and written, and pipelines run."""
    checkpoint_files: str
    """The class that keeps checkpoints with a rename of each file."""
    arrow_utc: Mapping[str, str | bool]
    """Has `to_arrow_schema` make timestamps in UTC, as keywords."""

    def require_batches(self) -> None:
        if not self.batches:
            raise SparkTooOld(
                f"cordwood.spark needs PySpark 4.0 or newer, and {self.version} is installed: it has no data sources in"
                " Python. Install `pyspark>=4.2`, or read and write Cordwood with Spark's own Kafka connector, of the"
                " version of your Spark: format('kafka'), --packages"
                f" org.apache.spark:spark-sql-kafka-0-10_2.12:{self.version}. The connector writes at least once, not"
                " exactly once, and has no filters that reach the log and no progress as a consumer group."
            )

    def require_streams(self, what: str) -> None:
        """`what`: the request, as the beginning of a sentence."""
        if self.streams:
            return
        lacks = ["limits of a micro-batch and of trigger(availableNow), which came with 4.2"]
        if not self.filters:
            lacks.append("Arrow for the sink of a stream, which came with 4.1")
        raise NotInThisSpark(
            f"{what} needs PySpark 4.2 or newer, and {self.version} is installed, which has no"
            f" {', and no '.join(lacks)}, for sources in Python. {_UPGRADE}, or use Spark's own Kafka connector,"
            " format('kafka'), which writes at least once. Batch reads and writes of format cordwood work with this"
            " version."
        )


def capabilities_of(version: str) -> Capabilities:
    """The capabilities of a version such as `4.2.0.dev1`. A version that does not begin with numbers counts as new."""
    found = re.match(r"(\d+)\.(\d+)", version)
    release = (int(found[1]), int(found[2])) if found else (4, 3)
    package = _STREAMING if release < (4, 1) else f"{_STREAMING}.checkpointing"
    return Capabilities(
        version=version,
        batches=release >= (4, 0),
        filters=release >= (4, 1),
        streams=release >= (4, 2),
        checkpoint_files=f"{package}.{_CHECKPOINT_FILES}",
        arrow_utc={"timestamp_utc": True} if release < (4, 2) else {"timezone": "UTC"},
    )


@cache
def installed() -> Capabilities | None:
    """Those of the installed PySpark; None without one. PySpark is not imported: that takes half a second of CPU."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        # Within an archive, as executors of a cluster have it.
        from pyspark.version import __version__

        return capabilities_of(str(__version__))
    found = re.search(r"""^__version__[^"']*["']([^"']+)["']""", text, re.MULTILINE)
    return capabilities_of(found[1] if found else "")


def running() -> Capabilities:
    """The capabilities of the installed PySpark, for code that runs in it."""
    found = installed()
    assert found is not None, "PySpark is imported, so it is installed"
    return found
