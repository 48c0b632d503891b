"""`python -m benchmarks [--quick] [names...]`: one broker of each system, side by side."""

import sys

from benchmarks.bench import FULL, QUICK
from benchmarks.running import Suite, run_suite
from benchmarks.scenarios import SCENARIOS

SUITE = Suite("benchmarks", "Cordwood and Apache Kafka side by side.", SCENARIOS, FULL, QUICK)

if __name__ == "__main__":
    sys.exit(run_suite(SUITE))
