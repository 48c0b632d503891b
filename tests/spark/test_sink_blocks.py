"""Arrow batches become blocks, and the rows of a block find their partitions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.spark.sink.blocks import UnwritableRow, gather, to_block
from cordwood.spark.sink.columns import SinkColumns
from cordwood.spark.sink.routing import STICKY_BYTES, Router

pytestmark = pytest.mark.landing

NOW_MS = 1_700_000_000_000


def batch_of(**columns: Any) -> Any:
    return pa.record_batch(list(columns.values()), names=list(columns))


def values(count: int, size: int = 10) -> Any:
    return pa.array([bytes([row % 256]) * size for row in range(count)], pa.binary())


def routed(router: Router, batch: Any, columns: SinkColumns) -> dict[TopicPartition, list[int]]:
    return {partition: rows.tolist() for partition, rows in router.route(to_block(batch, columns, NOW_MS))}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_small_batches_are_put_together_up_to_a_size() -> None:
    batches = [batch_of(value=values(10, 100)) for _ in range(10)]
    size = batches[0].nbytes
    gathered = list(gather(iter(batches), 1000, block_bytes=4 * size))
    assert [block.num_rows for block in gathered] == [40, 40, 20]
    assert pa.Table.from_batches(gathered).equals(pa.Table.from_batches(batches))


def test_nothing_is_gathered_for_longer_than_linger() -> None:
    clock = Clock()

    def slow() -> Iterator[Any]:
        for _ in range(6):
            clock.now_s += 0.04
            yield batch_of(value=values(10))

    gathered = list(gather(slow(), 100, clock=clock))
    assert [block.num_rows for block in gathered] == [40, 20]


def test_batches_without_rows_are_passed_over() -> None:
    empty = batch_of(value=values(0))
    assert list(gather(iter([empty, empty]), 100)) == []


def test_times_are_milliseconds_and_now_where_there_is_none() -> None:
    instants = pa.array([1_234_567, None, 0], pa.timestamp("us", "UTC"))
    block = to_block(batch_of(value=values(3), timestamp=instants), SinkColumns(value=0, timestamp=1), NOW_MS)
    assert np.asarray(block.timestamp_ms).tolist() == [1234, NOW_MS, 0]
    seconds = pa.array([1.5, None, 0.0], pa.float64())
    block = to_block(batch_of(value=values(3), timestamp=seconds), SinkColumns(value=0, timestamp=1), NOW_MS)
    assert np.asarray(block.timestamp_ms).tolist() == [1500, NOW_MS, 0]
    nothing = pa.array([None, None, None], pa.timestamp("us", "UTC"))
    block = to_block(batch_of(value=values(3), timestamp=nothing), SinkColumns(value=0, timestamp=1), NOW_MS)
    assert block.timestamp_ms == NOW_MS


@pytest.mark.parametrize(
    "times",
    [
        pa.array([-1, 2], pa.timestamp("us", "UTC")),
        pa.array([-0.5, 2.0]),
        pa.array([float("nan"), 2.0]),
        pa.array([float("inf"), 2.0]),
        pa.array([1e300, 2.0]),
    ],
)
def test_a_time_that_no_record_can_carry_is_refused(times: Any) -> None:
    with pytest.raises(UnwritableRow, match="'timestamp'"):
        to_block(batch_of(value=values(2), timestamp=times), SinkColumns(value=0, timestamp=1), NOW_MS)


def test_a_header_without_a_key_is_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": None, "value": b"x"}]], kind)
    with pytest.raises(UnwritableRow, match="'headers'"):
        to_block(batch_of(value=values(1), headers=headers), SinkColumns(value=0, headers=1), NOW_MS)


def test_an_explicit_partition_wins_and_the_key_decides_where_there_is_none() -> None:
    batch = batch_of(
        value=values(4),
        key=pa.array([b"a", b"b", b"a", b"b"], pa.binary()),
        partition=pa.array([2, None, 0, None], pa.int32()),
    )
    columns = SinkColumns(value=0, key=1, partition=2)
    found = routed(Router("t", lambda _: 3, 0), batch, columns)
    explicit = {0: 2, 2: 0}
    for row, partition in explicit.items():
        assert row in found[TopicPartition("t", partition)]
    by_key = [partition for partition, rows in found.items() if 1 in rows]
    assert 3 in found[by_key[0]], "equal keys go to one partition"


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_the_topic_does_not_have_is_refused(partition: int) -> None:
    batch = batch_of(value=values(2), partition=pa.array([0, partition], pa.int32()))
    with pytest.raises(UnwritableRow, match=f"has {partition}, but topic 't' has the partitions 0 to 2"):
        Router("t", lambda _: 3, 0).route(to_block(batch, SinkColumns(value=0, partition=1), NOW_MS))


def test_rows_without_a_key_are_spread_evenly_and_stay_in_order() -> None:
    router = Router("t", lambda _: 4, 1)
    rows_by_partition: dict[int, int] = {}
    for _ in range(50):
        found = routed(router, batch_of(value=values(100, 1000)), SinkColumns(value=0))
        for partition, rows in found.items():
            assert rows == sorted(rows)
            rows_by_partition[partition.partition] = rows_by_partition.get(partition.partition, 0) + len(rows)
    assert sum(rows_by_partition.values()) == 5000
    # Partitions differ by at most one run of rows, which fits into STICKY_BYTES.
    assert max(rows_by_partition.values()) - min(rows_by_partition.values()) <= STICKY_BYTES // 1000 + 1


def test_few_rows_without_a_key_stay_together_and_tasks_begin_at_different_partitions() -> None:
    batch = batch_of(value=values(5))
    begun = [next(iter(routed(Router("t", lambda _: 3, start), batch, SinkColumns(value=0)))) for start in range(3)]
    assert [partition.partition for partition in begun] == [0, 1, 2]


def test_rows_go_to_the_topics_of_their_column() -> None:
    counts = {"a": 1, "b": 2}
    batch = batch_of(
        value=values(4),
        topic=pa.array(["b", "a", "b", "a"]),
        partition=pa.array([1, 0, 0, 0], pa.int32()),
    )
    found = routed(Router(None, counts.__getitem__, 0), batch, SinkColumns(value=0, topic=1, partition=2))
    assert found == {TopicPartition("a", 0): [1, 3], TopicPartition("b", 0): [2], TopicPartition("b", 1): [0]}


def test_a_row_without_a_topic_is_refused() -> None:
    batch = batch_of(value=values(2), topic=pa.array(["a", None]))
    with pytest.raises(UnwritableRow, match="null topic present in the data"):
        Router(None, lambda _: 1, 0).route(to_block(batch, SinkColumns(value=0, topic=1), NOW_MS))
