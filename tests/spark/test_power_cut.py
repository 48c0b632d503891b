"""The driver's machine loses power, and with it the unsynced files of Spark's checkpoint: no row is lost or doubled.

CORDWOOD_SPARK_CRASH_ROUNDS plays every step of a write, with and without state, and of a pipeline to two tables and a
topic; without it the worst step is played.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.spark.power_cut_story import PipelinePowerCutStory, PowerCutStory

from cordwood.spark.sink.steps import Step

LONG = "CORDWOOD_SPARK_CRASH_ROUNDS" in os.environ
STEPS = [
    Step.TASK_STARTED,
    Step.TASK_COMPLETED,
    Step.DRIVER_DECIDING,
    Step.DRIVER_SYNCED,
    Step.DRIVER_DECIDED,
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=64)
    except MountUnavailable as reason:
        pytest.skip(f"there is no power to cut here: {reason}")
    yield disk
    disk.destroy()


@pytest.fixture
def story(
    broker: RunningBroker, make_topic: MakeTopic, disk: LoopDisk, tmp_path: Path, stateful: bool
) -> Iterator[PowerCutStory]:
    source, target = make_topic(partitions=1), make_topic(partitions=1)
    story = PowerCutStory(tmp_path, disk, broker.bootstrap, source, target, stateful=stateful)
    yield story
    story.end()


@pytest.fixture
def pipeline_story(
    broker: RunningBroker, make_topic: MakeTopic, disk: LoopDisk, tmp_path: Path
) -> Iterator[PipelinePowerCutStory]:
    source, target = make_topic(partitions=1), make_topic(partitions=1)
    story = PipelinePowerCutStory(tmp_path, disk, broker.bootstrap, source, target)
    yield story
    story.end()


@pytest.mark.parametrize("stateful", [True])
def test_no_row_is_lost_or_doubled_when_the_power_fails_after_the_decision(story: PowerCutStory) -> None:
    story.add(10)
    story.run()
    story.add(7)
    story.run_and_cut_at(Step.DRIVER_DECIDED)
    story.add(5)  # a batch that is planned again would include these rows, and be skipped
    story.run()
    story.check()


def test_no_row_of_a_table_is_lost_or_doubled_when_the_power_fails_between_table_and_topic(
    pipeline_story: PipelinePowerCutStory,
) -> None:
    pipeline_story.add(10)
    pipeline_story.run_and_cut_at(Step.DRIVER_DECIDING)
    pipeline_story.add(5)
    pipeline_story.run()
    pipeline_story.check()


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="CORDWOOD_SPARK_CRASH_ROUNDS plays every step")
@pytest.mark.parametrize("stateful", [False, True], ids=["without state", "with state"])
def test_no_row_is_lost_or_doubled_when_the_power_fails_at_any_step(story: PowerCutStory) -> None:
    cut_at_every_step(story)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="CORDWOOD_SPARK_CRASH_ROUNDS plays every step")
def test_no_row_of_a_table_is_lost_or_doubled_when_the_power_fails_at_any_step(
    pipeline_story: PipelinePowerCutStory,
) -> None:
    # Tables are committed before topics: at the steps of the topic's decision the tables have the batch already.
    cut_at_every_step(pipeline_story)


def cut_at_every_step(story: PowerCutStory) -> None:
    story.add(10)
    story.run_and_cut_at(Step.DRIVER_DECIDED)  # in the first batch: the whole checkpoint is new
    for step in STEPS:
        story.add(5)
        story.run()
        story.check()
        story.add(7)
        story.run_and_cut_at(step)
    story.add(5)
    story.run()
    story.cut()
    story.add(5)
    story.run()
    story.check()
