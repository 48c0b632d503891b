"""What a version of Spark does with format cordwood, told by a process of that version's environment.

python -m tests.spark_versions.story DIRECTORY    # prints one line of JSON
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIPELINE = """
from cordwood.pipelines import pipeline, text, topic

@pipeline(version=1, inputs=topic("orders", value=text()), outputs={"copied": topic("copied", key="value")})
def copying(orders):
    return {"copied": orders.select("value")}
"""
RECORDS = 10


def main(directory: Path) -> dict[str, Any]:
    try:
        import cordwood.spark
    except ImportError as refused:
        return {"import": str(refused)}
    from cordwood.embedded import Broker

    told: dict[str, Any] = {}
    with Broker() as broker:
        for number in range(RECORDS):
            broker.log.append("orders", None, str(number).encode())
        settings: dict[str, Any] = {"spark.ui.enabled": False}
        spark = cordwood.spark.session("story", "local[2]", **settings)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            told["version"] = spark.version
            told |= _batches(spark, broker.bootstrap_servers)
            told["stream read"] = _or_refusal(lambda: _stream_read(spark, broker.bootstrap_servers, directory))
            told["stream write"] = _or_refusal(lambda: _stream_write(spark, broker.bootstrap_servers, directory))
        finally:
            spark.stop()
        told["pipeline"] = _pipeline(broker.bootstrap_servers, directory)
        told["piped"] = len(list(broker.log.read("copied", committed=True))) if told["pipeline"]["code"] == 0 else 0
    return told


def _batches(spark: Any, bootstrap: str) -> dict[str, Any]:
    rows = spark.range(RECORDS).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    _writing(rows.write, bootstrap, "written").mode("append").save()
    return {
        "batch read": _numbers(_reading(spark.read, bootstrap, "orders")),
        "filtered": _numbers(_reading(spark.read, bootstrap, "orders").where("partition = 0 AND offset >= 7")),
        "batch write": _numbers(_reading(spark.read, bootstrap, "written")),
    }


def _stream_read(spark: Any, bootstrap: str, directory: Path) -> list[list[int]]:
    """The batches of a query with a limit, and of the same query, which is started again after more records."""
    seen: list[list[int]] = []

    def once() -> None:
        rows = _reading(spark.readStream.option("maxOffsetsPerTrigger", 4), bootstrap, "orders")
        query = rows.writeStream.foreachBatch(lambda batch, _: seen.append(_numbers(batch)))
        query = query.option("checkpointLocation", str(directory / "read")).trigger(availableNow=True).start()
        query.awaitTermination()

    once()
    rows = spark.range(RECORDS, RECORDS + 3).selectExpr("CAST(id AS STRING) AS value")
    _writing(rows.write, bootstrap, "orders").mode("append").save()
    once()
    return seen


def _stream_write(spark: Any, bootstrap: str, directory: Path) -> list[int]:
    """The committed records of a topic after a query whose commit log lost its last batch was started again."""
    checkpoint = directory / "write"

    def once() -> None:
        rows = _reading(spark.readStream, bootstrap, "written")
        writer = _writing(rows.select("key", "value").writeStream, bootstrap, "once")
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    once()
    for commit in (checkpoint / "commits").glob("*0*"):
        commit.unlink()
    once()
    return _numbers(_reading(spark.read.option("kafka.isolation.level", "read_committed"), bootstrap, "once"))


def _pipeline(bootstrap: str, directory: Path) -> dict[str, Any]:
    (directory / "copying.py").write_text(PIPELINE)
    command = [sys.executable, "-m", "cordwood.cli", "pipeline", "run", "copying.py", "--once"]
    ran = subprocess.run(
        [*command, "--bootstrap-server", bootstrap], cwd=directory, capture_output=True, text=True, check=False
    )
    return {"code": ran.returncode, "said": ran.stdout + ran.stderr}


def _or_refusal(story: Callable[[], Any]) -> Any:
    try:
        return story()
    except Exception as refused:
        return str(refused)


def _reading(reader: Any, bootstrap: str, topic: str) -> Any:
    reader = reader.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def _writing(writer: Any, bootstrap: str, topic: str) -> Any:
    return writer.format("cordwood").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)


def _numbers(rows: Any) -> list[int]:
    return sorted(int(row["value"]) for row in rows.select("value").collect())


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
