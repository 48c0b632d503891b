"""A driver for kills: a program that streams the lines of files into a topic until it is told to stop.

Its one argument is JSON: bootstrap, topic, lines (a directory), checkpoint, stop (a file that ends it), local (a
directory for Spark), master, run (a word that is written with every line), options of the sink, settings of the
session. The program exits with 0 when all lines are written, with 1 when the query failed.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(story: dict[str, Any]) -> int:
    import cordwood.spark

    settings = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 3,
        "spark.local.dir": story["local"],
        "spark.sql.warehouse.dir": f"{story['local']}/warehouse",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **story.get("settings", {}),
    }
    spark = cordwood.spark.session("driver", master=story["master"], **settings)
    spark.sparkContext.setLogLevel("WARN")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(story["lines"])
    # A repeated batch writes other bytes than the time before, and every line names the run that wrote it.
    rows = lines.repartition(3).selectExpr("value key", f"concat(value, '|{story['run']}|', uuid()) value")
    if "delay" in story:
        rows = delayed(rows, story["delay"])
    writer = rows.writeStream.format("cordwood").option("kafka.bootstrap.servers", story["bootstrap"])
    writer = writer.option("topic", story["topic"]).option("checkpointLocation", story["checkpoint"])
    for name, value in story.get("options", {}).items():
        writer = writer.option(name, value)
    query = writer.start()
    print("started", flush=True)
    while query.isActive:
        if Path(story["stop"]).exists():
            query.processAllAvailable()
            query.stop()
            spark.stop()
            return 0
        time.sleep(0.05)
    print(query.exception(), flush=True)
    return 1


def delayed(rows: Any, delay: dict[str, Any]) -> Any:
    """Delays the first attempt at one task so long that Spark starts another beside it, which leaves a mark.

    An attempt after the death of the first leaves none.
    """
    task, seconds, mark = int(delay["task"]), float(delay["seconds"]), Path(delay["mark"])

    def wait(batches: Any) -> Any:
        import os
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        waiting = mark.with_name(f"{mark.name}-{context.stageId()}")
        for batch in batches:
            yield batch
            if context.partitionId() == task and context.attemptNumber() == 0:
                waiting.write_text(str(os.getpid()))
                time.sleep(seconds)
            elif context.partitionId() == task and waiting.exists() and Path("/proc", waiting.read_text()).exists():
                mark.touch()

    return rows.mapInArrow(wait, rows.schema)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
