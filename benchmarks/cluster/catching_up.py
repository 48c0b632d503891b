"""A node that was away: how fast it fetches what it lacks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from benchmarks.bench import Bench, Sample
from benchmarks.cluster.clusters import Cluster, Role
from benchmarks.cluster.probe import Probe
from benchmarks.figures import AS_MANY, Metric, limit_of
from benchmarks.processes import Meter
from benchmarks.storage import segments
from benchmarks.systems import System

PARTITIONS = 6
SIZE = 1024
_EVERY_S = 0.02
_METRICS = (
    Metric("MB/s from the first bytes to in sync", "MB/s", AS_MANY),
    Metric("in sync after its start", "s"),
    Metric("CPU of the cluster per GB", "s"),
)


def catch_up(bench: Bench) -> None:
    """Killed, left behind while another producer writes, and started again."""
    behind = 600_000_000 if bench.plan.quick else 4_000_000_000

    def measure(system: System) -> Sample:
        cluster = cast("Cluster", system)
        node = cluster.machine_of(Role.PLAIN)
        with bench.topic(cluster, partitions=PARTITIONS, durability="os") as topic:
            cluster.kill(node)
            survivors = {each: address for each, address in cluster.addresses.items() if each != node}
            with Probe(survivors, topic) as probe:
                probe.until_served(range(PARTITIONS))
            flags: dict[str, Any] = {"size": SIZE, "partitions": PARTITIONS, "messages": behind // SIZE}
            bench.load(cluster, "produce", topic, properties={"linger.ms": "5"}, acks="all", **flags)
            data = cluster.directory / f"node-{node}"
            had = _bytes_of(data, topic)
            began_s = time.monotonic()
            cluster.bring_back(node)
            while _bytes_of(data, topic) == had:
                time.sleep(_EVERY_S)
            meter = Meter(*cluster.pids)
            first_s = time.monotonic()
            with Probe(cluster.addresses, topic) as probe:
                ended_s = probe.until_in_sync(3, within_s=300)
            used = meter.usage()
            got = _bytes_of(data, topic) - had
        seconds = ended_s - first_s
        limit = limit_of(client=0, broker=used.busiest_thread_s / seconds, machine=used.machine_share)
        return Sample((got / seconds / 1e6, ended_s - began_s, used.cpu_s / (got / 1e9)), limit)

    case = f"{behind / 1e9:g} GB behind, {PARTITIONS} partitions"
    bench.alternate(case, _METRICS, bench.pair(), measure, rounds=bench.plan.few_rounds)


def _bytes_of(directory: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in segments(directory, topic))
