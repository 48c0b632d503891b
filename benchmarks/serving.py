"""`python -m benchmarks.serving`: pipelines that share one Spark, beside pipelines with a Spark each.

Runs, each from cold: some `cordwood pipeline run` of one pipeline each, `cordwood pipeline serve` with one pipeline,
and with many. Of each run

- the memory: the proportional share of pages, so that pages of forked processes count once; the most that a look every
  two seconds saw while nothing came in, and while every pipeline got records;
- the CPU while nothing comes in;
- the time of one record through an idle pipeline, from the producer's call to a reader of the output topic.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.maven import PEERS
from benchmarks.processes import thread_seconds, tree
from benchmarks.systems import CordwoodSystem, create_topics

FILE = """
from cordwood.pipelines import *

@pipeline("{name}", version=1, inputs=topic("{read}", value=json("id string, amount int")),
          outputs=topic("{written}", key="id"), spark={{"spark.ui.enabled": "false"{spark}}})
def numbers(orders):
    return orders.selectExpr("id", "amount * 2 as amount", "_record")
"""
KINDS = {
    "java": "/bin/java",
    "planners": "workers.planner",
    "Python workers": "workers.daemon",
    "driver": ".worker",
    "command": "cordwood",
}
"""Kinds of processes, and a part of their command lines; the first that fits counts."""
_LOOK_S = 2.0
_WARM_BATCHES = 4
_LONGEST_S = 1800


@dataclass(frozen=True)
class Measured:
    pipelines: int
    idle_bytes: Counter[str]
    active_bytes: Counter[str]
    processes: int
    idle_cores: float
    latency_s: float
    active_batches: int
    active_s: float

    def __str__(self) -> str:
        def shown(used: Counter[str]) -> str:
            parts = ", ".join(f"{kind} {size / 2**20:.0f}" for kind, size in used.most_common())
            return f"{used.total() / 2**30:.2f} GiB ({parts} MiB)"

        return (
            f"idle {shown(self.idle_bytes)} in {self.processes} processes, {self.idle_cores:.1%} of a core; "
            f"one record in {self.latency_s:.2f} s (median); active {shown(self.active_bytes)}, "
            f"{self.active_batches / self.active_s:.1f} batches/s"
        )


def kind_of(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return next((kind for kind, part in KINDS.items() if part in command), "other")


def pss_bytes(pids: list[int]) -> Counter[str]:
    """The proportional set size of these processes, by kind: a page that several share counts once."""
    found: Counter[str] = Counter()
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found[kind_of(pid)] += int(line.split()[1]) * 1024
        except OSError:
            continue
    return found


class Run:
    """Pipelines, each with topics of its own, under one `serve`, or each under a `run`."""

    def __init__(self, broker: CordwoodSystem, directory: Path, count: int, *, served: bool, spark: str) -> None:
        self.broker = broker
        suffix = uuid.uuid4().hex[:6]
        self.names = [f"p{number}-{suffix}" for number in range(count)]
        files = directory / suffix
        files.mkdir()
        topics = [f"{name}.{side}" for name in self.names for side in ("in", "out")]
        create_topics(broker, topics, 1, broker.topic_settings("os"))
        for name in self.names:
            text = FILE.format(name=name, read=f"{name}.in", written=f"{name}.out", spark=spark)
            (files / f"{name}.py").write_text(text)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self.events = files / "events"
        self.put_to_all()
        commands = [["serve", str(files)]] if served else [["run", str(files / f"{name}.py")] for name in self.names]
        self.processes: list[subprocess.Popen[bytes]] = []
        for what in commands:
            command = [str(Path(sys.executable).with_name("cordwood")), "pipeline", *what, "--json"]
            command += ["-d", str(files / "state"), "-b", broker.bootstrap]
            with self.events.open("ab") as out:
                started = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            self.processes.append(started)

    def put(self, name: str) -> None:
        self.producer.produce(f"{name}.in", json.dumps({"id": "a", "amount": 1}))
        assert self.producer.flush(60) == 0

    def put_to_all(self) -> None:
        for name in self.names:
            self.put(name)

    def batches(self) -> Counter[str]:
        lines = [line for line in self.events.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return Counter(each["pipeline"] for each in map(json.loads, lines) if each["event"] == "batch")

    def wait_for_batches(self, count: int) -> None:
        deadline = time.monotonic() + _LONGEST_S
        while min((done := self.batches())[name] for name in self.names) < count:
            assert all(process.poll() is None for process in self.processes), self.events.read_text()[-3000:]
            assert time.monotonic() < deadline, f"{done}\n{self.events.read_text()[-3000:]}"
            time.sleep(0.5)

    def latency_s(self, name: str) -> float:
        """The time of one record from the producer's call to a reader of committed records."""
        reader = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        partition = TopicPartition(f"{name}.out", 0)
        _, end = reader.get_watermark_offsets(partition, timeout=30)
        reader.assign([TopicPartition(f"{name}.out", 0, end)])
        reader.poll(0.5)
        began_s = time.monotonic()
        self.put(name)
        while True:
            message = reader.poll(60)
            assert message is not None, "no record within a minute"
            if message.error() is None:
                took_s = time.monotonic() - began_s
                reader.close()
                return took_s

    @property
    def pids(self) -> list[int]:
        return sorted({pid for process in self.processes for pid in tree(process.pid)})

    def most_bytes(self, during_s: float, meanwhile: Callable[[], None]) -> Counter[str]:
        """The most memory that any look saw."""
        most: Counter[str] = Counter()
        ends = time.monotonic() + during_s
        while time.monotonic() < ends:
            looked_s = time.monotonic()
            meanwhile()
            most = max(most, pss_bytes(self.pids), key=Counter.total)
            time.sleep(max(0.0, _LOOK_S - (time.monotonic() - looked_s)))
        return most

    def measure(self, seconds: float, records: int) -> Measured:
        self.wait_for_batches(1)
        for warm in range(2, _WARM_BATCHES + 1):
            self.put_to_all()
            self.wait_for_batches(warm)
        time.sleep(5)
        before, began_s = self.threads_s, time.monotonic()
        time.sleep(seconds)
        after, took_s = self.threads_s, time.monotonic() - began_s
        idle_cores = sum(used_s - before.get(thread, 0.0) for thread, used_s in after.items()) / took_s
        latency_s = statistics.median(self.latency_s(self.names[each % len(self.names)]) for each in range(records))
        idle_bytes, count = self.most_bytes(_LOOK_S * 2, lambda: None), len(self.pids)
        done_before, began_s = self.batches().total(), time.monotonic()
        active_bytes = self.most_bytes(seconds, self.put_to_all)
        done, active_s = self.batches().total() - done_before, time.monotonic() - began_s
        return Measured(len(self.names), idle_bytes, active_bytes, count, idle_cores, latency_s, done, active_s)

    @property
    def threads_s(self) -> dict[int, float]:
        """The CPU time of each thread that lives now. A thread that ends while nothing comes in has little of it."""
        return {thread: used_s for process in self.processes for thread, used_s in thread_seconds(process.pid).items()}

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        try:
            for process in self.processes:
                process.wait(300)
        finally:
            for process in self.processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def summary(alone: Measured, one: Measured, many: Measured) -> str:
    further = many.pipelines - one.pipelines
    memory = (many.idle_bytes.total() - one.idle_bytes.total()) / further / 2**30
    idle = (many.idle_cores - one.idle_cores) / further
    each = alone.idle_bytes.total() / alone.pipelines / 2**30
    return (
        f"each further one: {memory:.2f} GiB, {idle:.1%} of a core; a record: {many.latency_s / alone.latency_s:.2f}x "
        f"of run; {many.pipelines} runs would take {each * many.pipelines:.1f} GiB"
    )


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    options.add_argument("--pipelines", type=int, default=20, help="of the serve with many")
    options.add_argument("--runs", type=int, default=3, help="pipelines with a Spark each")
    options.add_argument("--seconds", type=float, default=30, help="without records, and with records for all")
    options.add_argument("--records", type=int, default=20, help="for the latency")
    options.add_argument("--memory", default="1g", help="spark.driver.memory of all runs")
    options.add_argument("--only", choices=("run", "one", "many"), help="one of the three runs")
    given = options.parse_args()
    PEERS.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="serving-", dir=os.environ.get("TMPDIR", PEERS)))
    broker = CordwoodSystem(directory / "broker")
    broker.start()
    found: list[Measured] = []
    try:
        for name, count, served in (("run", given.runs, False), ("one", 1, True), ("many", given.pipelines, True)):
            if given.only in (None, name):
                run = Run(broker, directory, count, served=served, spark=f', "spark.driver.memory": "{given.memory}"')
                try:
                    found.append(run.measure(given.seconds, given.records))
                finally:
                    run.end()
                print(f"{'serve' if served else 'run'}, {count} pipelines: {found[-1]}", flush=True)
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if len(found) == 3:
        print(summary(*found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
