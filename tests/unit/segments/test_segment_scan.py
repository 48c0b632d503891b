"""Walking a log file: every valid batch, then the end or the first invalid place and why."""

import struct
from typing import Any

import pytest

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.segments.filesystem import File
from cordwood.segments.scan import InvalidPlace, SegmentScan

BASE_OFFSET = 100


def log_file(*batches: bytes | bytearray) -> File:
    file = MemoryFilesystem().open("log", create=True)
    for batch in batches:
        file.append(batch)
    return file


def three_batches() -> list[bytearray]:
    return [
        build_batch([(1, b"k", b"v" * 50, ())] * 2, base_offset=100),
        build_batch([(2, b"k", b"v" * 50, ())] * 3, base_offset=102, codec=Codec.LZ4),
        build_batch([(3, b"k", b"v" * 50, ())], base_offset=105),
    ]


def scanned(file: File, **options: Any) -> tuple[list[tuple[int, int]], SegmentScan]:
    scan = SegmentScan(file, BASE_OFFSET, **options)
    return [(position, header.base_offset) for position, header in scan], scan


@pytest.mark.parametrize("chunk_size", [1, 61, 100, 1000, 1024 * 1024])
def test_a_sound_file_is_walked_to_its_end(chunk_size: int) -> None:
    batches = three_batches()
    scan = SegmentScan(log_file(*batches), BASE_OFFSET, chunk_size=chunk_size)
    seen = [(position, header.base_offset, bytes(scan.batch)) for position, header in scan]
    places = [0, len(batches[0]), len(batches[0] + batches[1])]
    assert seen == list(zip(places, (100, 102, 105), map(bytes, batches), strict=True))
    assert scan.invalid is None
    assert scan.position == scan.file.size
    assert scan.next_offset == 106


def test_an_empty_file_ends_where_it_begins() -> None:
    found, scan = scanned(log_file())
    assert found == []
    assert (scan.position, scan.next_offset, scan.invalid) == (0, 100, None)


def test_a_walk_can_begin_at_any_batch_and_end_early() -> None:
    first, second, third = three_batches()
    file = log_file(first, second, third)
    found, _ = scanned(file, position=len(first))
    assert found == [(len(first), 102), (len(first + second), 105)]
    found, scan = scanned(file, end_position=len(first + second))
    assert found == [(0, 100), (len(first), 102)]
    assert scan.invalid is None


def test_a_torn_tail_ends_the_log_before_the_torn_batch() -> None:
    first, second, third = three_batches()
    whole = bytes(first + second + third)
    for size in range(len(whole)):
        found, scan = scanned(log_file(whole[:size]))
        ends = [end for end in (0, len(first), len(first + second)) if end <= size]
        assert scan.position == ends[-1]
        assert len(found) == len(ends) - 1
        assert scan.next_offset == (100, 102, 105)[len(found)]
        assert (scan.invalid is None) == (size in ends)


def test_zeros_behind_the_log_are_not_part_of_it() -> None:
    first, *_ = three_batches()
    _, scan = scanned(log_file(first, bytes(5000)))
    assert scan.invalid == InvalidPlace(len(first), 102, "a batch cannot have a length of 0")


def test_a_flipped_bit_ends_the_log_before_its_batch() -> None:
    first, second, third = three_batches()
    whole = bytes(first + second + third)
    unprotected = range(12, 16)  # the leader epoch, which a broker sets without a new CRC
    for position in range(len(second)):
        damaged = bytearray(whole)
        damaged[len(first) + position] ^= 0x04
        found, scan = scanned(log_file(damaged), contiguous=True)
        if position in unprotected:
            assert scan.invalid is None
        else:
            assert found == [(0, 100)], position
            assert scan.invalid is not None
            assert scan.invalid[:2] == (len(first), 102)


def test_a_gap_is_sound_only_where_compaction_may_have_been() -> None:
    file = log_file(
        build_batch([(1, None, b"v", ())], base_offset=100), build_batch([(1, None, b"", ())], base_offset=109)
    )
    found, scan = scanned(file)
    assert len(found) == 2
    assert scan.next_offset == 110
    found, scan = scanned(file, contiguous=True)
    assert len(found) == 1
    assert scan.invalid is not None
    assert scan.invalid.reason == "offset 109 where 101 must come"


@pytest.mark.parametrize(
    ("position", "layout", "value", "reason"),
    [
        (16, ">b", 1, "magic 1"),
        (8, ">i", 48, "length of 48"),
        (8, ">i", -1, "length of -1"),
        (8, ">i", 5000, "cut short"),
        (0, ">q", 99, "at least 100"),
        (0, ">q", -5, "at least 100"),
        (0, ">q", 100 + 2**31, "cannot be in this segment"),
        (23, ">i", -1, "cannot be in this segment"),
        (57, ">i", -1, "-1 records"),
        (57, ">i", 3, "3 records"),
        (57, ">i", 2, None),
        (57, ">i", 0, None),  # emptied by compaction
    ],
)
def test_a_header_that_cannot_be_is_refused_with_its_reason(
    position: int, layout: str, value: int, reason: str | None
) -> None:
    batch = three_batches()[0]
    struct.pack_into(layout, batch, position, value)
    _, scan = scanned(log_file(batch), verify_crc=False)
    if reason is None:
        assert scan.invalid is None
    else:
        assert scan.invalid is not None
        assert reason in scan.invalid.reason


def test_without_crcs_only_headers_are_believed() -> None:
    first, second, _ = three_batches()
    second[-1] ^= 1
    assert len(scanned(log_file(first, second), verify_crc=False)[0]) == 2
    found, scan = scanned(log_file(first, second))
    assert len(found) == 1
    assert scan.invalid is not None
    assert scan.invalid.reason == "the CRC is wrong"
