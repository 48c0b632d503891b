"""Spark for a moment, inside a command: the output of its JVM goes to a file, not over the result."""

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from cordwood.model.failure import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}


def quiet_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """A Spark session whose JVM writes to a file. The JVM inherits the standard error that it is started with, and
    keeps it. The command's own output is shown meanwhile: a start takes long."""
    from cordwood.pipelines.execution.sessions import pipeline_session

    descriptor, path = tempfile.mkstemp(prefix="cordwood-spark-", suffix=".log")
    sys.stderr.flush()
    kept, before = os.dup(2), sys.stderr
    if _descriptor(before) == 2:
        # The descriptor is not closed afterwards: another thread may be in the middle of a line. That costs one
        # descriptor.
        sys.stderr = os.fdopen(os.dup(2), "w", encoding=before.encoding, errors="replace", buffering=1)
    os.dup2(descriptor, 2)
    try:
        return pipeline_session(app_name, {**_SETTINGS, **settings})
    except Exception as error:
        with open(path, encoding="utf-8", errors="replace") as said:
            last_words = said.read()[-2000:].strip()
        raise Failure("NO_SPARK", f"Spark does not start: {error}", last_words) from error
    finally:
        sys.stderr.flush()
        sys.stderr = before
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)
        os.unlink(path)


def _descriptor(stream: TextIO) -> int | None:
    """The descriptor of a stream; None for a stream without one, as in a test."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
