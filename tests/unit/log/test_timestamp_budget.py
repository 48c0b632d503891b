"""What a search by time opens: little of it here, none of it without a bound."""

import struct
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

import pytest
from crc32c import crc32c
from tests.moments import at
from tests.unit.log.log_making import NOW_MS, ONE_SEGMENT, disk, open_log

from cordwood.log.log import Log
from cordwood.log.reading import timestamps
from cordwood.log.reading.timestamps import FEW_BYTES, FEW_RECORDS
from cordwood.records.batch import Codec, read_header
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.compression import compress

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Elsewhere:
    """Does the work, and notes how many records it was given."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        given: tuple[Any, ...] = arguments
        self.records.append(read_header(given[0]).record_count)
        return function(*arguments)


def take(log: Log, batch: bytearray) -> None:
    log.append(memoryview(batch), leader_epoch=0, now=at(NOW_MS))


def rising(count: int, value: bytes = b"") -> list[NewRecord]:
    return [(NOW_MS + number, None, value, ()) for number in range(count)]


def claiming_a_time(batch: bytearray, max_timestamp_ms: int) -> bytearray:
    struct.pack_into(">q", batch, 35, max_timestamp_ms)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_small_batch_is_opened_here_and_a_large_one_in_another_process(codec: Codec) -> None:
    log, elsewhere = open_log(disk(), ONE_SEGMENT), Elsewhere()
    take(log, build_batch(rising(FEW_RECORDS), codec=codec))
    found = log.timestamp_search(NOW_MS + 700, end_offset=log.offsets.end, apart=elsewhere).run()
    assert found == (700, NOW_MS + 700, 0)
    assert elsewhere.records == []
    log = open_log(disk(), ONE_SEGMENT)
    take(log, build_batch(rising(FEW_RECORDS + 1), codec=codec))
    found = log.timestamp_search(NOW_MS + 700, end_offset=log.offsets.end, apart=elsewhere).run()
    assert found == (700, NOW_MS + 700, 0)
    assert elsewhere.records == [FEW_RECORDS + 1]


def test_few_records_that_are_large_once_uncompressed_are_opened_in_another_process() -> None:
    log, elsewhere = open_log(disk(), ONE_SEGMENT), Elsewhere()
    take(log, build_batch(rising(2, bytes(FEW_BYTES)), codec=Codec.ZSTD))
    found = log.timestamp_search(NOW_MS + 1, end_offset=2, apart=elsewhere).run()
    assert found == (1, NOW_MS + 1, 0)
    assert elsewhere.records == [2]


def test_headers_that_name_a_time_which_no_record_has_cost_one_budget_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "MAX_RECORDS_LOOKED_AT", 20_000)
    log, elsewhere = open_log(disk(), ONE_SEGMENT), Elsewhere()
    late = NOW_MS + 1_000_000
    for _ in range(10):
        take(log, claiming_a_time(build_batch(rising(5000)), late))
    found = log.timestamp_search(late, end_offset=log.offsets.end, apart=elsewhere).run()
    assert elsewhere.records == [5000] * 4
    assert found == (20_000, late, 0), "the batch at which the budget ends stands for its records"


def test_bytes_that_were_uncompressed_are_budgeted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "MAX_BYTES_OPENED", 3 * FEW_BYTES)
    log, elsewhere = open_log(disk(), ONE_SEGMENT), Elsewhere()
    late = NOW_MS + 1_000_000
    for _ in range(10):
        take(log, claiming_a_time(build_batch(rising(1, bytes(FEW_BYTES)), codec=Codec.ZSTD), late))
    found = log.timestamp_search(late, end_offset=log.offsets.end, apart=elsewhere).run()
    assert elsewhere.records == [1] * 3
    assert found == (3, late, 0)


def test_equal_records_by_the_thousand_are_answered_by_their_batch() -> None:
    """What makes a small batch large: records that differ in nothing, not even in their offsets."""
    count = 50_000
    section = compress(Codec.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * count)
    section += b"\x50\x2a\x4d\x18" + struct.pack("<I", count) + bytes(count)  # a frame that zstd skips
    batch = build_batch([(NOW_MS, None, None, ())])[:61] + section
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, Codec.ZSTD)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    batch = claiming_a_time(batch, NOW_MS + 1)
    log, elsewhere = open_log(disk(), ONE_SEGMENT), Elsewhere()
    take(log, batch)
    found = log.timestamp_search(NOW_MS + 1, end_offset=count, apart=elsewhere).run()
    assert found == (0, NOW_MS + 1, 0)
