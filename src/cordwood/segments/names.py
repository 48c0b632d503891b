"""The names of a segment's files and of copies of partitions, as in Kafka, so that Kafka's tools can read them.

`00000000000000368769.log` begins at offset 368769. A file that is being removed ends in `.deleted`; compaction writes
`.cleaned` files, which get their final names when they replace the old files (log/rewriting/replacement.py). Kafka's
`.swap` files are recognised. Bytes that recovery cut off a log and kept are in `.log.cut-<position>`
(log/opening/cutting.py).

A partition's log that moves to another data directory is copied to a directory `orders-0.<id>-future`, as in Kafka.
Long names are cut to what a filesystem takes; the note in the directory has the partition's whole name
(segments/set_aside.py). The note is written last: a directory without one is an unfinished copy.
"""

import re
from enum import StrEnum
from typing import NamedTuple


class Suffix(StrEnum):
    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class Stage(StrEnum):
    """The stage of a file; a file in use has no such suffix."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class SegmentFileName(NamedTuple):
    base_offset: int
    suffix: Suffix
    stage: Stage


_NAME = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(|\.deleted|\.cleaned|\.swap)\Z")
_KEPT_CUT = re.compile(r"[0-9]{20}\.log\.cut-[0-9]+(-[0-9]+)?\Z")
_MAX_OFFSET = 2**63 - 1


def segment_file_name(base_offset: int, suffix: Suffix, stage: Stage = Stage.LIVE) -> str:
    assert 0 <= base_offset <= _MAX_OFFSET, base_offset
    return f"{base_offset:020d}{suffix.value}{stage.value}"


def segment_file(directory: str, base_offset: int, suffix: Suffix, stage: Stage = Stage.LIVE) -> str:
    """The path of one of the files of the segment that begins at this offset."""
    return f"{directory}/{segment_file_name(base_offset, suffix, stage)}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parses the name of a segment's file (a bare name or a path); None if it is no segment's file."""
    match = _NAME.fullmatch(name.rpartition("/")[2])
    if match is None:
        return None
    digits, suffix, stage = match.groups()
    base_offset = int(digits)
    if base_offset > _MAX_OFFSET:
        return None
    return SegmentFileName(base_offset, Suffix(suffix), Stage(stage))


def kept_cut(log_path: str, position: int, nth: int = 1) -> str:
    """The path of the bytes that were cut off a log file at this position for the nth time, and kept."""
    return f"{log_path}.cut-{position}" + ("" if nth == 1 else f"-{nth}")


def is_kept_cut(name: str) -> bool:
    return _KEPT_CUT.fullmatch(name) is not None


FUTURE = "-future"
_ID_LENGTH = 32
_LONGEST_PART = 255 - len(FUTURE) - _ID_LENGTH - 1


def future_name(partition: str, unique_id: str) -> str:
    """The directory's name. `unique_id`: 32 hexadecimal digits."""
    assert len(unique_id) == _ID_LENGTH, unique_id
    return f"{partition[:_LONGEST_PART]}.{unique_id}{FUTURE}"


def future_part(name: str) -> str | None:
    """The part of a partition's name in the name of a future directory; None for other directories."""
    part, _, unique_id = name.removesuffix(FUTURE).rpartition(".")
    return part if name.endswith(FUTURE) and part and len(unique_id) == _ID_LENGTH else None
