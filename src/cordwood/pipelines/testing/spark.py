"""The Spark of a test process: small, local, and without what tests do not look at."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def testing_session() -> "Iterator[SparkSession]":
    """A local session with two cores. Its files are removed at the end."""
    from cordwood.spark import session

    with tempfile.TemporaryDirectory(prefix="cordwood-testing-", ignore_cleanup_errors=True) as directory:
        settings = {
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            # A test runs most code of Spark a few times: the second compiler would cost as much CPU again as the test.
            # The collector with several threads works beside a heap of a few megabytes.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # Spark describes the plan of every job for a page that is not there.
            "spark.sql.ui.explainMode": "simple",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
            "spark.local.dir": f"{directory}/local",
        }
        spark = session("cordwood tests", master="local[2]", **settings)
        try:
            yield spark
        finally:
            spark.stop()
