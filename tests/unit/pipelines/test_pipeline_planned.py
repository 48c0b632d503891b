"""Plans that an edition keeps: durable before a batch is committed, compared when it comes again."""

from pathlib import Path

import pytest
from tests.spark.checkpoint_files import CheckpointFiles

from cordwood.pipelines.definition.errors import DamagedState, WrongState
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.planned import KeptPlan, PlannedBatches, read_kept
from cordwood.spark.checkpoints.plans import Plan


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFiles:
    return CheckpointFiles(tmp_path / "v1" / "checkpoint", "query")


def planned(checkpoint: CheckpointFiles) -> PlannedBatches:
    return PlannedBatches("p", checkpoint.directory.parent, checkpoint.directory, StateFiles())


def test_a_batch_that_comes_again_has_the_plan_that_it_had(checkpoint: CheckpointFiles) -> None:
    first = planned(checkpoint)
    for batch_id in (0, 1):
        text = checkpoint.plan(batch_id, 10 * (batch_id + 1))
        first.check(batch_id)
        first.make_durable("query", batch_id)
    assert read_kept(checkpoint.directory.parent) == KeptPlan("query", 1, Plan.parse(text))
    planned(checkpoint).check(1)
    checkpoint.plan(1, 20, timestamp_ms=9, settings="200")
    planned(checkpoint).check(1)
    checkpoint.plan(1, 25)
    with pytest.raises(WrongState, match=r'"0": 25.*"0": 20.*would be lost') as refused:
        planned(checkpoint).check(1)
    assert "repair-checkpoint" in str(refused.value.hint)


def test_nothing_is_kept_of_a_batch_that_has_no_plan(checkpoint: CheckpointFiles) -> None:
    checkpoint.plan(0, 10)
    checkpoint.empty("offsets/0")
    with pytest.raises(DamagedState, match="offsets/0 is empty"):
        planned(checkpoint).make_durable("query", 0)
    assert read_kept(checkpoint.directory.parent) is None


@pytest.mark.parametrize("content", ['{"format": 2}', '{"format": 1, "batch": 3}', "no json"])
def test_a_file_that_holds_no_plan_is_damage(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(DamagedState):
        read_kept(tmp_path)
