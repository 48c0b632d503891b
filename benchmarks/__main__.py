"""`python -m benchmarks [--quick] [names...]`: one broker of each system, side by side.

    python -m benchmarks --page benchmarks/results/2026-11-17-084500.json

The second form writes the figures of a run of `workers` into docs/benchmarks.md.
"""

import sys
from pathlib import Path

from benchmarks.bench import FULL, QUICK
from benchmarks.cluster.page import write_page
from benchmarks.running import Suite, run_suite
from benchmarks.scenarios import SCENARIOS

SUITE = Suite("benchmarks", "Cordwood and Apache Kafka side by side.", SCENARIOS, FULL, QUICK)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--page"]:
        write_page(Path(sys.argv[2]), program=SUITE.program)
        sys.exit(0)
    sys.exit(run_suite(SUITE))
