"""Columns as record batches: the very bytes that the slow builder gives."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cordwood.columnar.columns import HEADERS
from cordwood.columnar.encoding import EncodedBatch, OutgoingRows
from cordwood.records.batch import Codec, crc_is_right, read_header
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.records import records_in

NOW_MS = 1_700_000_000_000


def encode_batches(key: Any, value: Any, headers: Any, times: Any, rows: Any, **options: Any) -> list[EncodedBatch]:
    return OutgoingRows(key, value, headers, times).encode(rows, **options)


def bytes_of(batches: list[EncodedBatch]) -> list[bytes]:
    return [bytes(batch.data) for batch in batches]


def built(records: list[NewRecord], **fields: int) -> bytes:
    return bytes(build_batch(records, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_what_the_slow_builder_builds(codec: Codec) -> None:
    keys = [b"a", None, b"", b"k" * 300]
    values = [b"v" * 10_000, b"", None, b"w"]
    times = np.array([NOW_MS, NOW_MS - 3, NOW_MS + 70_000, NOW_MS])
    batches = encode_batches(
        pa.array(keys),
        pa.array(values),
        None,
        times,
        None,
        codec=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
    )
    records: list[NewRecord] = [(int(times[row]), keys[row], values[row], ()) for row in range(4)]
    assert bytes_of(batches) == [built(records, codec=codec, producer_id=5, producer_epoch=2, base_sequence=9)]
    assert [batch.count for batch in batches] == [4]


def test_headers_are_written_and_null_means_none() -> None:
    rows: list[Any] = [
        [{"key": "a", "value": b"1"}, {"key": "ü", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}],
    ]
    headers = pa.array(rows, HEADERS)
    expected = [built([(0, None, None, [(header["key"], header["value"]) for header in row or ()])]) for row in rows]
    for lists in (headers, headers.cast(pa.large_list(HEADERS.value_type))):
        outgoing = OutgoingRows(None, None, lists, 0)
        assert [bytes_of(outgoing.encode(np.array([row]))) for row in range(4)] == [[each] for each in expected]
        sliced = OutgoingRows(None, None, lists.slice(1), 0)
        assert [bytes_of(sliced.encode(np.array([row]))) for row in range(3)] == [[each] for each in expected[1:]]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()],
    ids=str,
)
def test_all_kinds_of_strings_are_taken_sliced_or_in_chunks(kind: pa.DataType) -> None:
    texts = [None if number % 5 == 1 else b"text %d" % number for number in range(40)]
    column = pa.array(texts).cast(kind)
    chunks = pa.chunked_array([column.slice(10, 5), column.slice(15, 0), column.slice(15, 15)])
    expected = built([(7, text, text, ()) for text in texts[10:30]])
    assert bytes_of(encode_batches(column.slice(10, 20), chunks, None, 7, None)) == [expected]
    assert bytes_of(encode_batches(chunks, column.slice(10, 20), None, 7, None)) == [expected]


def test_rows_are_taken_in_the_order_that_is_asked_for() -> None:
    values = pa.array([b"0", b"1", b"2", b"3"])
    times = np.array([10, 20, 30, 40])
    batches = encode_batches(None, values, None, times, np.array([3, 0, 2]))
    assert bytes_of(batches) == [built([(40, None, b"3", ()), (10, None, b"0", ()), (30, None, b"2", ())])]
    assert encode_batches(None, values, None, times, np.array([], np.int64)) == []


def test_batches_are_as_large_as_they_may_be_and_sequences_go_on() -> None:
    values = pa.array([b"x" * 100] * 50)
    batches = encode_batches(
        None, values, None, 5, None, max_batch_bytes=1000, producer_id=1, producer_epoch=0, base_sequence=2**31 - 10
    )
    assert [batch.count for batch in batches] == [8, 8, 8, 8, 8, 8, 2]
    records: list[NewRecord] = [(5, None, b"x" * 100, ())] * 9
    assert max(len(batch.data) for batch in batches) <= 1000 < len(built(records))
    assert [read_header(batch.data).base_sequence for batch in batches] == [2**31 - 10, 2**31 - 2, 6, 14, 22, 30, 38]
    assert all(crc_is_right(batch.data, 0, len(batch.data)) for batch in batches)


def test_a_record_larger_than_a_batch_may_be_has_one_for_itself() -> None:
    values = pa.array([b"a", b"b" * 5000, b"c", b"d"])
    batches = encode_batches(None, values, None, 5, None, max_batch_bytes=200)
    assert [batch.count for batch in batches] == [1, 1, 2]
    assert [record.value for batch in batches for record in records_in(batch.data)] == values.to_pylist()


def test_times_that_are_too_far_apart_for_one_batch_go_to_several() -> None:
    times = np.array([2**63 - 1, 0, -1, -2, -(2**63), -1, 0])
    batches = encode_batches(None, None, None, times, None, producer_id=1, producer_epoch=0, base_sequence=0)
    assert [record.timestamp_ms for batch in batches for record in records_in(batch.data)] == times.tolist()
    assert [batch.count for batch in batches] == [3, 4]
    assert [read_header(batch.data).base_sequence for batch in batches] == [0, 3]


def test_without_a_producer_there_is_no_sequence() -> None:
    batches = encode_batches(None, pa.array([b"a"] * 9), None, 5, None, max_batch_bytes=80, transactional=True)
    headers = [read_header(batch.data) for batch in batches]
    assert len(headers) > 1
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers} == {(-1, -1, -1)}
    assert all(header.transactional for header in headers)


def test_levels_change_the_size_and_not_the_records() -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(5000))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 0, 12), (Codec.ZSTD, -5, 19)):
        (fast,), (small,) = (
            encode_batches(None, pa.array([text]), None, 5, None, codec=codec, level=level) for level in (low, high)
        )
        assert len(small.data) < len(fast.data)
        assert [record.value for record in records_in(small.data)] == [text]


def test_rows_that_cannot_be_records_are_refused() -> None:
    value = pa.array([b"a", b"b"])
    for row in (-1, 2, 2**62):
        with pytest.raises(ValueError, match=f"row {row}: there is no such row"):
            encode_batches(None, value, None, 5, np.array([0, row]))
    nameless = pa.array([[], [{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(ValueError, match="row 1: a header has no name"):
        encode_batches(None, value, nameless, 5, None)
    with pytest.raises(ValueError, match="row 0: a header has no name"):
        encode_batches(None, value, pa.array([[None], []], HEADERS), 5, None)
    broken = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array([0, 99, 5], np.int32)), pa.py_buffer(b"short")]
    )
    with pytest.raises(ValueError, match="row 0: the array's offsets point outside of its data"):
        encode_batches(None, broken, None, 5, None)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="not equally long"):
        OutgoingRows(pa.array([b"a"]), pa.array([b"a", b"b"]))
    with pytest.raises(ValueError, match="not equally long"):
        OutgoingRows(None, pa.array([b"a", b"b", b"c"]), None, np.array([1, 2]))
    with pytest.raises(TypeError, match="neither strings nor bytes"):
        OutgoingRows(None, pa.array([[1.5]]))
    with pytest.raises(TypeError, match="headers are lists of structs of key and value"):
        OutgoingRows(None, None, pa.array([["a"]]), 5)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_many_partitions_at_once_are_the_same_as_one_after_the_other(codec: Codec) -> None:
    values = pa.array([b"value %d" % number * (number % 13) for number in range(300)])
    outgoing = OutgoingRows(values, values, None, np.arange(300) * 7)
    groups = [(np.arange(300)[start::7], base) for start, base in ((0, 5), (1, 2**31 - 3), (2, -1), (5, 0))]
    groups.insert(2, (np.empty(0, np.int64), 44))
    found = outgoing.encode_groups(
        groups, codec=codec, max_batch_bytes=700, producer_id=3, producer_epoch=1, transactional=True
    )
    assert len(found) == 5
    assert found[2] == []
    assert min(len(batches) for batches in (found[0], found[1], found[3], found[4])) > 3
    for (rows, base_sequence), batches in zip(groups, found, strict=True):
        alone = outgoing.encode(
            rows,
            codec=codec,
            max_batch_bytes=700,
            producer_id=3,
            producer_epoch=1,
            base_sequence=base_sequence,
            transactional=True,
        )
        assert bytes_of(batches) == bytes_of(alone)
        assert sum(batch.count for batch in batches) == len(rows)
    assert outgoing.encode_groups([]) == []
    assert outgoing.encode_groups([(np.empty(0, np.int64), 0)]) == [[]]


def test_groups_of_one_row_each() -> None:
    outgoing = OutgoingRows(None, pa.array([b"a", b"b", b"c"]), None, np.array([10, 20, 30]))
    found = outgoing.encode_groups([(np.array([row]), row) for row in (2, 0, 1)], producer_id=1, producer_epoch=0)
    assert [bytes_of(batches) for batches in found] == [
        [built([(time, None, value, ())], producer_id=1, producer_epoch=0, base_sequence=sequence)]
        for time, value, sequence in ((30, b"c", 2), (10, b"a", 0), (20, b"b", 1))
    ]
