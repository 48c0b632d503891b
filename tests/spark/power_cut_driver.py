"""A driver on a machine that loses power: for every line on stdin it copies a topic to its end into another one.

Its one argument is JSON: bootstrap, source, target, checkpoint, local (a directory for Spark), stateful; or, for a
pipeline: bootstrap, local, pipeline (its file), directory (the pipelines'). The driver answers each line with a line of
JSON on stdout, the failure of the query or null. It ends with its input.
"""

import json
import sys
from pathlib import Path
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
    """Writes each row as it is; with state, the number of even and odd rows so far ("odd: 12")."""
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


def run_pipeline(spark: "SparkSession", story: dict[str, Any]) -> None:
    from cordwood.pipelines import start
    from cordwood.pipelines.definition.loading import load_pipeline

    pipeline = load_pipeline(Path(story["pipeline"]))
    where = {"bootstrap_servers": story["bootstrap"], "directory": story["directory"]}
    start(pipeline, spark, **where, once=True, tell=lambda event: None).wait()  # standard output is for answers


def main(story: dict[str, Any]) -> None:
    spark = session(story)
    for _ in sys.stdin:
        failure = None
        try:
            (run_pipeline if "pipeline" in story else run)(spark, story)
        except Exception as error:
            failure = f"{error} {getattr(error, 'hint', '')}"
        print(json.dumps({"failure": failure}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
