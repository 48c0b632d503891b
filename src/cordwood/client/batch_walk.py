"""Walks over fetched batches: finds how many bytes are whole batches, and the offset after them.

The walk reads offset and length of each batch and the header of the last: it is cheap enough to precede the next
request. No checksum covers a batch's offset. A wrong offset would end a range early, or have batches read twice, so
offsets that do not rise are refused.
"""

from struct import Struct
from typing import Final

from cordwood.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, read_header, read_offset_and_size
from cordwood.records.corruption import CorruptRecords

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD


def whole_batches(records: memoryview) -> tuple[int, int]:
    """The number of bytes in whole batches, and the start of the last batch: (0, 0) without a whole batch."""
    end = len(records)
    position = last = 0
    offset_before = -1
    unpack = _OFFSET_AND_LENGTH.unpack_from
    # The header of the last batch may be incomplete, too; its length then reaches beyond the end.
    while position + HEADER_SIZE <= end:
        offset, length = unpack(records, position)
        if length < _LEAST_LENGTH:
            raise CorruptRecords(f"a batch of {length + LOG_OVERHEAD} bytes at byte {position} of an answer")
        following = position + LOG_OVERHEAD + length
        if following > end:
            break
        if offset <= offset_before:
            raise CorruptRecords(f"a batch at offset {offset} after a batch at offset {offset_before}")
        offset_before = offset
        last = position
        position = following
    return position, last


def offset_after(records: memoryview, last: int) -> int:
    """The offset after the batch that begins at `last`."""
    header = read_header(records, last)
    if header.magic != MAGIC:
        raise CorruptRecords(
            f"the batch at offset {header.base_offset} has format {header.magic}, "
            f"and only format {MAGIC} is read (Kafka 0.11 and later)"
        )
    if header.last_offset_delta < 0:
        raise CorruptRecords(f"the batch at offset {header.base_offset} ends before it begins")
    return header.next_offset


def bytes_before(records: memoryview, end_offset: int) -> int:
    """The number of bytes in batches that begin before this offset."""
    position = 0
    while position < len(records):
        base_offset, size = read_offset_and_size(records, position)
        if base_offset >= end_offset:
            break
        position += size
    return position
