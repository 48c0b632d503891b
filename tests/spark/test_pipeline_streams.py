"""A pipeline's outputs as plain streams, for a user's own queries: no wrapper, no quarantine."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce, Record
from tests.spark.pipeline_workshop import Workshop, orders

from cordwood.pipelines import streams
from cordwood.pipelines.definition.loading import load_pipeline


def test_outputs_are_streams_for_any_query_and_poison_fails_it(
    spark: SparkSession, broker: RunningBroker, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    topic = make_topic()
    workshop = Workshop(tmp_path, spark, broker.bootstrap)
    workshop.write(
        f"""
        @pipeline("p", version=1, inputs=topic("{topic}", value=json("id string, amount int")), outputs=table("t"))
        def doubled(orders):
            return orders.selectExpr("id", "amount * 2 as twice", "_record")
        """
    )
    put(topic, orders([1, 2]))
    rows = streams(load_pipeline(workshop.file), spark, bootstrap_servers=broker.bootstrap)["t"]
    assert rows.isStreaming
    name = f"streams_{topic[-6:]}"
    writer = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    query.awaitTermination()
    assert query._jsq.explainInternal(False).count("from_json(") == 1, "a record is parsed once"
    assert sorted(tuple(row) for row in spark.table(name).collect()) == [("o1", 2), ("o2", 4)]
    put(topic, [Record(b"junk")])
    noop = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=f"{topic} 0 2: the value is no JSON object"):
        noop.trigger(availableNow=True).start().awaitTermination()
