"""`python -m benchmarks.spark_rules`: what ten rules cost a pipeline's batch, beside the same pipeline without rules.

Both pipelines run in one Spark session, batch by batch in turn, so that neither has a warmer JVM or a quieter machine.
The figure is the CPU of the driver, of Java and of the Python workers for a batch; the broker's is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.processes import cpu_seconds
from benchmarks.spark_plain_query import SCHEMA
from benchmarks.systems import CordwoodSystem
from cordwood.pipelines import expect, pipeline, topic
from cordwood.pipelines import json as json_format
from cordwood.pipelines.testing import PipelineTest
from cordwood.spark import session

RULES = [
    "amount >= 0",
    "amount < 1000000",
    "id is not null",
    "length(id) > 1",
    "customer like 'c%'",
    "customer <> 'test'",
    "placed >= 0",
    "placed < 4000000000",
    "amount * 1.19 < 2000000",
    "amount is not null and customer is not null",
]
SETTINGS = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
CASES = ("none", "ten on the input", "ten on the output", "ten that set aside")


def declared(case: str, read: str) -> Any:
    name = f"bench-{CASES.index(case)}"
    rules = [expect(rule, else_="quarantine" if case == CASES[3] else "drop") for rule in RULES]

    @pipeline(
        name,
        version=1,
        inputs=topic(read, value=json_format(SCHEMA), expect=rules if case in (CASES[1], CASES[3]) else ()),
        outputs=topic(f"{name}.out", key="id", expect=rules if case == CASES[2] else ()),
    )
    def bench(orders: Any) -> Any:
        return orders.where("amount >= 0").withColumn("with_tax", orders["amount"] * 1.19)

    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--cold", type=int, default=3, help="rounds that do not count: the JVM compiles in them")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rules-") as directory,
        session("rules", master="local[2]", **SETTINGS, **{"spark.local.dir": f"{directory}/local"}) as spark,
    ):
        broker = CordwoodSystem(Path(directory) / "broker")
        broker.start()
        try:
            tests = {
                case: PipelineTest(
                    declared(case, f"orders-{number}"),
                    spark,
                    broker.bootstrap,
                    Path(directory) / str(number),
                    partitions=2,
                )
                for number, case in enumerate(CASES)
            }

            def used() -> float:
                return cpu_seconds(os.getpid()) - cpu_seconds(broker.pid)

            spent: dict[str, list[float]] = {case: [] for case in CASES}
            for number in range(given.cold + given.rounds):
                order = CASES if number % 2 else CASES[::-1]
                for case in order:
                    test = tests[case]
                    produce(broker.bootstrap, test.pipeline.inputs["orders"].name, given.rows)
                    before_s, began_s = used(), time.monotonic()
                    batch = test.run_batch()
                    used_s, took_s = used() - before_s, time.monotonic() - began_s
                    assert batch.rows_in == given.rows
                    if number >= given.cold:
                        spent[case].append(used_s)
                    print(f"round {number} · {case}: {used_s:.2f} s of CPU, {took_s:.2f} s", flush=True)
        finally:
            broker.stop()
    plain = statistics.median(spent[CASES[0]])
    for case in CASES:
        median = statistics.median(spent[case])
        print(f"{case:20} {median:6.2f} s of CPU for a batch of {given.rows:,} rows, ratio {median / plain:.3f}")


def produce(bootstrap: str, read: str, rows: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(rows):
        order = {"id": f"o{number}", "customer": f"c{number % 1000}", "amount": number / 100, "placed": number}
        producer.produce(read, json.dumps(order, separators=(",", ":")), f"o{number}", partition=number % 2)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(600) == 0


if __name__ == "__main__":
    main()
