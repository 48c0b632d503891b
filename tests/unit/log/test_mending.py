"""A segment with damage is mended with another replica's batches: the same bytes as before, or nothing is changed."""

from contextlib import suppress

import pytest
from tests.unit.log.log_making import (
    DIRECTORY,
    append,
    bases,
    batch_bytes,
    disk,
    end_transaction,
    fill,
    log_path,
    open_log,
    values,
)
from tests.unit.log.test_segment_replacement import CutAfter, PowerCut

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.log.parts.segment import Segment
from cordwood.log.reading.scrubbing import confirm
from cordwood.log.rewriting.mending import Misfit, SegmentMending
from cordwood.model.errors import DamagedLog, StorageFailure
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import HEADER_SIZE, batches_in
from cordwood.records.build import build_batch
from cordwood.segments.leader_epochs import LeaderEpochs

PLAIN = TopicSettings(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=100)
COMPACTED = TopicSettings(
    segment_bytes=1000, index_interval_bytes=200, cleanup_policy=("compact",), file_delete_delay_ms=100
)
EPOCH_BYTES = range(12, 16)
"""No checksum covers these bytes of a batch."""


def replica(settings: TopicSettings = PLAIN, filesystem: CrashingFilesystem | None = None) -> Log:
    """A log with closed and checkpointed segments; all replicas have the same bytes."""
    log = open_log(filesystem or disk(), settings)
    fill(log, 24)
    assert len(log.segments) > 3
    log.checkpoint()
    return log


def content(log: Log, base_offset: int) -> bytes:
    return log.directory.filesystem.read_bytes(log_path(base_offset))


def spoil(log: Log, base_offset: int, position: int, data: bytes) -> None:
    filesystem = log.directory.filesystem
    assert isinstance(filesystem, CrashingFilesystem)
    filesystem.corrupt(log_path(base_offset), position, data)


def examined(log: Log, base_offset: int) -> Segment:
    place = log.segments.place_of(base_offset)
    confirm(log.segments, log.segments[place], log.segments.end_of(place))
    log.reports.note_holes(log.segments[place])
    return log.segments[place]


def history(log: Log) -> LeaderEpochs:
    return LeaderEpochs.from_bytes(log.replayed.leader_epochs.to_bytes())


def mend(log: Log, donor: Log, base_offset: int, max_bytes: int = 300) -> None:
    """Mends a segment with batches of another replica, in small steps."""
    segment = examined(log, base_offset)
    end_offset = log.segments.end_of(log.segments.place_of(base_offset))
    mending = SegmentMending(log.segments, segment, end_offset, history(log))
    while not mending.complete:
        if mending.filling is None:
            mending.copy(300, 2)
        else:
            filling = mending.filling
            mending.fill(donor.read_sound(filling.next_offset, filling.hole.end_offset, max_bytes))
    lacks_aborts = mending.finish()
    while not mending.verify(300, 2):
        pass
    log.put_mended(base_offset, lacks_aborts=lacks_aborts)


