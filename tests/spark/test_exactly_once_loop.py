"""Exactly once while driver, executors and broker are killed between all steps of a write, compared record by record.

CORDWOOD_SPARK_CRASH_ROUNDS=20 plays every step with every victim 20 times, in orders that differ by seed
(CORDWOOD_SPARK_CRASH_SEED); without it a selection is played once.
"""

import os
import random
from pathlib import Path

import pytest
from tests.spark.crash_story import CrashStory, Fault
from tests.spark.standalone import standalone_cluster

from cordwood.spark.sink.steps import Step

ROUNDS = int(os.environ.get("CORDWOOD_SPARK_CRASH_ROUNDS", "0"))
SEED = int(os.environ.get("CORDWOOD_SPARK_CRASH_SEED", "1"))

STEPS = [step.value for step in Step]
TASK_STEPS = [step for step in STEPS if step.startswith("task")]
ABORT_STEPS = ["driver-aborting", "driver-aborted"]
COMMIT_STEPS = ["driver-deciding", "driver-decided"]


def at(step: str, victim: str) -> Fault:
    """A fault at a step. A batch is aborted only when its commit fails, so the steps of an abort need such a failure
    first."""
    return {"driver-deciding": "worker", step: victim} if step in ABORT_STEPS else {step: victim}


def all_faults() -> list[Fault]:
    return [at(step, victim) for step in STEPS for victim in ("worker", "driver", "broker", "broker driver")]


def some_faults(chance: random.Random) -> list[Fault]:
    """Some steps with a victim that the driver survives, and one step with a victim that it does not survive."""
    survived = [at(step, chance.choice(["worker", "broker"])) for step in TASK_STEPS]
    survived += [at(step, "broker") for step in COMMIT_STEPS]
    deadly = [at(chance.choice(COMMIT_STEPS), "driver"), at(chance.choice(TASK_STEPS + ABORT_STEPS), "broker driver")]
    # A few faults, since each death costs a start of Spark; CORDWOOD_SPARK_CRASH_ROUNDS plays all of them.
    faults = chance.sample(survived, 3) + deadly[:1]
    chance.shuffle(faults)
    return faults


@pytest.mark.skipif(ROUNDS > 0, reason="all steps with all victims are played instead")
def test_every_line_is_written_once_whoever_is_killed(tmp_path: Path) -> None:
    with CrashStory(tmp_path) as story:
        story.play(some_faults(random.Random(SEED)))
        story.check()
    assert story.runs > 1


needs_time = pytest.mark.skipif(ROUNDS == 0, reason="takes minutes: set CORDWOOD_SPARK_CRASH_ROUNDS")


@needs_time
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_every_line_is_written_once_whoever_is_killed_at_whichever_step(tmp_path: Path, number: int) -> None:
    faults = all_faults()
    random.Random(SEED + number).shuffle(faults)
    with CrashStory(tmp_path) as story:
        story.play(faults)
        story.check()


@needs_time
@pytest.mark.timeout(3600)
def test_every_line_is_written_once_with_speculative_attempts_and_executors_that_die(tmp_path: Path) -> None:
    speculation = {
        "spark.speculation": True,
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.executor.memory": "512m",
    }
    mark = tmp_path / "speculated"
    delay = {"task": 0, "seconds": 60, "mark": str(mark)}
    # Spark never makes two attempts at a task on one host at a time.
    with standalone_cluster(tmp_path, hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        master, workers = cluster
        with CrashStory(tmp_path, master=master, workers=workers, settings=speculation, delay=delay) as story:
            story.play(
                [at("task-produced", "executor"), at("driver-deciding", "executor"), at("task-joined", "worker")]
            )
            story.check()
    assert mark.exists(), "no attempt was made beside another"
