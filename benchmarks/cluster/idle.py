"""A cluster at rest: CPU and memory of all its processes."""

from __future__ import annotations

import time
from typing import cast

from benchmarks import processes
from benchmarks.bench import Bench, Sample
from benchmarks.cluster.clusters import Cluster
from benchmarks.figures import CPU, MEMORY, Metric
from benchmarks.processes import Meter
from benchmarks.systems import System

_METRICS = (
    Metric("CPU of all processes", "ms/s", CPU),
    Metric("CPU without etcd", "ms/s"),
    Metric("RSS of all processes", "MB", MEMORY),
    Metric("RSS without etcd", "MB"),
)


def idle(bench: Bench) -> None:
    """Without topics of users, and with 1,000 partitions of three replicas."""
    systems = bench.pair()
    rest_s, length_s = (3, 8) if bench.plan.quick else (10, 30)
    for partitions in (0, 1000):

        def measure(system: System, partitions: int = partitions) -> Sample:
            cluster = cast("Cluster", system)
            if not partitions:
                return _at_rest(cluster, rest_s, length_s)
            with bench.topic(cluster, partitions=partitions, durability="os"):
                return _at_rest(cluster, rest_s, length_s)

        case = f"{partitions:,} partitions" if partitions else "no topics"
        bench.alternate(case, _METRICS, systems, measure, rounds=1 if bench.plan.quick else 3)


def _at_rest(cluster: Cluster, rest_s: float, length_s: float) -> Sample:
    time.sleep(rest_s)
    kinds = cluster.processes_by_kind()
    all_of_them, brokers = Meter(*cluster.pids), Meter(*kinds["brokers"])
    time.sleep(length_s)
    shares = [meter.usage() for meter in (all_of_them, brokers)]
    whole, without = (1000 * used.cpu_s / used.wall_s for used in shares)
    rss = [sum(map(processes.rss_bytes, pids)) / 1e6 for pids in (cluster.pids, kinds["brokers"])]
    return Sample((whole, without, rss[0], rss[1]))
