"""Decoding to columns under arbitrary records, ranges and damage, beside the slow reader of records.

Small enough to run without the compiler as well, where every access to an array is checked: see
test_columnar_unchecked_access.py.
"""

import os
import struct

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.columnar.guarded import guarded
from tests.unit.columnar.rows import decoded, expected

from cordwood.columnar.decoding import Decoder
from cordwood.records.batch import HEADER_SIZE, Codec, batches_in, stamp_append_time
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.corruption import CorruptRecords

EXAMPLES = int(os.environ.get("CORDWOOD_COLUMNAR_EXAMPLES", examples(60)))

timestamps = st.one_of(st.integers(1_699_999_999_000, 1_700_000_001_000), st.integers(-(2**63), 2**63 - 1))
payloads = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 9000).map(bytes))
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.just("\udcff")
headers = st.lists(st.tuples(header_names, st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
codecs = st.sampled_from(Codec)


@st.composite
def batches(draw: st.DrawFn, max_count: int = 5) -> bytearray:
    """Several batches one behind the other, compacted here and there."""
    data = bytearray()
    offset = draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(1, max_count))):
        base_ms = draw(timestamps)
        near = st.integers(max(-(2**63), base_ms - 2**40), min(2**63 - 1, base_ms + 2**40))
        count = draw(st.integers(0, 6))
        records: list[NewRecord] = [
            (base_ms if place == 0 else draw(near), draw(payloads), draw(payloads), draw(headers))
            for place in range(count)
        ]
        deltas = sorted(draw(st.sets(st.integers(0, 300), min_size=count, max_size=count)))
        batch = build_batch(
            records, base_offset=offset, offset_deltas=deltas, last_offset_delta=300, codec=draw(codecs)
        )
        if draw(st.integers(0, 4)) == 0:
            stamp_append_time(batch, draw(timestamps))
        data += batch
        offset += 301 + draw(st.integers(0, 5))
    return data


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches())
def test_decoding_agrees_with_the_slow_reader(data: bytearray) -> None:
    with guarded(data) as view:
        assert decoded(view) == expected(data)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(batches(), st.data())
def test_a_range_is_what_it_says_whatever_the_pieces(data: bytearray, draws: st.DataObject) -> None:
    everything = expected(data)
    first = next(header.base_offset for _, header in batches_in(data))
    start = draws.draw(st.integers(first - 5, first + 1600))
    end = draws.draw(st.integers(start, start + 1600))
    decoder = Decoder(
        headers=True, max_bytes=draws.draw(st.integers(1, 20_000)), max_rows=draws.draw(st.integers(1, 20))
    )
    found = decoded(data, start_offset=start, end_offset=end, decoder=decoder)
    assert found == [row for row in everything if start <= row.offset < end]


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(batches(), st.booleans(), st.booleans(), st.booleans())
def test_columns_do_not_depend_on_each_other(data: bytearray, key: bool, value: bool, with_headers: bool) -> None:
    found = decoded(data, decoder=Decoder(headers=with_headers, key=key, value=value))
    assert found == [
        row._replace(
            key=row.key if key else None,
            value=row.value if value else None,
            headers=row.headers if with_headers else None,
        )
        for row in expected(data)
    ]


mutations = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from([0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)),
    min_size=1,
    max_size=6,
)


def mutated(data: bytearray, changes: list[tuple[int, int]]) -> bytearray:
    """Bytes changed anywhere but in sizes, and checksums that fit: damage that only a careful reader survives."""
    places = [(position, header.size) for position, header in batches_in(data)]
    for place, value in changes:
        position, size = places[place % len(places)]
        inside = 12 + (place // len(places)) % (size - 12)
        if place & 1 and size > HEADER_SIZE:
            inside = HEADER_SIZE + (place // len(places)) % (size - HEADER_SIZE)
        data[position + inside] = value
    for position, size in places:
        struct.pack_into(">I", data, position + 17, crc32c(memoryview(data)[position + 21 : position + size]))
    return data


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(batches(2), mutations)
def test_mutated_batches_read_as_the_slow_reader_reads_them_or_are_called_corrupt(
    data: bytearray, changes: list[tuple[int, int]]
) -> None:
    mutated(data, changes)
    with guarded(data) as view:
        try:
            found = decoded(view)
        except CorruptRecords as error:
            assert str(error).startswith(("offset ", "offsets "))  # noqa: PT017
            return
    assert found == expected(data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(batches(2), mutations, st.integers(0, 10**6))
def test_torn_and_mutated_bytes_are_read_or_called_corrupt(
    data: bytearray, changes: list[tuple[int, int]], cut: int
) -> None:
    for place, value in changes:
        data[place % len(data)] = value
    aborted = [(place, value) for place, value in changes]
    with guarded(data[: cut % (len(data) + 1)]) as view:
        for decoder in (Decoder(headers=True), Decoder()):
            try:
                decoded(view, aborted=aborted, decoder=decoder)
            except CorruptRecords as error:
                assert str(error).startswith(("offset ", "offsets "))  # noqa: PT017


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=400))
def test_bytes_that_were_never_batches_are_called_corrupt(data: bytes) -> None:
    with guarded(data) as view:
        try:
            assert decoded(view) == []
        except CorruptRecords as error:
            assert str(error).startswith(("offset ", "offsets "))  # noqa: PT017
