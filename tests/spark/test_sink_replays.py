"""A micro-batch that is repeated after its plan, or its query's id, got lost: refused, and never skipped."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.checkpoint_files import CheckpointFiles
from tests.spark.sink_query import Query

from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.spark.checkpoints.owner import read_owner
from cordwood.spark.checkpoints.plans import Plan
from cordwood.spark.sink.planned import ChangedBatch, LostMetadata
from cordwood.spark.sink.protocol import SinkFailure, UnknownFamily

MakeQuery = Callable[..., Query]


@pytest.fixture
def query(broker: RunningBroker, make_topic: MakeTopic) -> MakeQuery:
    topic = make_topic(partitions=1)

    def make(**options: str) -> Query:
        return Query(broker.bootstrap, topic, **{"kafka.linger.ms": "0", **options})

    return make


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFiles:
    return CheckpointFiles(tmp_path / "checkpoint", str(uuid.uuid4()))


def local(query: MakeQuery, checkpoint: CheckpointFiles, **options: str) -> Query:
    made = query(checkpointLocation=str(checkpoint.directory), **options)
    made.family = checkpoint.query_id
    return made


def run(query: Query, batch_id: int, *rows: str) -> None:
    query.commit(batch_id, query.task(batch_id, 0, list(rows)), query.task(batch_id, 1, []))


# A checkpoint on this machine


def test_a_decided_batch_that_is_planned_anew_with_more_rows_is_refused(
    query: MakeQuery, checkpoint: CheckpointFiles
) -> None:
    checkpoint.plan(0, 2)
    run(local(query, checkpoint), 0, "a", "b")
    checkpoint.lose("offsets/0")
    checkpoint.plan(0, 3)
    again = local(query, checkpoint)
    for _ in range(2):  # another start is refused, too
        with pytest.raises(ChangedBatch, match=r'"0": 2.*"0": 3.*repair-checkpoint'):
            run(again, 0, "a", "b", "c")
    assert again.visible() == ["a", "b"]


def test_a_repeated_batch_with_the_same_plan_passes_whatever_its_rows_and_settings(
    query: MakeQuery, checkpoint: CheckpointFiles
) -> None:
    checkpoint.plan(0, 2, 7)
    run(local(query, checkpoint), 0, "a", "b")
    checkpoint.plan(0, 2, 7, timestamp_ms=99, settings="200")
    run(local(query, checkpoint), 0, "another row")
    checkpoint.plan(1, 4, 8)
    run(local(query, checkpoint), 1, "c")
    assert local(query, checkpoint).visible() == ["a", "b", "c"]


def test_the_decision_keeps_the_whole_plan(query: MakeQuery, checkpoint: CheckpointFiles) -> None:
    text = checkpoint.plan(0, 2)
    stream = local(query, checkpoint)
    run(stream, 0, "a", "b")
    with Cluster(ClientSettings(stream.bootstrap)) as cluster:
        kept = cluster.family_recall(stream.family)
    assert (kept.last_batch_id, kept.plan.rows) == (0, 2)
    assert Plan.unpack(kept.plan.text).text == text


def test_a_plan_that_is_too_long_to_be_kept_is_compared_all_the_same(
    query: MakeQuery, checkpoint: CheckpointFiles
) -> None:
    noise = "".join(uuid.uuid4().hex for _ in range(2000))
    checkpoint.plan(0, 2, settings=noise)
    run(local(query, checkpoint), 0, "a")
    checkpoint.plan(0, 3, settings=noise)
    with pytest.raises(ChangedBatch, match="repair-checkpoint"):
        run(local(query, checkpoint), 0, "a", "b")


@pytest.mark.parametrize("damage", ["lose", "empty"])
def test_nothing_is_decided_without_a_plan(query: MakeQuery, checkpoint: CheckpointFiles, damage: str) -> None:
    checkpoint.plan(0, 2)
    getattr(checkpoint, damage)("offsets/0")
    stream = local(query, checkpoint)
    with pytest.raises(SinkFailure, match=r"offsets/0 is (missing|empty)"):
        run(stream, 0, "a")
    assert stream.visible() == []


@pytest.mark.parametrize("batch_id", [0, 1])
def test_a_checkpoint_that_lost_its_metadata_is_refused_under_its_new_id(
    query: MakeQuery, checkpoint: CheckpointFiles, batch_id: int
) -> None:
    for number in range(batch_id + 1):
        checkpoint.plan(number, number + 1)
        run(local(query, checkpoint), number, str(number))
    before = checkpoint.query_id
    checkpoint.query_id = str(uuid.uuid4())
    checkpoint.give_id(checkpoint.query_id)
    renamed = local(query, checkpoint)
    with pytest.raises(LostMetadata if batch_id == 0 else UnknownFamily, match="repair-checkpoint"):
        run(renamed, batch_id, str(batch_id))
    assert renamed.visible() == [str(number) for number in range(batch_id + 1)]
    owner = read_owner(checkpoint.directory)
    assert owner is not None
    assert (owner.query_id, owner.family) == (before, before)


# A checkpoint elsewhere


def test_a_repeated_batch_with_another_number_of_rows_is_refused_where_its_plan_is_not_known(query: MakeQuery) -> None:
    stream = query(checkpointLocation="s3a://bucket/checkpoint")
    run(stream, 0, "a", "b")
    run(stream, 0, "b", "a")
    with pytest.raises(ChangedBatch, match=r"written with 2 rows and has 3 now.*otherRowCount"):
        run(stream, 0, "a", "b", "c")
    lenient = query(checkpointLocation="s3a://bucket/checkpoint", otherRowCount="skip")
    lenient.family = stream.family
    run(lenient, 0, "a", "b", "c")
    assert stream.visible() == ["a", "b"]


@pytest.mark.parametrize("rows", [["a"], []], ids=["with rows", "without rows"])
def test_a_query_that_the_broker_does_not_know_begins_with_batch_0(query: MakeQuery, rows: list[str]) -> None:
    stream = query()
    with pytest.raises(UnknownFamily, match=r"Batch 7 is not the first.*unknownQuery"):
        run(stream, 7, *rows)
    told = query(unknownQuery="begin")
    run(told, 7, *rows)
    assert stream.visible() == rows
