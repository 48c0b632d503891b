"""A driver whose machine loses power: for every line on stdin it reads a topic to its end into another one.

Told by one argument, JSON: bootstrap, source, target, checkpoint, local (a directory for Spark), stateful. Answers each
line with one of JSON on stdout, which holds the failure of the query, or null. Ends with its input.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(story: dict[str, Any]) -> "SparkSession":
    import cordwood.spark

    settings = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": story["local"],
        "spark.sql.warehouse.dir": f"{story['local']}/warehouse",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    spark = cordwood.spark.session("driver", master="local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(spark: "SparkSession", story: dict[str, Any]) -> None:
    """Writes each row as it is; with state, how many even and odd ones there are so far ("odd: 12")."""
    rows = (
        spark.readStream.format("cordwood")
        .option("kafka.bootstrap.servers", story["bootstrap"])
        .option("subscribe", story["source"])
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) value")
    )
    if story["stateful"]:
        parities = rows.selectExpr("if(int(right(value, 1)) % 2 = 0, 'even', 'odd') parity")
        rows = parities.groupBy("parity").count().selectExpr("concat(parity, ': ', count) value")
    query = (
        rows.writeStream.format("cordwood")
        .outputMode("complete" if story["stateful"] else "append")
        .option("kafka.bootstrap.servers", story["bootstrap"])
        .option("topic", story["target"])
        .option("checkpointLocation", story["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(story: dict[str, Any]) -> None:
    spark = session(story)
    for _ in sys.stdin:
        failure = None
        try:
            run(spark, story)
        except Exception as error:
            failure = str(error)
        print(json.dumps({"failure": failure}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
