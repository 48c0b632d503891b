"""The suites: which tests each target of the Makefile runs, and how long it may take.

A test's suites follow from its folder (`HOMES`). A marker with a suite's name adds a suite: `@pytest.mark.landing` on a
test of tests/spark makes it one of the few Spark stories that `make test` tells. Outside of the folders in `HOMES` a
marker takes the place of `landing`: `@pytest.mark.spark` on a page of the docs leaves it to `make test-spark`.

    python -m tests.suites landing -- COMMAND    # runs COMMAND and prints its time against the suite's budget
"""

import os
import subprocess
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
LANDING = "landing"


class Suite(NamedTuple):
    target: str
    holds: str
    budget_min: int


SUITES = {
    LANDING: Suite("test", "lint, unit, property, fixed seeds, a small set of each kind of story", 8),
    "stories": Suite("test-stories", "long stories of commands, docs and brokers in processes of their own", 10),
    "spark": Suite("test-spark", "Spark's source and sink, pipelines, and the docs about them, on real Spark", 30),
    "versions": Suite("test-spark-versions", "Spark's source and sink on older versions of Spark", 20),
    "interop": Suite("test-interop", "other people's clients and tools against a real broker", 15),
    "crash": Suite("test-crash", "kill -9, power cuts and full disks, on real processes and file systems", 15),
    "soak": Suite("soak", "games, schedules, examples and kills with seeds that begin elsewhere every day", 60),
}

HOMES = {
    "spark": {"spark"},
    "spark_versions": {"versions"},
    "interop": {"interop"},
    "crash": {"crash", "soak"},
    "cluster": {"crash"},
    "fuzz": {LANDING, "soak"},
    "property": {LANDING, "soak"},
    "simulation": {LANDING, "soak"},
}
"""The suites of the tests in a folder. The tests of every other folder are in `landing`."""

SOAK_ENVIRONMENT = {
    "CORDWOOD_SIM_SEEDS": "150",
    "CORDWOOD_FAMILY_SCHEDULES": "1000",
    "CORDWOOD_FUZZ_ROUNDS": "5",
    "CORDWOOD_CRASH_ROUNDS": "20",
    "CORDWOOD_DAMAGE_ROUNDS": "10",
    "CORDWOOD_FAULT_MINUTES": "10",
    "CORDWOOD_COLUMNAR_EXAMPLES": "600",
}


def suites_of(path: Path, markers: Collection[str]) -> set[str]:
    """The suites of a test: never none."""
    folder = path.relative_to(TESTS).parts[0]
    added = {marker for marker in markers if marker in SUITES}
    if folder in HOMES:
        return HOMES[folder] | added
    return added or {LANDING}


def first_seed_of(day: datetime) -> int:
    return int(day.strftime("%Y%m%d")) * 10_000


def main() -> int:
    name, dashes, *command = sys.argv[1:]
    assert dashes == "--", __doc__
    assert command, __doc__
    suite = SUITES[name]
    environment = dict(os.environ)
    now = datetime.now(UTC)
    said = f"make {suite.target}: {suite.holds} (budget: {suite.budget_min} min)"
    if name == "soak":
        first_seed = environment.setdefault("CORDWOOD_FIRST_SEED", str(first_seed_of(now)))
        said += (
            f"\n{now:%Y-%m-%d}: seeds from {first_seed} on; the same again: CORDWOOD_FIRST_SEED={first_seed} make soak"
        )
        command.append(f"--hypothesis-seed={first_seed}")
        for variable, value in SOAK_ENVIRONMENT.items():
            environment.setdefault(variable, value)
    print(said, flush=True)
    began = time.monotonic()
    ended = subprocess.run(command, env=environment, check=False)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    over = "" if minutes < suite.budget_min else ": over its budget"
    result = "passed" if ended.returncode == 0 else "failed"
    print(f"make {suite.target} {result} in {minutes} min {seconds:02} s of {suite.budget_min} min{over}", flush=True)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
