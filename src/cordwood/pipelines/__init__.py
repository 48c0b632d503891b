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

from cordwood.pipelines.definition import Budget as Budget
from cordwood.pipelines.definition import Pipeline as Pipeline
from cordwood.pipelines.definition import budget as budget
from cordwood.pipelines.definition import pipeline as pipeline
from cordwood.pipelines.definition import table as table
from cordwood.pipelines.definition import topic as topic
from cordwood.pipelines.errors import Refusal as Refusal
from cordwood.pipelines.formats import json as json
from cordwood.pipelines.formats import parsed_by as parsed_by
from cordwood.pipelines.formats import raw as raw
from cordwood.pipelines.formats import text as text
from cordwood.pipelines.guarding import guarded as guarded
from cordwood.pipelines.project import read_table as read_table
from cordwood.pipelines.project import table_path as table_path
from cordwood.pipelines.project import topic_name as topic_name
from cordwood.pipelines.running import start as start
