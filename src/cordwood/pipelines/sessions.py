"""The Spark session that pipelines run in, where they make it themselves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def pipeline_session(app_name: str, settings: Mapping[str, Any]) -> "SparkSession":
    """As `cordwood.spark.session` makes it, with shuffles as wide as the machine."""
    from cordwood.spark import session

    spark = session(app_name, **dict(settings))
    if _SHUFFLE_PARTITIONS not in settings:
        # Spark does not adapt shuffles in a streaming query: its default of 200 would be 200 tasks and 200 files for
        # every small batch.
        spark.conf.set(_SHUFFLE_PARTITIONS, max(2, spark.sparkContext.defaultParallelism))
    return spark
