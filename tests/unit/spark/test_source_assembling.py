"""Arrow batches for Spark: neither tiny nor huge, rows in order."""

import numpy as np
import pyarrow as pa

from cordwood.columnar.columns import Columns
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.source import assembling
from cordwood.spark.source.assembling import Assembler
from cordwood.spark.source.schema import arrow_schema, source_schema

SCHEMA = arrow_schema(source_schema())


def columns(first: int, count: int, size: int = 10) -> Columns:
    values = pa.array([b"v" * size] * count, pa.binary())
    times = pa.array(np.arange(first, first + count) * 1000, pa.timestamp("us", tz="UTC"))
    return Columns(
        count=count,
        key=values,
        value=values,
        offset=pa.array(range(first, first + count), pa.int64()),
        timestamp=times,
        timestamp_type=pa.array([0] * count, pa.int32()),
        headers=None,
    )


def assemble(assembler: Assembler, *pieces: tuple[Columns, int]) -> list[pa.RecordBatch]:
    partitions = [(piece, TopicPartition("t", index)) for piece, index in pieces]
    batches = [batch for piece, partition in partitions for batch in assembler.add(piece, partition)]
    return [*batches, *assembler.finish()]


def test_small_pieces_of_many_partitions_become_one_batch() -> None:
    batches = assemble(Assembler(SCHEMA), *[(columns(index, 2), index) for index in range(500)])
    assert [batch.num_rows for batch in batches] == [1000]
    assert batches[0].schema == SCHEMA
    assert batches[0]["partition"].to_pylist() == [index for index in range(500) for _ in range(2)]
    assert set(batches[0]["topic"].to_pylist()) == {"t"}


def test_a_large_piece_is_handed_out_in_slices() -> None:
    batches = assemble(Assembler(SCHEMA), (columns(0, 250_000, 1), 0))
    assert [batch.num_rows for batch in batches] == [100_000, 100_000, 50_000]
    assert [batch["offset"][0].as_py() for batch in batches] == [0, 100_000, 200_000]


def test_heavy_rows_make_short_batches() -> None:
    batches = assemble(Assembler(SCHEMA), (columns(0, 100, 1 << 20), 0))
    assert all(batch.nbytes <= assembling.MAX_BYTES * 1.1 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 100


def test_nothing_is_no_batch() -> None:
    assert assemble(Assembler(SCHEMA)) == []


def test_rows_at_other_times_are_left_out() -> None:
    assembler = Assembler(SCHEMA, min_timestamp_us=3000, max_timestamp_us=5000)
    (batch,) = assemble(assembler, (columns(0, 10), 0))
    assert batch["offset"].to_pylist() == [3, 4, 5]
    assert assemble(Assembler(SCHEMA, min_timestamp_us=99_000), (columns(0, 10), 0)) == []
