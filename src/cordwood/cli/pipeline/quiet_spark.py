"""Spark for a moment, inside a command: what its JVM has to say on the way goes to a file, not over the result."""

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordwood.cli.failure import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}


def quiet_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """The JVM inherits the standard error that it is started with, and keeps it."""
    from cordwood.pipelines.sessions import pipeline_session

    descriptor, path = tempfile.mkstemp(prefix="cordwood-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        return pipeline_session(app_name, {**_SETTINGS, **settings})
    except Exception as error:
        with open(path, encoding="utf-8", errors="replace") as said:
            last_words = said.read()[-2000:].strip()
        raise Failure("NO_SPARK", f"Spark does not start: {error}", last_words) from error
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)
        os.unlink(path)
