"""A plain streaming query from a topic to a topic, as somebody would write it without pipelines: a process of its own.

    python -m benchmarks.spark_plain_query cordwood|kafka BOOTSTRAP FROM TO CHECKPOINT ROWS_PER_BATCH [JARS]

It does what the benchmark's pipeline does: JSON in, a filter and a column, JSON out under a key.
"""

import sys
from typing import Any

from pyspark.sql import functions as F

import cordwood.spark

SCHEMA = "id string, customer string, amount double, placed long"
SHUFFLE_PARTITIONS = 2


def main(
    source: str, bootstrap: str, read: str, written: str, checkpoint: str, batch_rows: str, jars: str = ""
) -> None:
    settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}
    if jars:
        settings["spark.jars"] = jars
    spark = cordwood.spark.session("plain query", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", read)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    orders = rows.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")
    priced = orders.where("amount >= 0").withColumn("with_tax", F.col("amount") * 1.19)
    made = priced.select(F.col("id").alias("key"), F.to_json(F.struct("*")).alias("value"))
    query = (
        made.writeStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", written)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
