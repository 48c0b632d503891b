"""Encoding columns under arbitrary rows, beside the slow builder; and there and back again."""

import os

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.columnar.rows import decoded

from cordwood.columnar.columns import HEADERS
from cordwood.columnar.encoding import OutgoingRows
from cordwood.records.batch import Codec
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.records import Record, records_in

EXAMPLES = int(os.environ.get("CORDWOOD_COLUMNAR_EXAMPLES", examples(60)))

payloads = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 9000).map(bytes))
header_lists = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), st.none() | st.binary(max_size=20)),
    max_size=3,
)
timestamps = st.one_of(st.integers(1_699_999_999_000, 1_700_000_001_000), st.integers(-1, 2**62))
records = st.lists(st.tuples(timestamps, payloads, payloads, header_lists), min_size=1, max_size=20)
codecs = st.sampled_from(Codec)


def columns_of(rows: list[NewRecord], draws: st.DataObject) -> OutgoingRows:
    """The rows as columns of some kind, perhaps cut out of larger ones, perhaps in chunks."""
    before, after = draws.draw(st.integers(0, 9)), draws.draw(st.integers(0, 3))
    cut = draws.draw(st.none() | st.integers(0, len(rows)))

    def column(values: list[object], kind: pa.DataType, filler: object) -> pa.Array | pa.ChunkedArray:
        array = pa.array([filler] * before + values + [filler] * after, kind).slice(before, len(values))
        return array if cut is None else pa.chunked_array([array.slice(0, cut), array.slice(cut)])

    kinds = st.sampled_from([pa.binary(), pa.large_binary()])
    headers: list[object] = [[{"key": name, "value": value} for name, value in row[3]] for row in rows]
    with_headers = any(headers) or draws.draw(st.booleans())
    return OutgoingRows(
        column([row[1] for row in rows], draws.draw(kinds), draws.draw(st.sampled_from([None, b"filler"]))),
        column([row[2] for row in rows], draws.draw(kinds), draws.draw(st.sampled_from([None, b"filler"]))),
        column(headers, HEADERS, draws.draw(st.sampled_from([None, [{"key": "x", "value": b"y"}]])))
        if with_headers
        else None,
        np.array([row[0] for row in rows]),
    )


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(records, codecs, st.booleans(), st.data())
def test_batches_are_the_slow_builders_byte_for_byte(
    rows: list[NewRecord], codec: Codec, transactional: bool, draws: st.DataObject
) -> None:
    outgoing = columns_of(rows, draws)
    chosen = draws.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=30))
    (batch,) = outgoing.encode(
        np.array(chosen),
        codec=codec,
        max_batch_bytes=10**7,
        producer_id=12,
        producer_epoch=3,
        base_sequence=44,
        transactional=transactional,
    )
    expected = build_batch(
        [rows[row] for row in chosen],
        codec=codec,
        producer_id=12,
        producer_epoch=3,
        base_sequence=44,
        transactional=transactional,
    )
    assert bytes(batch.data) == bytes(expected)
    assert batch.count == len(chosen)


@settings(max_examples=EXAMPLES, deadline=None)
@given(records, st.integers(62, 20_000), st.data())
def test_batches_are_cut_where_the_next_record_would_be_too_much(
    rows: list[NewRecord], max_batch_bytes: int, draws: st.DataObject
) -> None:
    batches = columns_of(rows, draws).encode(max_batch_bytes=max_batch_bytes)
    first = 0
    for batch in batches:
        last = first + batch.count
        assert bytes(batch.data) == bytes(build_batch(rows[first:last]))
        assert len(batch.data) <= max_batch_bytes or batch.count == 1
        if last < len(rows):
            assert len(build_batch(rows[first : last + 1])) > max_batch_bytes
        first = last
    assert first == len(rows)


@settings(max_examples=EXAMPLES, deadline=None)
@given(records, codecs, st.data())
def test_columns_come_back_as_they_went(rows: list[NewRecord], codec: Codec, draws: st.DataObject) -> None:
    batches = columns_of(rows, draws).encode(codec=codec, max_batch_bytes=draws.draw(st.integers(62, 50_000)))
    data = bytearray()
    offset = 0
    for batch in batches:
        start = len(data)
        data += batch.data
        data[start : start + 8] = offset.to_bytes(8, "big")
        offset += batch.count
    found = decoded(data)
    assert [row.offset for row in found] == list(range(len(rows)))
    assert [(row.key, row.value, row.headers) for row in found] == [(row[1], row[2], list(row[3])) for row in rows]
    assert [row.timestamp_us for row in found] == [min(row[0] * 1000, 2**63 - 1) for row in rows]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))), min_size=1), timestamps)
def test_one_time_for_all_rows(texts: list[str | None], timestamp_ms: int) -> None:
    column = pa.array(texts, pa.string())
    (batch,) = OutgoingRows(column, column, None, timestamp_ms).encode(None, max_batch_bytes=10**7)
    raw = [None if text is None else text.encode() for text in texts]
    assert [record[1:] for record in records_in(batch.data)] == [
        Record(0, timestamp_ms, payload, payload, ())[1:] for payload in raw
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(records, st.integers(62, 2000), st.data())
def test_groups_do_not_know_of_each_other(rows: list[NewRecord], max_batch_bytes: int, draws: st.DataObject) -> None:
    outgoing = columns_of(rows, draws)
    drawn = draws.draw(st.lists(st.lists(st.integers(0, len(rows) - 1), max_size=10), max_size=6))
    groups = [np.array(group, np.int64) for group in drawn]
    found = outgoing.encode_groups([(group, 7) for group in groups], max_batch_bytes=max_batch_bytes)
    assert [[bytes(batch.data) for batch in batches] for batches in found] == [
        [bytes(batch.data) for batch in outgoing.encode(group, base_sequence=7, max_batch_bytes=max_batch_bytes)]
        for group in groups
    ]
