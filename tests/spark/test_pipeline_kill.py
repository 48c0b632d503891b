"""`cordwood pipeline run` with its worker and Spark killed in the middle: nothing lost, nothing doubled."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.spark.conftest import Load, Produce, Record

from cordwood.pipelines.editions.project import table_path

RECORDS = 150
WITHIN_S = 600


@pytest.mark.skipif(
    "CORDWOOD_SPARK_CRASH_ROUNDS" not in os.environ,
    reason="the demo kills a pipeline and counts; this longer story needs CORDWOOD_SPARK_CRASH_ROUNDS",
)
def test_nothing_is_lost_or_doubled_when_the_worker_is_killed_in_the_middle(
    broker: RunningBroker, make_topic: MakeTopic, put: Produce, load: Load, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    name = f"p-{topic[-6:]}"
    file = tmp_path / "pipeline.py"
    file.write_text(
        dedent(
            f"""
            from cordwood.pipelines import *

            @pipeline("{name}", version=1, max_rows_per_batch=25, trigger="100 milliseconds",
                      inputs=topic("{topic}", value=json("n int not null")), quarantine=budget(rows=25),
                      outputs={{"all": table("{name}"), "latest": table("{name}-latest", key="n"),
                               "out": topic("{name}.out")}},
                      spark={{"spark.master": "local[2]", "spark.ui.enabled": "false"}})
            def copied(numbers):
                return {{"all": numbers, "latest": numbers, "out": numbers}}
            """
        )
    )
    poison = {"0": 17, "1": 61}
    for partition in (0, 1):
        values = [json.dumps({"n": 2 * number + partition}).encode() for number in range(RECORDS // 2)]
        values[poison[str(partition)]] = b"poison"
        put(topic, [Record(value, partition=partition) for value in values])

    output = tmp_path / "events"
    with open(output, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood.cli", "pipeline", "run", str(file), "--json"],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "CORDWOOD_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )

    def events(kind: str) -> list[dict[str, Any]]:
        lines = output.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in found if event["event"] == kind]

    def done(batches: int) -> bool:
        assert process.poll() is None, output.read_text()[-4000:]
        return len(events("batch")) >= batches

    try:
        eventually(lambda: done(2), within_s=WITHIN_S, what="two batches")
        os.killpg(events("started")[0]["pid"], signal.SIGKILL)
        eventually(lambda: len(events("started")), to_be=2, within_s=WITHIN_S, what="the second worker")
        assert "signal 9" in events("failed")[0]["message"]
        eventually(lambda: done(2) and events("batch")[-1]["lag"] == 0, within_s=WITHIN_S, what="the end of the log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0, output.read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

    project = tmp_path / "cordwood-pipelines"
    good = set(range(RECORDS)) - {2 * poison["0"], 2 * poison["1"] + 1}
    for table in (name, f"{name}-latest"):
        rows = DeltaTable(table_path(table, project)).to_pyarrow_table().column("n").to_pylist()
        assert Counter(rows) == dict.fromkeys(good, 1), table
    reading = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    written = [json.loads(bytes(row["value"]))["n"] for row in load(f"{name}.out", **reading).collect()]
    assert Counter(written) == dict.fromkeys(good, 1)
    assert load(f"{name}.quarantine", **reading).count() == 2


def test_a_killed_java_process_is_named_at_the_end_and_by_status(
    broker: RunningBroker, make_topic: MakeTopic, put: Produce, tmp_path: Path
) -> None:
    topic = make_topic(partitions=1)
    name = f"p-{topic[-6:]}"
    file = tmp_path / "pipeline.py"
    file.write_text(
        dedent(
            f"""
            from cordwood.pipelines import *

            @pipeline("{name}", version=1, inputs=topic("{topic}"),
                      outputs={{"all": table("{name}"), "out": topic("{name}.out", value=raw())}},
                      spark={{"spark.master": "local[1]", "spark.ui.enabled": "false"}})
            def copied(records):
                return {{"all": records, "out": records}}
            """
        )
    )
    put(topic, [Record(b"1")])
    environment = {**os.environ, "CORDWOOD_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}

    def command(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "cordwood.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
            start_new_session=True,
        )

    process = command("pipeline", "run", str(file), "--json", "--max-restarts", "0")
    try:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "started":
                worker = event["pid"]
            if event["event"] == "batch":
                os.kill(java_of(worker), signal.SIGKILL)
                break
        said = process.communicate(timeout=WITHIN_S)[1]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 1
    error = json.loads(said.splitlines()[-1])["error"]["message"]
    assert error == f"{name} v1: Spark's Java process was killed (signal 9, by the system if memory ran out)"
    status, _ = command("pipeline", "status", name).communicate(timeout=WITHIN_S)
    assert "Spark's Java process was killed (signal 9" in " ".join(status.split())
    assert "Py4J" not in said + status
    families, _ = command("transaction", "families", "--json").communicate(timeout=WITHIN_S)
    assert f"{name}.v1 to {name}.out" in [family["query"] for family in json.loads(families)]


def java_of(worker: int) -> int:
    """The Java process in the session that a worker leads."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(") ")[2].split()
                if int(after_name[3]) == worker and (entry / "comm").read_text().strip() == "java":
                    return int(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
    raise AssertionError(f"no Java in the session of {worker}")
