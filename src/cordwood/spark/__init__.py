"""Cordwood as a Spark data source and sink: `format("cordwood")`.

    spark = cordwood.spark.session("orders")        # a session with the settings that matter
    cordwood.spark.register(spark)                  # or: make the format known to a session of your own

Spark finds the format by itself if this package is installed (`pyspark_cordwood`). Heavy modules are imported on first
use: Spark starts many short processes.
"""

from typing import TYPE_CHECKING, Any

from cordwood.spark.releases.capabilities import installed as _installed

if TYPE_CHECKING:
    from cordwood.spark.data_source import CordwoodDataSource as CordwoodDataSource
    from cordwood.spark.monitoring.queries import QueryMetrics as QueryMetrics
    from cordwood.spark.sessions import register as register
    from cordwood.spark.sessions import session as session
    from cordwood.spark.source.progress import lag as lag
    from cordwood.spark.source.progress import progress as progress

__all__ = ["CordwoodDataSource", "QueryMetrics", "lag", "progress", "register", "session"]

_HOMES = {
    "CordwoodDataSource": "data_source",
    "QueryMetrics": "monitoring.queries",
    "lag": "source.progress",
    "progress": "source.progress",
    "register": "sessions",
    "session": "sessions",
}


if (_spark := _installed()) is not None:
    _spark.require_batches()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"cordwood.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
