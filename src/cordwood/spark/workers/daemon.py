"""Spark's daemon of Python workers, which imports slow modules before it forks the workers.

Spark starts a worker for each task that runs Python, two for each core where a query reads and writes, and each imports
numba, the kernels and PySpark by itself: the better part of a second of CPU, all of it before the first row. Here the
daemon does so once. Only modules that start no thread are imported: a fork copies the locks of other threads, but not
the threads. Arrow starts one, so workers import it themselves, as they do in Spark.

A session of ours sets `spark.python.daemon.module` to this. Planners of batches and writes have a daemon for each kind,
which the stand-in for Python of `spark/python.py` starts by this module, too: these import less of PySpark
(`light_imports`), half a second of CPU each.
"""

import gc
import importlib
import os
import sys
from typing import Final

from cordwood.spark.workers.light_imports import import_light

_WORKER: Final = "pyspark.worker"
PRELOADED: Final = (
    "numba",
    "cordwood.columnar.decode_kernels",
    "cordwood.columnar.encode_kernels",
    "cordwood.columnar.partition_kernels",
    "cordwood.client.cluster",
    "pyspark.sql.types",
    "pyspark.taskcontext",
)


PLANNERS: Final = frozenset(
    f"pyspark.sql.worker.{name}"
    for name in (
        "lookup_data_sources",
        "create_data_source",
        "plan_data_source_read",
        "data_source_pushdown_filters",
        "write_into_data_source",
        "commit_data_source_write",
    )
)
"""The programs that plan for a data source, which run no function of a user."""


def preload() -> None:
    """Imports the modules that are installed. Without them workers start more slowly, and work."""
    # NumPy's algebra would start a thread for every core.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        for name in PRELOADED:
            importlib.import_module(name)
    except ImportError:
        pass
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    # Workers share these pages until one writes to them, and a garbage collection writes.
    gc.collect()
    gc.freeze()


def thread_count() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1


def main() -> None:
    if sys.argv[1:2] == [_WORKER]:
        preload()
        if thread_count() > 1:
            # A library of this machine starts threads: begin again as Spark's own daemon, with nothing imported.
            os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    if sys.argv[1:2] and sys.argv[1] in PLANNERS:
        import_light("pyspark.daemon")
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
