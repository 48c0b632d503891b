"""A plain streaming query from a topic to a table, as somebody would write it without pipelines: a process of its own.

    python -m benchmarks.spark_table_query parquet|append|merge BOOTSTRAP FROM TABLE CHECKPOINT ROWS_PER_BATCH KEY

`parquet` is Spark's own file sink; the others are `deltalake` in a foreachBatch, where `merge` keeps one row for each
key. KEY is the SQL expression of the key. What it computes is what the benchmark's pipeline does.
"""

import sys
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import cordwood.spark
from benchmarks.spark_plain_query import SCHEMA, SHUFFLE_PARTITIONS


def main(how: str, bootstrap: str, read: str, table: str, checkpoint: str, batch_rows: str, key: str) -> None:
    settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}
    spark = cordwood.spark.session("plain query", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("cordwood")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", read)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")
    orders = rows.select(order, "partition", "offset").select("order.*", "partition", "offset")
    priced = orders.where("amount >= 0").withColumn("with_tax", F.col("amount") * 1.19).withColumn("k", F.expr(key))
    writer = priced.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if how == "parquet":
        query = priced.drop("partition", "offset").writeStream.option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).format("parquet").start(table).awaitTermination()
        return

    def write(batch: DataFrame, batch_id: int) -> None:
        once = CommitProperties(app_transactions=[Transaction("plain", batch_id)])
        if how == "append":
            made = batch.drop("partition", "offset").toArrow()
            write_deltalake(table, made, mode="append", commit_properties=once)
            return
        row = F.struct(*(name for name in batch.columns if name not in ("partition", "offset")))
        last = batch.groupBy("k").agg(F.max_by(row, F.struct("partition", "offset")).alias("row")).select("row.*")
        made = last.toArrow()
        if not DeltaTable.is_deltatable(table):
            DeltaTable.create(table, made.schema)
        (
            DeltaTable(table)
            .merge(made, "t.k = s.k", source_alias="s", target_alias="t", commit_properties=once)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    writer.foreachBatch(write).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
