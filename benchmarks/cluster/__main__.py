"""`python -m benchmarks.cluster [--quick] [names...]`: three nodes of each system, side by side.

    python -m benchmarks.cluster --page benchmarks/results/cluster-2026-11-17-054500.json

The second form writes the figures of a run into docs/benchmarks.md.
"""

import dataclasses
import sys
from pathlib import Path

from benchmarks.bench import FULL, QUICK
from benchmarks.cluster.bench import ClusterBench
from benchmarks.cluster.catching_up import catch_up
from benchmarks.cluster.failover import failover, many
from benchmarks.cluster.idle import idle
from benchmarks.cluster.page import write_page
from benchmarks.cluster.writing import latency, produce
from benchmarks.running import Suite, run_suite
from benchmarks.scenario import Scenario

SUITE = Suite(
    "benchmarks.cluster",
    "Three nodes of Cordwood and of Apache Kafka side by side.",
    (
        Scenario("produce", "acks=all, 3 replicas: throughput and CPU of the cluster", produce, 130),
        Scenario("latency", "acks=all, 3 replicas: latency", latency, 110),
        Scenario("idle", "A cluster at rest", idle, 80),
        Scenario("catch-up", "A node that was away catches up", catch_up, 90),
        Scenario("failover", "The time without a leader", failover, 330),
        Scenario("many", "A third of 1,000 partitions loses its leader", many, 100),
    ),
    dataclasses.replace(FULL, warm_up_s=60),
    dataclasses.replace(QUICK, rounds=3, seconds=2.0, steady_s=4, warm_up_s=60, timeout_s=60, total_s=840),
    ClusterBench,
    "cluster-",
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--page"]:
        write_page(Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(run_suite(SUITE))