@pytest.mark.parametrize("settings", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_a_flipped_byte_anywhere_in_a_segment_is_mended_to_the_same_bytes(settings: TopicSettings) -> None:
    log, donor = replica(settings), replica(settings)
    base_offset = bases(log)[1]
    sound, everything = content(log, base_offset), values(log)
    starts = [position for position, _ in batches_in(sound)]
    mended = 0
    for position in range(len(sound)):
        if position - max(start for start in starts if start <= position) in EPOCH_BYTES:
            continue
        spoil(log, base_offset, position, bytes([sound[position] ^ 0x41]))
        if not examined(log, base_offset).holes:
            spoil(log, base_offset, position, sound[position : position + 1])
            continue
        mend(log, donor, base_offset)
        mended += 1
        assert content(log, base_offset) == sound, position
        assert log.reports.damage == []
    assert mended > len(sound) * 0.95
    assert values(log) == everything


@pytest.mark.parametrize(("position", "size"), [(0, 400), (100, 512), (0, 10_000), (333, 1)])
def test_lost_stretches_of_a_log_that_was_never_compacted_are_mended(position: int, size: int) -> None:
    log, donor = replica(), replica()
    base_offset = bases(log)[1]
    sound = content(log, base_offset)
    spoil(log, base_offset, position, bytes(len(sound[position : position + size])))
    mend(log, donor, base_offset)
    assert content(log, base_offset) == sound
    assert values(log) == values(donor)


@pytest.mark.parametrize("size", [0, 60, 400])
def test_a_file_that_lost_its_end_is_mended(size: int) -> None:
    filesystem = disk()
    log, donor = replica(filesystem=filesystem), replica()
    base_offset = bases(log)[1]
    filesystem.cut(log_path(base_offset), size)
    log = open_log(filesystem, PLAIN, recovery_point=24, clean=False)
    mend(log, donor, base_offset)
    assert content(log, base_offset) == content(donor, base_offset)
    assert values(log) == values(donor)


def test_a_slice_on_its_way_to_a_socket_is_safe() -> None:
    log, donor = replica(), replica()
    base_offset = bases(log)[1]
    reading = log.read(base_offset, 200, end_offset=24, minimum_one_batch=True)
    assert reading is not None
    sent = reading.file.read(reading.position, reading.length)
    spoil(log, base_offset, 450, b"\xff")
    mend(log, donor, base_offset)
    assert reading.file.read(reading.position, reading.length) == sent


def test_bytes_that_cannot_vouch_for_a_batch_of_a_compacted_log_stay_as_they_are() -> None:
    """A replica that was compacted less may have a value whose tombstone is gone here."""
    log, donor = replica(COMPACTED), replica(COMPACTED)
    base_offset = bases(log)[1]
    spoil(log, base_offset, 0, bytes(100))
    damaged = content(log, base_offset)
    with pytest.raises(Misfit, match="compacted further"):
        mend(log, donor, base_offset)
    assert content(log, base_offset) == damaged
    assert log.reports.damage


def test_a_batch_that_compaction_has_made_smaller_elsewhere_is_refused() -> None:
    log, donor = replica(COMPACTED), replica(COMPACTED)
    base_offset = bases(log)[1]
    spoil(log, base_offset, 100, b"\xff")
    original = batch_bytes(donor, base_offset, 1)
    smaller = bytes(build_batch([], base_offset=base_offset, last_offset_delta=0, leader_epoch=0))
    assert len(smaller) == HEADER_SIZE < len(original)
    mending = SegmentMending(log.segments, examined(log, base_offset), bases(log)[2], history(log))
    mending.copy(1000, 10)
    with pytest.raises(Misfit, match="compacted further"):
        mending.fill(smaller)
    assert not mending.spoilt
    mending.fill(original)
    assert mending.filling is None


def test_a_batch_of_another_leader_epoch_is_refused() -> None:
    log, donor = replica(), open_log(disk(), PLAIN)
    for number in range(24):
        append(donor, f"{number}:".encode().ljust(100, b"."), leader_epoch=1)
    donor.checkpoint()
    spoil(log, bases(log)[1], 100, b"\xff")
    with pytest.raises(Misfit, match="leader epoch 1, and this log's history has epoch 0"):
        mend(log, donor, bases(log)[1])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batches: b"", "no batch at these offsets"),
        (lambda batches: batches[:-1], "whole batches"),
        (lambda batches: batches[:70] + b"\xff" + batches[71:], "damaged as well"),
        (lambda batches: bytes(7) + b"\x00" + batches[8:], "are missing"),
        (lambda batches: batches + batches, "are missing"),
    ],
    ids=["nothing", "cut short", "damaged", "other offsets", "too much"],
)
def test_batches_that_do_not_fit_change_nothing(change: "object", reason: str) -> None:
    log = replica()
    base_offset = bases(log)[1]
    sound = batch_bytes(log, base_offset, 1)
    spoil(log, base_offset, 100, b"\xff")
    mending = SegmentMending(log.segments, examined(log, base_offset), bases(log)[2], history(log))
    mending.copy(1000, 10)
    assert callable(change)
    with pytest.raises(Misfit, match=reason):
        mending.fill(change(sound))
    mending.abandon()
    assert not [name for name in log.directory.filesystem.list(DIRECTORY) if name.endswith(".cleaned")]


