"""A Spark application over SASL_SSL that shows what Spark shows of it: plans, UI, event log, checkpoint, progress.

`python -m tests.spark.secrets_driver FACTS DIRECTORY`: FACTS is a file of JSON with the options of reads and writes.
Everything that was shown is in files of the directory when it ends.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import cordwood.spark

PAGES = 60
PAGE_WITHIN_S = 120
REST = ("jobs", "stages?details=true", "executors", "environment", "sql?details=true&planDescription=true")


def run(read: Mapping[str, str], write: Mapping[str, str], directory: Path) -> None:
    (directory / "events").mkdir()
    settings: dict[str, Any] = {
        "spark.ui.enabled": True,
        "spark.ui.port": 0,
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.eventLog.compress": False,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": directory / "warehouse",
    }
    spark = cordwood.spark.session("secrets", "local[2]", **settings)
    spark.sparkContext.setLogLevel("INFO")
    shown: dict[str, str] = {}
    orders = spark.read.format("cordwood").options(**read).option("subscribe", "orders").load()
    rows = orders.select("key", "value")
    shown |= {
        f"explain-{mode}": explained(spark, rows, mode) for mode in ("simple", "extended", "codegen", "formatted")
    }
    orders.createOrReplaceTempView("orders_view")
    shown["catalog"] = f"{orders!r} {spark.sql('describe extended orders_view').collect()}"
    target = {**write, "topic": "copies", "family": "copying"}
    rows.write.format("cordwood").mode("append").options(**target).save()
    stream = spark.readStream.format("cordwood").options(**read, subscribe="orders", startingOffsets="earliest").load()
    checkpoint = str(directory / "checkpoint")
    writer = stream.select("key", "value").writeStream.queryName("copying").format("cordwood").options(**target)
    query = writer.option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    shown["stream-explain"] = query._jsq.explainInternal(True)
    shown["progress"] = "\n".join(each.json for each in query.recentProgress)
    shown |= dict(pages(spark))
    query.stop()
    shown |= failures(spark, read, target)
    for name, text in shown.items():
        (directory / f"{name}.txt").write_text(text)
    spark.stop()


def explained(spark: SparkSession, rows: DataFrame, mode: str) -> str:
    assert spark._jvm is not None
    return str(spark._jvm.PythonSQLUtils.explainString(rows._jdf.queryExecution(), mode))


def pages(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """The pages of Spark's UI that lead to each other, and its answers to programs."""
    base = spark.sparkContext.uiWebUrl
    api = f"{base}/api/v1/applications/{spark.sparkContext.applicationId}"
    seen: set[str] = set()
    todo = [*(f"{api}/{each}" for each in REST), f"{base}/jobs/"]
    while todo and len(seen) < PAGES:
        url = todo.pop(0)
        if url in seen:
            continue
        seen.add(url)
        try:
            with urlopen(url, timeout=PAGE_WITHIN_S) as answer:
                body = answer.read().decode(errors="replace")
        except URLError as error:
            body = str(error)
        yield f"page-{len(seen)}", f"{url}\n{body}"
        if "/api/" not in url:
            links = re.findall(r'href="(/[^"#]+)"', body)
            todo += [f"{base}{each.replace('&amp;', '&')}" for each in links if not re.search(r"^/static|kill", each)]


def failures(spark: SparkSession, read: Mapping[str, str], target: Mapping[str, str]) -> dict[str, str]:
    """The texts of failures in each of the places that have the options."""
    orders = spark.read.format("cordwood").options(**read).option("subscribe", "orders").load()
    missing = {**read, "subscribe": "no-such-topic", "kafka.default.api.timeout.ms": "2000"}
    attempts: dict[str, Callable[[], object]] = {
        "options": lambda: spark.read.format("cordwood").options(**read, subscribe="orders", minPartitions="x").load(),
        "planning": lambda: spark.read.format("cordwood").options(**missing).load().count(),
        "mode": lambda: orders.write.format("cordwood").mode("overwrite").options(**target).save(),
        "columns": lambda: orders.select("offset").write.format("cordwood").mode("append").options(**target).save(),
        "task": lambda: (
            orders.selectExpr("CAST(raise_error('broken') AS STRING) AS value")
            .write.format("cordwood")
            .mode("append")
            .options(**target)
            .save()
        ),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except PySparkException as failure:
            said[f"failure-{name}"] = f"{failure!r} {failure}"
    assert len(said) == len(attempts), said.keys()
    return said


if __name__ == "__main__":
    facts = json.loads(Path(sys.argv[1]).read_text())
    run(facts["read"], facts["write"], Path(sys.argv[2]))
