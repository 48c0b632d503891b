"""`python -m benchmarks.spark start`: CPU seconds from `start()` to the first offset, beside Spark's own connector.

A stream of Spark's connector is planned in the JVM. Ours is planned in a Python process that Spark starts for each
query and waits ten seconds for. Each format has a Spark of its own, which starts one query after the other: the first
one also pays for the JVM's classes. CPU is that of Spark and its Python processes, without the broker's. The offset is
there when Spark has written it into the checkpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Metric, Target
from benchmarks.processes import cpu_seconds

START = Target(1.5, at_least=False)
QUERIES = 6
"""Queries of one Spark. The first one is counted by itself."""
_LOOK_S = 0.02
_LONGEST_S = 900


def figures() -> tuple[Figure, Figure]:
    first = Metric("CPU from start() to the first offset", "s", START)
    return Figure("start", "first query of a session", first), Figure("start", "each further query", first)


def measure(name: str, source: str, bootstrap: str, topic: str, jars: str, found: tuple[Figure, Figure]) -> None:
    """Adds what one Spark used for its queries."""
    command = [sys.executable, "-m", "benchmarks.spark_start", source, bootstrap, topic, jars]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    if ran.returncode != 0:
        for figure in found:
            figure.failures[name] = ran.stderr[-500:]
        return
    first, *further = json.loads(ran.stdout.splitlines()[-1])
    found[0].add(name, first)
    for used_s in further:
        found[1].add(name, used_s)


def main(source: str, bootstrap: str, topic: str, jars: str) -> None:
    import cordwood.spark

    settings: dict[str, Any] = {"spark.ui.enabled": False}
    if jars:
        settings["spark.jars"] = jars
    spark = cordwood.spark.session("start", "local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    used = []
    for _ in range(QUERIES):
        rows = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        frame = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
            before_s = cpu_seconds(os.getpid())
            query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            ends = time.monotonic() + _LONGEST_S
            while not Path(checkpoint, "offsets", "0").exists():
                if not query.isActive or time.monotonic() > ends:
                    raise RuntimeError(f"the query came to no offset: {query.exception()}")
                time.sleep(_LOOK_S)
            used.append(cpu_seconds(os.getpid()) - before_s)
            query.processAllAvailable()
            query.stop()
    spark.stop()
    print(json.dumps(used))


if __name__ == "__main__":
    main(*sys.argv[1:])
