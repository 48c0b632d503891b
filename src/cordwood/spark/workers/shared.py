"""One pool of Python workers for reads and writes, instead of Spark's two.

Spark forks Python workers from a daemon, and keeps a daemon for each set of environment variables that a function asks
for. PySpark's functions ask for PYTHONHASHSEED, Spark's own, which read a Python source, for PYTHONPATH: a query that
reads and writes starts two daemons, each of which imports numba and the kernels, the second one in the middle of the
first batch. With the seed in the environment of the JVM, which all of its children inherit, both can ask for the same
variables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

_SEED: Final = "PYTHONHASHSEED"
_PATH: Final = "PYTHONPATH"


@contextmanager
def seed_for_children() -> Iterator[None]:
    """Within this context, a JVM that starts gives its Python workers the seed that PySpark would ask for."""
    if _SEED in os.environ:
        yield
        return
    os.environ[_SEED] = "0"
    try:
        yield
    finally:
        os.environ.pop(_SEED, None)


def share_workers(spark: SparkSession) -> None:
    """Has functions of this session ask for the environment of Python sources. Changes nothing if executors are
    elsewhere, if the JVM was started without the seed, or if the session asks for further variables."""
    context: Any = spark.sparkContext
    if not (context.master == "local" or context.master.startswith("local[")):
        return
    java = context._jvm
    wanted = dict(context.environment)
    seed = wanted.pop(_SEED, None)
    if seed is None or wanted or java.java.lang.System.getenv(_SEED) != seed:
        return
    paths = (java.org.apache.spark.api.python.PythonUtils.sparkPythonPath(), java.java.lang.System.getenv(_PATH))
    del context.environment[_SEED]
    context.environment[_PATH] = os.pathsep.join(filter(None, paths))
