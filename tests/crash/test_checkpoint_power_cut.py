"""A checkpoint of Spark's on a disk that loses its power: what was synced before a decision is there after it."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.spark.checkpoint_files import CheckpointFiles

from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.planned import PlannedBatches, read_kept
from cordwood.spark.checkpoints.owner import Owner, read_owner, write_owner
from cordwood.spark.checkpoints.plans import read_plan
from cordwood.spark.checkpoints.syncing import STAMP, replace_in_checkpoint, sync_checkpoint


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=64)
    except MountUnavailable as reason:
        pytest.skip(f"there is no power to cut here: {reason}")
    yield disk
    disk.destroy()


def cut(disk: LoopDisk) -> None:
    disk.cut_power()
    disk.unmount()
    disk.mount()


def written(checkpoint: CheckpointFiles, batch_id: int, partitions: int) -> dict[Path, bytes]:
    """What Spark writes from the plan of a batch to the sink's commit, with state."""
    checkpoint.plan(batch_id, 10 * (batch_id + 1))
    for partition in range(partitions):
        directory = checkpoint.path(f"state/0/{partition}")
        directory.mkdir(parents=True, exist_ok=True)
        beside = directory / f".{batch_id + 1}.delta.tmp"
        beside.write_bytes(os.urandom(300))
        beside.rename(directory / f"{batch_id + 1}.delta")
    found = (path for path in checkpoint.directory.rglob("*") if path.is_file() and path.name != STAMP)
    return {path: path.read_bytes() for path in found}


def await_later_times(directory: Path) -> None:
    """Returns when a new file would get a later time than all that are there: the clock of a file system goes in
    steps."""
    probe = directory / "probe"
    probe.touch()
    began_ns = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns <= began_ns:
        probe.touch()


@pytest.mark.parametrize("partitions", [0, 60], ids=["without state", "with state"])
def test_what_was_synced_before_a_decision_survives_a_power_cut(disk: LoopDisk, partitions: int) -> None:
    checkpoint = CheckpointFiles(disk.path / "new" / "parents" / "checkpoint", str(uuid.uuid4()))
    for batch_id in range(3):
        there = written(checkpoint, batch_id, partitions)
        sync_checkpoint(checkpoint.directory)
        cut(disk)
        assert {path: path.read_bytes() for path in there if path.exists()} == there
        assert read_plan(checkpoint.directory, batch_id).sources == (f'{{"orders": {{"0": {10 * (batch_id + 1)}}}}}',)
        checkpoint.commit(batch_id)


def test_only_what_is_new_is_synced(tmp_path: Path) -> None:
    checkpoint = CheckpointFiles(tmp_path / "checkpoint", str(uuid.uuid4()))
    written(checkpoint, 0, 50)
    await_later_times(tmp_path)  # a file that is as old as the sync may be newer: it is synced again
    sync_checkpoint(checkpoint.directory)
    await_later_times(tmp_path)
    checkpoint.commit(0)
    written(checkpoint, 1, 5)
    # A plan, a commit, with their checksums and directories, the checkpoint; a file and a directory of each partition.
    assert 6 + 2 * 5 <= sync_checkpoint(checkpoint.directory) <= 7 + 2 * 5


def test_what_was_not_synced_is_gone_so_that_the_test_above_means_something(disk: LoopDisk) -> None:
    checkpoint = CheckpointFiles(disk.path / "checkpoint", str(uuid.uuid4()))
    written(checkpoint, 0, 1)
    sync_checkpoint(checkpoint.directory)
    written(checkpoint, 1, 1)
    cut(disk)
    left = {str(path.relative_to(checkpoint.directory)) for path in checkpoint.directory.rglob("*")}
    assert {"offsets/0", "state/0/0/1.delta"} <= left
    assert not {"offsets/1", "state/0/0/2.delta"} & left


def test_everything_is_synced_after_the_clock_was_set_back(disk: LoopDisk) -> None:
    checkpoint = CheckpointFiles(disk.path / "checkpoint", str(uuid.uuid4()))
    written(checkpoint, 0, 1)
    sync_checkpoint(checkpoint.directory)
    there = written(checkpoint, 1, 1)
    tomorrow = time.time() + 86_400
    os.utime(checkpoint.path(STAMP), (tomorrow, tomorrow))
    sync_checkpoint(checkpoint.directory)
    cut(disk)
    assert {path: path.read_bytes() for path in there if path.exists()} == there


def test_a_repaired_file_and_the_witness_survive_a_power_cut(disk: LoopDisk) -> None:
    checkpoint = CheckpointFiles(disk.path / "checkpoint", "query")
    sync_checkpoint(checkpoint.directory)
    write_owner(checkpoint.directory, Owner("query", "family"))
    replace_in_checkpoint(checkpoint.path("offsets/0"), b"plan")
    cut(disk)
    assert read_owner(checkpoint.directory) == Owner("query", "family")
    assert checkpoint.path("offsets/0").read_bytes() == b"plan"


def test_what_an_edition_of_a_pipeline_may_have_committed_can_be_repeated_after_a_power_cut(disk: LoopDisk) -> None:
    edition = disk.path / "orders" / "editions" / "v1"
    checkpoint = CheckpointFiles(edition / "checkpoint", "query")
    for batch_id in range(2):
        there = written(checkpoint, batch_id, 3)
        PlannedBatches("orders", edition, checkpoint.directory, StateFiles()).make_durable("query", batch_id)
        cut(disk)
        assert {path: path.read_bytes() for path in there if path.exists()} == there
        kept = read_kept(edition)
        assert kept is not None
        assert (kept.query_id, kept.batch_id) == ("query", batch_id)
        assert kept.plan == read_plan(checkpoint.directory, batch_id)
