"""Arbitrary damage to a log's files: below the recovery point the rest stays readable, above it the log ends before it.

Whatever bytes are changed, a reader gets either the batch that was written, an error that names its offsets, or, where
nobody has verified them yet, bytes whose CRC tells the client. Never another record at that offset.
"""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.moments import at
from tests.seeds import examples

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.log.parts.loaded_indexes import LoadedIndexes
from cordwood.model.errors import DamagedLog
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import batches_in, crc_is_right
from cordwood.records.build import build_batch
from cordwood.segments.names import Suffix, parse_segment_file

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "/data/orders-0"
NOW_MS = 1_000_000
SETTINGS = TopicSettings(segment_bytes=1500, index_interval_bytes=250)
PROFILE = settings(
    max_examples=examples(150),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

sizes = st.lists(st.integers(0, 400), min_size=3, max_size=25)


def open_log(filesystem: CrashingFilesystem, recovery_point: int, *, clean: bool) -> Log:
    return Log.open(
        filesystem,
        DIRECTORY,
        PARTITION,
        SETTINGS,
        recovery_point=recovery_point,
        clean=clean,
        now=at(NOW_MS),
        loaded_indexes=LoadedIndexes(),
    )


def write_log(filesystem: CrashingFilesystem, value_sizes: list[int], checkpoint_after: int) -> tuple[Log, list[bytes]]:
    """A log of one-record batches, all synced; the recovery point is where the checkpoint was."""
    filesystem.make_directory("/data")
    log = open_log(filesystem, 0, clean=True)
    stored = []
    for number, size in enumerate(value_sizes):
        batch = build_batch([(NOW_MS + number, b"k%d" % number, bytes([number + 1]) * size, ())])
        log.append(batch, leader_epoch=0, now=at(NOW_MS))
        stored.append(bytes(batch))
        if number + 1 == checkpoint_after:
            log.checkpoint()
    filesystem.sync_everything()
    return log, stored


def read_one(log: Log, offset: int) -> bytes | None:
    """The batch that holds this offset, as a reader gets it."""
    found = log.read(offset, 1, end_offset=log.offsets.end, minimum_one_batch=True)
    return None if found is None else found.file.read(found.position, found.length)


def batch_at(log: Log, place: float) -> tuple[str, int, int]:
    """(file, position in it, offset of the batch there) of a byte of the log, chosen by a number from 0 to 1."""
    target = int((log.segments.size_bytes - 1) * place)
    for segment in log.segments:
        if target < segment.size:
            data = segment.file.read(0, segment.size)
            for position, header in batches_in(data):
                if position <= target < position + header.size:
                    return segment.file.path, target, header.base_offset
        target -= segment.size
    raise AssertionError("no such byte")


@PROFILE
@given(value_sizes=sizes, checkpoint=st.floats(0, 1), place=st.floats(0, 1), flip=st.integers(1, 255))
def test_one_changed_byte_harms_one_batch_at_most(
    value_sizes: list[int], checkpoint: float, place: float, flip: int
) -> None:
    filesystem = CrashingFilesystem()
    log, stored = write_log(filesystem, value_sizes, int(len(value_sizes) * checkpoint))
    recovery_point, end = log.offsets.recovery_point, log.offsets.end
    path, position, victim = batch_at(log, place)
    filesystem.corrupt(path, position, bytes([filesystem.read_bytes(path)[position] ^ flip]))

    log = open_log(filesystem, recovery_point, clean=False)

    if log.offsets.end < end:
        assert log.offsets.end == victim >= recovery_point, "the log ends at the first invalid batch"
        assert log.reports.recovery.cuts
        assert log.reports.recovery.cuts[0].first_offset == victim
        kept = b"".join(
            filesystem.read_bytes(cut.kept_in) for cut in log.reports.recovery.cuts if cut.kept_in is not None
        )
        assert all(stored[offset] in kept for offset in range(victim + 1, end)), "whole batches are kept"
        end = victim
    for damage in log.reports.damage:
        assert damage.first_offset <= victim < damage.end_offset <= recovery_point
    for offset in range(end):
        try:
            data = read_one(log, offset)
        except DamagedLog:
            assert offset == victim < recovery_point
            continue
        assert data is not None
        if offset != victim:
            assert data == stored[offset]
        elif data != stored[offset]:
            assert offset < recovery_point or data[:12] + data[16:] == stored[offset][:12] + stored[offset][16:]
    batch = build_batch([(NOW_MS, b"k", b"next", ())])
    assert log.append(batch, leader_epoch=0, now=at(NOW_MS)).base_offset == log.offsets.end - 1
    assert read_one(log, log.offsets.end - 1) == bytes(batch)


@PROFILE
@given(value_sizes=sizes, checkpoint=st.floats(0, 1), place=st.floats(0, 1), garbage=st.binary(max_size=200))
def test_a_torn_end_never_costs_a_whole_batch_before_it(
    value_sizes: list[int], checkpoint: float, place: float, garbage: bytes
) -> None:
    filesystem = CrashingFilesystem()
    log, stored = write_log(filesystem, value_sizes, int(len(value_sizes) * checkpoint))
    recovery_point = log.offsets.recovery_point
    last = log.segments[-1]
    cut = int(last.size * place)
    data = filesystem.read_bytes(last.file.path)
    whole = sum(1 for position, header in batches_in(data) if position + header.size <= cut)
    filesystem.cut(last.file.path, cut)
    filesystem.open(last.file.path).append(garbage)
    filesystem.sync_everything()

    log = open_log(filesystem, recovery_point, clean=False)

    survivors = last.base_offset + whole
    assert log.offsets.end == max(survivors, recovery_point)
    for offset in range(survivors):
        assert read_one(log, offset) == stored[offset]
    for offset in range(survivors, recovery_point):
        try:
            assert read_one(log, offset) == stored[offset]
        except DamagedLog:
            assert any(damage.first_offset <= offset < damage.end_offset for damage in log.reports.damage)
    assert bool(log.reports.damage) == (survivors < recovery_point)


@PROFILE
@given(
    value_sizes=sizes,
    checkpoint=st.floats(0, 1),
    suffix=st.sampled_from([Suffix.INDEX, Suffix.TIME_INDEX]),
    which=st.floats(0, 1),
    keep=st.floats(0, 1),
    tail=st.binary(max_size=40),
    clean=st.booleans(),
)
def test_whatever_is_in_an_index_file_the_right_batches_are_read(
    value_sizes: list[int], checkpoint: float, suffix: Suffix, which: float, keep: float, tail: bytes, clean: bool
) -> None:
    filesystem = CrashingFilesystem()
    log, stored = write_log(filesystem, value_sizes, len(value_sizes) if clean else int(len(value_sizes) * checkpoint))
    indexes = [
        name
        for name in filesystem.list(DIRECTORY)
        if (parsed := parse_segment_file(name)) is not None and parsed.suffix is suffix
    ]
    if indexes:
        path = f"{DIRECTORY}/{indexes[int((len(indexes) - 1) * which)]}"
        size = len(filesystem.read_bytes(path))
        filesystem.cut(path, int(size * keep))
        filesystem.open(path).append(tail)
        filesystem.sync_everything()

    log = open_log(filesystem, log.offsets.recovery_point, clean=clean)

    assert log.offsets.end == len(stored)
    for offset, batch in enumerate(stored):
        assert read_one(log, offset) == batch
    assert not log.reports.damage
    log.checkpoint()
    again = open_log(filesystem, log.offsets.recovery_point, clean=True)
    assert [read_one(again, offset) for offset in range(len(stored))] == stored


@PROFILE
@given(value_sizes=sizes, checkpoint=st.floats(0, 1), start=st.floats(0, 1), length=st.integers(1, 900))
def test_a_range_of_lost_bytes_is_stepped_over(
    value_sizes: list[int], checkpoint: float, start: float, length: int
) -> None:
    """As a disk gives back zeros for a bad block: every batch that it does not touch is still there."""
    filesystem = CrashingFilesystem()
    log, stored = write_log(filesystem, value_sizes, int(len(value_sizes) * checkpoint))
    recovery_point = log.offsets.recovery_point
    segment = log.segments[log.segments.place_of(max(recovery_point - 1, 0))]
    data = filesystem.read_bytes(segment.file.path)
    begin = int(len(data) * start)
    stop = min(begin + length, len(data))
    touched = {
        header.base_offset
        for position, header in batches_in(data)
        if position < stop and begin < position + header.size and any(data[max(begin, position) : stop])
    }
    filesystem.corrupt(segment.file.path, begin, bytes(stop - begin))

    log = open_log(filesystem, recovery_point, clean=False)

    assert log.offsets.end >= recovery_point
    for offset in range(min(recovery_point, log.offsets.end)):
        try:
            found = read_one(log, offset)
        except DamagedLog:
            assert offset in touched
            continue
        if found != stored[offset]:
            assert offset in touched
            assert found is not None
            assert found[:8] == stored[offset][:8]
            assert not crc_is_right(found, 0, len(found)) or found[16:] == stored[offset][16:]
    for offset in range(recovery_point, log.offsets.end):
        assert read_one(log, offset) == stored[offset]
