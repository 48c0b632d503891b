"""`python -m benchmarks.cluster.moves [--quick] [drain growth]`: partitions on the move while a producer writes.

    python -m benchmarks.cluster.moves --page benchmarks/results/moves-2026-11-17-084500.json

The second form writes the figures of a run into docs/benchmarks.md. Kafka does not run beside it.
"""

import dataclasses
import sys
from pathlib import Path

from benchmarks.bench import FULL, QUICK
from benchmarks.cluster.bench import ClusterBench
from benchmarks.cluster.moving import drain, growth
from benchmarks.cluster.page import write_page
from benchmarks.figures import CORDWOOD
from benchmarks.running import Suite, run_suite
from benchmarks.scenario import Scenario

SUITE = Suite(
    "benchmarks.cluster.moves",
    "A node of Cordwood's cluster is emptied, or joins, while a producer writes.",
    (
        Scenario("drain", "A node is emptied while a producer writes", drain, 200),
        Scenario("growth", "A node joins, and gets its share while a producer writes", growth, 200),
    ),
    FULL,
    dataclasses.replace(QUICK, timeout_s=120, total_s=420),
    ClusterBench,
    "moves-",
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--page"]:
        write_page(Path(sys.argv[2]), program=SUITE.program)
        sys.exit(0)
    sys.exit(run_suite(SUITE, [*sys.argv[1:], "--only", CORDWOOD]))
