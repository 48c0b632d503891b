"""Pipelines on Spark: run, quarantine, tables, replay and swap.

What a pipeline's file needs is here; it imports neither Spark nor anything else that is heavy:

    from cordwood.pipelines import json, pipeline, table, topic

    @pipeline(
        version=1,
        inputs=topic("orders", value=json("id string, amount double")),
        outputs=table("orders", key="id"),
    )
    def latest_orders(orders):
        return orders.where("amount > 0")
"""

from cordwood.pipelines.definition import Budget, Pipeline, budget, pipeline, table, topic
from cordwood.pipelines.errors import Refusal
from cordwood.pipelines.formats import json, parsed_by, raw, text
from cordwood.pipelines.guarding import guarded
from cordwood.pipelines.project import read_table, table_path, table_uri, topic_name
from cordwood.pipelines.running import start
from cordwood.pipelines.sources import streams

__all__ = [
    "Budget",
    "Pipeline",
    "Refusal",
    "budget",
    "guarded",
    "json",
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
]
