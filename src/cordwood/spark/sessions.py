"""A Spark session with the settings that matter to a log. Each setting can be overridden.

Without these settings everything works, more slowly: a pause of 40 ms in every task, slower checkpoints, filters that
Spark applies after all rows have been decoded.
"""

import os
import sys
from pkgutil import iter_modules
from typing import Any, Final

from pyspark.sql import SparkSession

from cordwood.spark.data_source import CordwoodDataSource
from cordwood.spark.java import ensure_java
from cordwood.spark.python import name_python
from cordwood.spark.releases.capabilities import running
from cordwood.spark.spark_home import ensure_spark_home
from cordwood.spark.workers.shared import seed_for_children, share_workers

RUNTIME_SETTINGS: Final = {
    # Pushes filters on offset, partition, topic and timestamp to the source of a batch read.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Shows the timestamps of records, which are instants, the same way everywhere.
    "spark.sql.session.timeZone": "UTC",
    # Sends toPandas() and createDataFrame() through Arrow, as reads do.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Makes checkpoints cheaper: a rename of a file, without asking the file system twice.
    "spark.sql.streaming.checkpointFileManagerClass": running().checkpoint_files,
}
"""Settings that can change in a running session, and so in a remote one."""

START_SETTINGS: Final = {
    # TCP between the JVM and its Python workers would cost a pause of 40 ms for each task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that Spark needs before it starts."""

LOCAL_SETTINGS: Final = {
    # Workers begin with numba and our kernels imported. On another machine an executor may lack the module at its
    # start.
    "spark.python.daemon.module": "cordwood.spark.workers.daemon",
}
"""Settings for sessions whose Python workers this process chooses."""


_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""A variable in the environment of a program that spark-submit runs, which may have named another master."""


def session(
    app_name: str = "cordwood", master: str | None = None, *, remote: str | None = None, **settings: Any
) -> SparkSession:
    """A session that can read and write `format("cordwood")`.

    `master` is Spark's: `local[2]`, `spark://host:7077`; by default the one of spark-submit, else `local[*]`. `remote`
    is the address of a Spark Connect server, `sc://host`, or `local[2]` to start one here. Further settings are
    Spark's, by name: `session("orders", **{"spark.sql.shuffle.partitions": 8})`.
    """
    wanted = {name: _text(value) for name, value in settings.items()}
    chosen = dict(RUNTIME_SETTINGS)
    builder = SparkSession.builder.appName(app_name)
    is_elsewhere = remote is not None and not remote.startswith("local")
    is_local = False
    if not is_elsewhere:
        chosen = {**START_SETTINGS, **chosen}
        ensure_java()
        if (master or remote or "local").startswith("local"):
            ensure_spark_home()
            named = master or remote or wanted.get("spark.master")
            is_local = (named is None and _GATEWAY not in os.environ) or str(named).startswith("local")
            if is_local:
                chosen = {**LOCAL_SETTINGS, **chosen}
            name_python(is_local=is_local)
            # Spark would take the first python3 on the path, which may lack this package.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        else:
            name_python(is_local=False)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    for name, value in {**chosen, **wanted}.items():
        builder = builder.config(name, value)
    with seed_for_children():
        found = builder.getOrCreate()
    if is_local and remote is None:
        share_workers(found)
    if is_elsewhere or not _finds_it_by_itself():
        register(found)
    return found


def register(spark: SparkSession) -> None:
    """Makes `format("cordwood")` known to a session that did not find it by itself."""
    spark.dataSource.register(CordwoodDataSource)


def _finds_it_by_itself() -> bool:
    """True if Spark finds the format. A module that looks like a source and cannot be imported spoils that for all
    sources."""
    return [found.name for found in iter_modules() if found.name.startswith("pyspark_")] == ["pyspark_cordwood"]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
