"""What the tests of the log share: opening one, appending to it, reading all of it."""

from tests.moments import at

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Appended, Log
from cordwood.log.parts.loaded_indexes import LoadedIndexes
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.records.records import records_in
from cordwood.segments.filesystem import Filesystem, remove_if_there
from cordwood.segments.names import Suffix, segment_file

DATA = "/data"
DIRECTORY = "/data/orders-0"
PARTITION = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
SMALL = TopicSettings(segment_bytes=1000, index_interval_bytes=200)
ONE_SEGMENT = TopicSettings(index_interval_bytes=200)


def disk(seed: int = 0) -> CrashingFilesystem:
    """A filesystem with a durable data directory."""
    filesystem = CrashingFilesystem(seed)
    filesystem.make_directory(DATA)
    filesystem.sync_directory("/")
    return filesystem


def open_log(
    filesystem: Filesystem,
    settings: TopicSettings = SMALL,
    *,
    recovery_point: int = 0,
    clean: bool = True,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
    ever_compacted: bool = False,
    recovery_point_lost: bool = False,
) -> Log:
    return Log.open(
        filesystem,
        DIRECTORY,
        PARTITION,
        settings,
        recovery_point=recovery_point,
        clean=clean,
        now=at(now_ms),
        log_start_offset=log_start_offset,
        ever_compacted=ever_compacted,
        recovery_point_lost=recovery_point_lost,
        loaded_indexes=LoadedIndexes(),
    )


def reopen(log: Log, *, clean: bool, now_ms: int = NOW_MS) -> Log:
    """The log as the next process finds it."""
    log.close()
    return open_log(
        log.directory.filesystem,
        log.settings,
        recovery_point=log.offsets.recovery_point,
        clean=clean,
        log_start_offset=log.offsets.start,
        now_ms=now_ms,
    )


def append(
    log: Log,
    *values: bytes,
    leader_epoch: int = 0,
    timestamp_ms: int = NOW_MS,
    now_ms: int = NOW_MS,
    producer: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> Appended:
    """Appends one batch with a record for each value."""
    batch = build_batch(
        [(timestamp_ms, b"key", value, ()) for value in values or (b"value",)],
        producer_id=producer,
        producer_epoch=producer_epoch if producer >= 0 else -1,
        base_sequence=sequence if producer >= 0 else -1,
        transactional=transactional,
    )
    return log.append(memoryview(batch), leader_epoch=leader_epoch, now=at(now_ms))


def end_transaction(
    log: Log, producer: int, *, committed: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> Appended:
    marker = build_transaction_marker(
        TransactionMarker(committed, coordinator_epoch),
        producer_id=producer,
        producer_epoch=producer_epoch,
        timestamp_ms=NOW_MS,
    )
    return log.append_internal(marker, leader_epoch=0, now=at(NOW_MS))


def fill(log: Log, batches: int, *, size: int = 100) -> list[bytes]:
    """Appends so many batches with one record each; their values."""
    values = [f"{log.offsets.end + number}:".encode().ljust(size, b".") for number in range(batches)]
    for value in values:
        append(log, value)
    return values


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    ticket.finish()


def remove_deleted(log: Log, boot_ms: int) -> None:
    """Frees the disk of segments that were dropped file.delete.delay.ms ago."""
    for path in log.segments.take_due_deletions(boot_ms):
        remove_if_there(log.directory.filesystem, path)


def delete(log: Log) -> None:
    """Removes the log and its files, as the deletion of a topic does."""
    path = log.condemn()
    if path is not None:
        log.directory.filesystem.sync_directory(path.rpartition("/")[0])
        log.directory.filesystem.remove_tree(path)


def batch_bytes(log: Log, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """The bytes that a reader at this offset gets."""
    found = log.read(offset, max_bytes, end_offset=log.offsets.end, minimum_one_batch=True)
    return b"" if found is None else found.file.read(found.position, found.length)


def values(log: Log, start: int | None = None) -> list[bytes]:
    """The values of all records from this offset on, as a consumer gets them."""
    offset = log.offsets.start if start is None else start
    read: list[bytes] = []
    while data := batch_bytes(log, offset):
        for position, header in batches_in(data):
            for record in records_in(data[position : position + header.size]):
                if record.offset >= offset:
                    read.append(record.value or b"")
            offset = header.next_offset
    return read


def log_path(base_offset: int = 0) -> str:
    return segment_file(DIRECTORY, base_offset, Suffix.LOG)


def beside(suffix: Suffix, base_offset: int = 0) -> str:
    return segment_file(DIRECTORY, base_offset, suffix)


def bases(log: Log) -> list[int]:
    """The base offsets of its segments."""
    return [segment.base_offset for segment in log.segments]
