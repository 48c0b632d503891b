"""What a buffer of record batches becomes as columns."""

import struct
from itertools import pairwise

import pyarrow as pa
import pytest
from tests.unit.columnar.rows import EVERYTHING, Row, decoded, expected, rows

from cordwood.columnar.columns import HEADERS
from cordwood.columnar.decoding import Decoder
from cordwood.records.batch import Codec, stamp_append_time
from cordwood.records.build import NewRecord, build_batch

NOW_MS = 1_700_000_000_000


def record(number: int) -> NewRecord:
    return NOW_MS + number, b"key %d" % number, b"value %d" % number, ()


def batch_of(first: int, last: int, codec: Codec = Codec.NONE) -> bytearray:
    """Records with the offsets [first, last), and numbers as their offsets."""
    return build_batch([record(number) for number in range(first, last)], base_offset=first, codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_become_rows_in_order(codec: Codec) -> None:
    data = batch_of(100, 103, codec) + batch_of(103, 1000, codec) + batch_of(2000, 2001, codec)
    found = decoded(data)
    assert [row.offset for row in found] == [*range(100, 1000), 2000]
    assert found[0] == Row(100, (NOW_MS + 100) * 1000, 0, b"key 100", b"value 100", [])
    assert found == expected(data)


def test_codecs_may_change_from_batch_to_batch() -> None:
    codecs = [Codec(number) for number in (0, 4, 4, 0, 0, 3, 1, 2, 0)]
    data = b"".join(batch_of(10 * place, 10 * place + 10, codec) for place, codec in enumerate(codecs))
    assert decoded(data) == expected(data)
    assert len(decoded(data)) == 90


def test_null_is_not_empty() -> None:
    odd_headers = [("", None), ("", b"")]
    batch = build_batch([(NOW_MS, None, b"", ()), (NOW_MS, b"", None, ()), (NOW_MS, None, None, odd_headers)])
    found = decoded(batch)
    assert [(row.key, row.value, row.headers) for row in found] == [
        (None, b"", []),
        (b"", None, []),
        (None, None, [("", None), ("", b"")]),
    ]


def test_nothing_is_handed_out_for_nothing() -> None:
    assert decoded(b"") == []
    assert decoded(build_batch([], last_offset_delta=5)) == []
    assert decoded(batch_of(0, 5), start_offset=5) == []
    assert decoded(batch_of(0, 5), end_offset=0) == []


def test_only_offsets_in_range_are_handed_out() -> None:
    data = batch_of(0, 10) + batch_of(10, 20, Codec.LZ4) + batch_of(20, 30)
    for start in (0, 3, 9, 10, 15, 20, 29):
        for end in (start + 1, 10, 11, 20, 25, 30, 31):
            assert [row.offset for row in decoded(data, start_offset=start, end_offset=end)] == [
                *range(start, min(end, 30))
            ]


def test_what_lies_behind_the_range_is_not_looked_at() -> None:
    assert len(decoded(batch_of(0, 10) + (10).to_bytes(8, "big") + b"not a batch at all", end_offset=10)) == 10


def test_gaps_that_compaction_left_are_no_fault() -> None:
    data = build_batch([record(3), record(7)], base_offset=0, offset_deltas=[3, 7], last_offset_delta=9)
    data += build_batch([record(40)], base_offset=30, offset_deltas=[10], last_offset_delta=10)
    assert [row.offset for row in decoded(data)] == [3, 7, 40]


def test_append_time_is_the_batches_for_all_its_records() -> None:
    batch = batch_of(0, 3)
    stamp_append_time(batch, NOW_MS + 99_000)
    assert [(row.timestamp_us, row.timestamp_type) for row in decoded(batch)] == [((NOW_MS + 99_000) * 1000, 1)] * 3


def test_times_beyond_the_scale_are_held_at_its_end() -> None:
    # Nanoseconds where milliseconds belong are a mistake that producers make.
    nanoseconds = NOW_MS * 1_000_000
    batch = build_batch([(time, None, b"", ()) for time in (0, -1, nanoseconds, 2**63 - 1, -(2**63))])
    assert [row.timestamp_us for row in decoded(batch)] == [0, -1000, 2**63 - 1, 2**63 - 1, -(2**63) + 1]


def test_header_names_that_are_not_utf_8_are_mended() -> None:
    batch = build_batch([(NOW_MS, None, None, [("gr\udcffn", b"1"), ("grün", b"2")])])
    assert decoded(batch)[0].headers == [("gr\ufffdn", b"1"), ("grün", b"2")]


def test_header_arrays_are_what_spark_expects_and_never_null() -> None:
    batch = build_batch([record(0), (NOW_MS, None, None, [("a", b"1"), ("b", None)]), record(2)])
    (columns,) = Decoder(headers=True).decode(batch, start_offset=0, end_offset=EVERYTHING)
    assert columns.headers is not None
    assert columns.headers.type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])) == HEADERS
    assert columns.headers.null_count == 0
    assert columns.headers.to_pylist() == [[], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_columns_that_are_not_asked_for_are_not_built(codec: Codec) -> None:
    batch = build_batch([(NOW_MS, b"k", b"v", [("h", b"x")])] * 3, codec=codec)
    (columns,) = Decoder(key=False).decode(batch, start_offset=0, end_offset=EVERYTHING)
    assert (columns.key, columns.value.to_pylist(), columns.headers) == (None, [b"v"] * 3, None)  # type: ignore[union-attr]
    (columns,) = Decoder(headers=True, value=False).decode(batch, start_offset=1, end_offset=EVERYTHING)
    assert (columns.key.to_pylist(), columns.value) == ([b"k"] * 2, None)  # type: ignore[union-attr]
    assert columns.headers.to_pylist() == [[{"key": "h", "value": b"x"}]] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_much_is_handed_out_in_pieces_of_whole_batches(codec: Codec) -> None:
    data = b"".join(batch_of(10 * place, 10 * place + 10, codec) for place in range(50))
    for decoder in (Decoder(max_rows=25), Decoder(max_bytes=600), Decoder(max_rows=1)):
        pieces = list(decoder.decode(data, start_offset=5, end_offset=493))
        assert len(pieces) > 10
        assert [row.offset for row in rows(pieces)] == list(range(5, 493))
        for before, after in pairwise(pieces):
            assert before.offset[-1].as_py() % 10 == 9
            assert after.offset[0].as_py() % 10 == 0


def test_pieces_do_not_refer_to_the_buffer_that_they_came_from() -> None:
    data = batch_of(0, 20)
    wanted = expected(data)
    pieces = list(Decoder(headers=True).decode(data, start_offset=0, end_offset=EVERYTHING))
    data[:] = bytes(len(data))
    assert rows(pieces) == wanted


def test_any_kind_of_buffer_is_taken() -> None:
    batch = batch_of(0, 5)
    for buffer in (batch, bytes(batch), memoryview(batch), memoryview(b"12345678" + bytes(batch))[8:]):
        assert len(decoded(buffer)) == 5


def test_a_delete_horizon_is_the_base_of_the_times_as_the_format_has_it() -> None:
    batch = build_batch([record(0), record(1)], delete_horizon_ms=NOW_MS + 10_000)
    assert struct.unpack_from(">q", batch, 27) == (NOW_MS + 10_000,)
    assert [row.timestamp_us for row in decoded(batch)] == [NOW_MS * 1000, (NOW_MS + 1) * 1000]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_answers_may_be_decoded_at_the_same_time(codec: Codec) -> None:
    decoder = Decoder(headers=True, max_rows=10)
    answers = [
        b"".join(batch_of(start + 10 * place, start + 10 * place + 10, codec) for place in range(9))
        for start in (0, 500, 7000)
    ]
    running = [decoder.decode(answer, start_offset=0, end_offset=EVERYTHING) for answer in answers]
    pieces = list(zip(*running, strict=True))
    assert len(pieces) == 9
    for answer, found in zip(answers, zip(*pieces, strict=True), strict=True):
        assert rows(found) == expected(answer)
