"""Compaction's last step: new segments in the place of old ones, all or none, whenever the power goes."""

import pytest
from tests.unit.log.log_making import (
    DIRECTORY,
    NOW_MS,
    append,
    bases,
    batch_bytes,
    disk,
    fill,
    open_log,
    remove_deleted,
    values,
)

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.log.rewriting.replacement import MANIFEST
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import read_header
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.names import Stage, Suffix, segment_file

COMPACTED = TopicSettings(
    segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",), file_delete_delay_ms=100
)


class PowerCut(Exception):
    pass


class CutAfter(CrashingFilesystem):
    """Loses its power before the change of names that `left` counts down to."""

    left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise PowerCut
            self.left -= 1

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def three_segments(filesystem: CrashingFilesystem) -> Log:
    """A log whose first three segments are closed and checkpointed."""
    log = open_log(filesystem, COMPACTED)
    fill(log, 24)
    assert len(log.segments) > 3
    log.checkpoint()
    return log


def write_cleaned(log: Log, keep_every: int = 2) -> tuple[list[int], int]:
    """A `.cleaned` segment with every so-manieth batch of the first three; (old bases, new base)."""
    old = bases(log)[:3]
    indexes = SegmentIndexes(0, 200)
    path = segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED)
    file = log.directory.filesystem.open(path, create=True)
    for offset in range(0, log.segments.end_of(2), keep_every):
        batch = batch_bytes(log, offset, 1)
        header = read_header(batch)
        indexes.note(file.size, header.size, header.last_offset, header.max_timestamp)
        file.append(batch)
    indexes.close()
    file.sync()
    for suffix, data in ((Suffix.INDEX, indexes.offsets.to_bytes()), (Suffix.TIME_INDEX, indexes.times.to_bytes())):
        log.directory.filesystem.replace(segment_file(DIRECTORY, 0, suffix, Stage.CLEANED), data)
    log.directory.filesystem.sync_directory(DIRECTORY)
    return old, 0


def test_new_segments_take_the_place_of_old_ones_and_offsets_stay() -> None:
    log = three_segments(disk())
    before, end = values(log), log.segments.end_of(2)
    reading = log.read(1, 200, end_offset=24, minimum_one_batch=True)
    assert reading is not None
    old, new = write_cleaned(log)
    log.replace_segments(old, [new])
    assert values(log) == before[:end:2] + before[end:]
    assert values(log, 3) == before[4:end:2] + before[end:]
    assert not log.directory.filesystem.exists(f"{DIRECTORY}/{MANIFEST}")
    assert len(reading.file.read(reading.position, reading.length)) == reading.length, "a slice on its way is safe"
    remove_deleted(log, NOW_MS)
    remove_deleted(log, NOW_MS + 100)
    assert not [name for name in log.directory.filesystem.list(DIRECTORY) if name.endswith((".deleted", ".cleaned"))]
    assert append(log).base_offset == 24


def test_replacing_twice_within_the_delay_is_safe() -> None:
    log = three_segments(disk())
    before, end = values(log), log.segments.end_of(2)
    reading = log.read(1, 200, end_offset=24, minimum_one_batch=True)
    assert reading is not None
    old, new = write_cleaned(log)
    log.replace_segments(old, [new])
    path = segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED)
    file = log.directory.filesystem.open(path, create=True)
    file.append(batch_bytes(log, 0, 1))
    file.sync()
    log.replace_segments([0], [0])
    assert values(log) == before[:1] + before[end:]
    assert reading.file.path.endswith(".gone"), "its name now belongs to another file"


def test_only_what_is_closed_and_checkpointed_can_be_replaced() -> None:
    log = three_segments(disk())
    old, new = write_cleaned(log)
    with pytest.raises(AssertionError, match="neighbours"):
        log.replace_segments([old[0], old[2]], [new])
    with pytest.raises(AssertionError, match="active"):
        log.replace_segments([bases(log)[-1]], [bases(log)[-1]])
    fill(log, 20)
    with pytest.raises(AssertionError, match="recovery point"):
        log.replace_segments([bases(log)[-2]], [bases(log)[-2]])


def test_a_power_cut_at_any_step_leaves_all_of_the_old_or_all_of_the_new() -> None:
    outcomes: set[str] = set()
    steps = 0
    for seed in range(3):
        for step in range(40):
            filesystem = CutAfter(seed * 100 + step)
            filesystem.make_directory("/data")
            filesystem.sync_directory("/")
            log = three_segments(filesystem)
            before, end = values(log), log.segments.end_of(2)
            old, new = write_cleaned(log)
            filesystem.left = step
            try:
                log.replace_segments(old, [new])
            except PowerCut:
                steps = max(steps, step)
            filesystem.left = None
            filesystem.crash()
            log = open_log(filesystem, COMPACTED, recovery_point=24, clean=False)
            after = values(log)
            assert after in (before, before[:end:2] + before[end:])
            outcomes.add("old" if after == before else "new")
            assert not log.reports.damage
            assert not [name for name in filesystem.list(DIRECTORY) if name.endswith((".cleaned", MANIFEST))]
    assert outcomes == {"old", "new"}
    assert steps > 10, "the power went at every step"


def test_an_emptied_segment_is_stepped_over() -> None:
    log = three_segments(disk())
    before, end = values(log), log.segments.end_of(2)
    old = bases(log)[:3]
    log.directory.filesystem.open(segment_file(DIRECTORY, 0, Suffix.LOG, Stage.CLEANED), create=True)
    log.replace_segments(old, [0])
    assert values(log) == before[end:]
    assert values(log, 3) == before[end:]
