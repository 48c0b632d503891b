"""A pipeline's function in Spark's own declarative pipelines: `spark-pipelines run`, as it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Produce
from tests.spark.pipeline_workshop import orders

from cordwood.spark.java import ensure_java

SPECIFICATION = """
name: orders
storage: file://{directory}/storage
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""

TRANSFORMATION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from cordwood.pipelines import json, pipeline, streams, table, topic


@pipeline(version=1, inputs=topic("{topic}", value=json("id string, amount int")), outputs=table("doubled"))
def doubled_orders(orders):
    return orders.selectExpr("id", "amount * 2 as twice", "_record")


rows = streams(doubled_orders, SparkSession.active(), bootstrap_servers="{bootstrap}")


@dp.table
def doubled():
    return rows["doubled"]
"""


def test_an_output_is_a_flow(broker: RunningBroker, make_topic: MakeTopic, put: Produce, tmp_path: Path) -> None:
    topic = make_topic()
    put(topic, orders([1, 2, 3]))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(directory=tmp_path))
    text = TRANSFORMATION.format(topic=topic, bootstrap=broker.bootstrap)
    (tmp_path / "transformations" / "doubled.py").write_text(text)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ensure_java(environment)
    program = Path(sys.executable).with_name("spark-pipelines")
    done = subprocess.run(
        [program, "run", "--spec", "spark-pipeline.yml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = pyarrow.dataset.dataset(tmp_path / "spark-warehouse" / "doubled", ignore_prefixes=["_", "."]).to_table()
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == [("o1", 2), ("o2", 4), ("o3", 6)]