def test_damage_that_comes_up_while_the_segment_is_copied_ends_the_mending() -> None:
    log = replica()
    base_offset = bases(log)[1]
    spoil(log, base_offset, 100, b"\xff")
    segment = examined(log, base_offset)
    spoil(log, base_offset, 450, b"\xff")
    mending = SegmentMending(log.segments, segment, bases(log)[2], history(log))
    mending.copy(1000, 10)
    mending.fill(batch_bytes(replica(), base_offset, 1))
    with pytest.raises(DamagedLog, match="the CRC is wrong"):
        mending.copy(1000, 10)


def test_a_donor_finds_its_own_damage_and_hands_out_no_damaged_batch() -> None:
    donor = replica()
    base_offset = bases(donor)[1]
    size = len(batch_bytes(donor, base_offset, 1))
    spoil(donor, base_offset, size + 100, b"\xff")
    assert len(donor.read_sound(base_offset, 24, 10_000)) == size, "batches before the damage are sound"
    with pytest.raises(DamagedLog):
        donor.read_sound(base_offset + 1, 24, 10_000)
    assert [damage.first_offset for damage in donor.reports.damage] == [base_offset + 1]


def test_an_abort_whose_marker_was_damaged_is_known_after_the_mending() -> None:
    def with_abort(filesystem: CrashingFilesystem) -> Log:
        log = open_log(filesystem, PLAIN)
        append(log, b"gone", producer=7, transactional=True)
        end_transaction(log, 7, committed=False)
        fill(log, 20)
        log.checkpoint()
        return log

    filesystem = disk()
    log, donor = with_abort(filesystem), with_abort(disk())
    assert log.aborts.between(0, 22) == [(7, 0)]
    marker = len(batch_bytes(log, 0, 1))
    spoil(log, 0, marker + 70, b"\xff")
    filesystem.remove(f"{DIRECTORY}/{0:020}.txnindex")
    examined(log, 0)
    mend(log, donor, 0)
    assert log.aborts.between(0, 22) == [(7, 0)]


class RefusesAfter(CutAfter):
    """Refuses the change of names that `left` counts down to, and all later ones, with an error."""

    def _count(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise StorageFailure("Input/output error")
            self.left -= 1


def test_a_disk_that_refuses_in_the_middle_of_the_replacement_leaves_it_to_the_next_start() -> None:
    unfinished = 0
    for step in range(40):
        filesystem = RefusesAfter(step)
        filesystem.make_directory("/data")
        filesystem.sync_directory("/")
        log, donor = replica(filesystem=filesystem), replica()
        base_offset = bases(log)[1]
        spoil(log, base_offset, 100, b"\xff")
        filesystem.left = step
        with suppress(StorageFailure):
            mend(log, donor, base_offset)
        filesystem.left = None
        if log.segments.replacing:
            unfinished += 1
            with pytest.raises(AssertionError, match="not finished"):
                log.put_mended(base_offset, lacks_aborts=False)
        filesystem.crash()
        mended = open_log(filesystem, PLAIN, recovery_point=24, clean=False)
        finished = content(mended, base_offset) == content(donor, base_offset)
        if not finished:
            mend(mended, donor, base_offset)
        assert values(mended) == values(donor)
    assert unfinished >= 5


def test_a_power_cut_at_any_step_leaves_the_damaged_segment_or_the_mended_one() -> None:
    outcomes: set[str] = set()
    steps = 0
    for step in range(60):
        filesystem = CutAfter(step)
        filesystem.make_directory("/data")
        filesystem.sync_directory("/")
        log, donor = replica(filesystem=filesystem), replica()
        base_offset = bases(log)[1]
        sound = content(log, base_offset)
        spoil(log, base_offset, 100, b"\xff")
        damaged = content(log, base_offset)
        filesystem.left = step
        try:
            mend(log, donor, base_offset)
        except PowerCut:
            steps = max(steps, step)
        filesystem.left = None
        filesystem.crash()
        log = open_log(filesystem, PLAIN, recovery_point=24, clean=False)
        after = content(log, base_offset)
        assert after in (sound, damaged)
        outcomes.add("mended" if after == sound else "damaged")
        if after == damaged:
            mend(log, donor, base_offset)
        assert values(log) == values(donor)
        assert not [name for name in filesystem.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    assert outcomes == {"damaged", "mended"}
    assert steps > 15, "the power went at every step"
