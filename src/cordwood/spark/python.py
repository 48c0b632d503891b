"""A Python for Spark's planners, which a session on one machine names in `PYSPARK_PYTHON`.

Spark has settings neither for the program that plans a stream nor for the daemons that planners of batches and writes
are forked from. So a script stands in for Python: it starts ours in the place of these, and is Python itself for all
other arguments.
"""

import hashlib
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from cordwood.spark.stand_ins import put_script
from cordwood.spark.workers.planner import RUNNER

_VARIABLE: Final = "PYSPARK_PYTHON"

_STAND_IN = """#!/bin/sh
# Python for Spark: planners import little, and the planner of a stream connects to Spark before.
case "$1 $2 $3" in
  "-m {runner} ") exec {python} -m cordwood.spark.workers.planner {runner} ;;
  "-m pyspark.daemon pyspark.sql.worker."*) shift 2; exec {python} -m cordwood.spark.workers.daemon "$@" ;;
esac
exec {python} "$@"
"""


def name_python(*, is_local: bool) -> None:
    """Names the stand-in for a session on one machine, unless the user names a Python. Executors of a cluster lack the
    stand-in, so a session on a cluster takes back the name that a local one left."""
    named = os.environ.get(_VARIABLE)
    if is_local and named is None:
        os.environ[_VARIABLE] = python_for_spark()
    elif not is_local and named is not None and named == python_for_spark():
        os.environ[_VARIABLE] = sys.executable


def python_for_spark(executable: str = sys.executable) -> str:
    """The path of a stand-in for this Python, kept in the user's cache; Python itself where none can be written."""
    text = _STAND_IN.format(runner=RUNNER, python=shlex.quote(executable))
    name = f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = cache / "cordwood" / name / "python"
    return str(script) if os.name == "posix" and put_script(script, text) else executable
