"""Pipelines on Spark: run, quarantine, tables, replay and swap.

A pipeline's file needs nothing beyond this package, which imports neither Spark nor anything else that is heavy:

    from cordwood.pipelines import json, pipeline, table, topic

    @pipeline(
        version=1,
        inputs=topic("orders", value=json("id string, amount double")),
        outputs=table("orders", key="id"),
    )
    def latest_orders(orders):
        return orders.where("amount > 0")
"""

from typing import TYPE_CHECKING, Any

from cordwood.pipelines.definition.databases import jdbc
from cordwood.pipelines.definition.definition import Budget, Pipeline, budget, output, pipeline, topic
from cordwood.pipelines.definition.errors import Refusal
from cordwood.pipelines.definition.expectations import Expectation, expect
from cordwood.pipelines.definition.partitions import bucket, days, hours, months, truncate, years
from cordwood.pipelines.definition.record_formats import json, parsed_by, raw, text
from cordwood.pipelines.definition.table_output import table

if TYPE_CHECKING:
    from cordwood.pipelines.editions.project import read_table as read_table
    from cordwood.pipelines.editions.project import table_path as table_path
    from cordwood.pipelines.editions.project import table_uri as table_uri
    from cordwood.pipelines.editions.project import topic_name as topic_name
    from cordwood.pipelines.execution.running import start as start
    from cordwood.pipelines.execution.sources import streams as streams
    from cordwood.pipelines.rows.guarding import guarded as guarded

__all__ = [
    "Budget",
    "Expectation",
    "Pipeline",
    "Refusal",
    "bucket",
    "budget",
    "days",
    "expect",
    "guarded",
    "hours",
    "jdbc",
    "json",
    "months",
    "output",
    "parsed_by",
    "pipeline",
    "raw",
    "read_table",
    "start",
    "streams",
    "table",
    "table_path",
    "table_uri",
    "text",
    "topic",
    "topic_name",
    "truncate",
    "years",
]

_HOMES = {
    "guarded": "rows.guarding",
    "read_table": "editions.project",
    "start": "execution.running",
    "streams": "execution.sources",
    "table_path": "editions.project",
    "table_uri": "editions.project",
    "topic_name": "editions.project",
}
"""Modules of the names that are imported on first use: a command that only lists pipelines needs none of them."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"cordwood.pipelines.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
