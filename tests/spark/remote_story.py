"""A Spark application: reads a topic in a batch and in a stream, and prints the result as JSON.

Tests run it as a process, because one Python process has one kind of session.
"""

import json
import sys
from pathlib import Path
from typing import Any

import cordwood.spark


def main(kind: str, address: str, bootstrap: str, topic: str, directory: str) -> None:
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": Path(directory) / "local",
        "spark.sql.warehouse.dir": Path(directory) / "warehouse",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    }
    where = {"remote": address} if kind == "connect" else {"master": address}
    spark = cordwood.spark.session("story", **where, **settings)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    batch = spark.read.format("cordwood").options(**given).option("minPartitions", 4).load()
    found: dict[str, Any] = {
        "connect": "connect" in type(spark).__module__,
        "sum": batch.selectExpr("sum(CAST(CAST(value AS STRING) AS LONG)) AS total").collect()[0]["total"],
        "filtered": batch.where("partition = 1 AND offset < 10").count(),
        "tasks": batch.selectExpr("spark_partition_id() AS task").distinct().count(),
    }
    stream = spark.readStream.format("cordwood").options(**given).option("maxOffsetsPerTrigger", 700).load()
    writer = stream.selectExpr("CAST(value AS STRING)").writeStream.queryName("story").format("parquet")
    writer = writer.option("path", f"{directory}/out").option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found["streamed"] = spark.read.parquet(f"{directory}/out").distinct().count()
    positions = cordwood.spark.progress("spark-story", bootstrap)
    found["progress"] = sum(standing.position for name, standing in positions.items() if name.topic == topic)
    try:
        spark.read.format("cordwood").options(**given, startingOffset="earliest").load().printSchema()
    except Exception as failure:
        found["error"] = str(failure)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
