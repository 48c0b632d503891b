"""Offsets of a log: ListOffsets, OffsetForLeaderEpoch, and DeleteRecords, which moves the log's start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.log.reading.timestamps import FoundTimestamp
from cordwood.log.upkeep.retention import DROPPED_AT_ONCE
from cordwood.model.errors import DamagedLog, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.brokers_only import is_broker
from cordwood.node.requests.request import Made, Request, by_topic, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.log.reading.record_work import RecordWork
    from cordwood.node.duties.maintenance import Maintenance
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.acks import Acks
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.replication.leader import LeaderReplica
    from cordwood.wire.message_types.delete_records import DeleteRecords
    from cordwood.wire.message_types.list_offsets import ListOffsets
    from cordwood.wire.message_types.offset_for_leader_epoch import OffsetForLeaderEpoch


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
LOOKED_UP_PER_STEP = 100
"""Partitions in one step: a log may have to be opened."""
NOTHING_FOUND = (-1, -1, -1)

Found = tuple[int, int, int] | Exception
"""(offset, timestamp, leader epoch)"""


class LogOffsetRooms(Protocol):
    """The rooms of a node that these handlers need."""

    acks: Acks
    apart: RecordWork
    hosted: HostedReplicas
    image: ClusterImage
    logs: DataDirectories
    loop: Loop
    maintenance: Maintenance
    reports: Reports


def list_offsets(rooms: LogOffsetRooms, request: Request[ListOffsets]) -> Steps:
    """Finds offsets by timestamp, or the ends of the log for a reader of this isolation level."""
    body = yield from request.read()
    missing = sum(len(topic.partitions) for topic in body.topics)
    judge = request.judge
    results: dict[str, list[ListOffsets.AnswerPartition]] = {}
    """By topic, in the order of the request."""

    def place_for(topic: str, index: int) -> Callable[[Found], None]:
        partitions = results.setdefault(topic, [])
        place = len(partitions)
        partitions.append({})

        def done(found: Found) -> None:
            nonlocal missing
            offset, timestamp, leader_epoch = NOTHING_FOUND if isinstance(found, Exception) else found
            partitions[place] = {
                "partition_index": index,
                "error_code": _error_of(rooms, found),
                "timestamp": timestamp,
                "offset": offset,
                "leader_epoch": leader_epoch,
            }
            missing -= 1
            if not missing:
                request.answer(topics=Made(results.items(), lambda each: {"name": each[0], "partitions": each[1]}))

        return done

    if not missing:
        request.answer(topics=())
    seen: set[tuple[str, int]] = set()
    asked = ((topic.name, each) for topic in body.topics for each in topic.partitions)
    for place, (topic, partition) in enumerate(asked):
        if place and not place % LOOKED_UP_PER_STEP:
            yield
        key = (topic, partition.partition_index)
        done = place_for(*key)
        if key in seen:
            done(ProtocolError(ErrorCode.INVALID_REQUEST, f"{key} is asked for twice."))
            continue
        seen.add(key)
        try:
            refusal = judge.refusal(Operation.DESCRIBE, ResourceKind.TOPIC, topic)
            if refusal is not None:
                raise refusal
            _find_offset(rooms, request, body.isolation_level, topic, partition, done)
        except (ProtocolError, StorageFailure) as failure:
            done(failure)


def _error_of(rooms: LogOffsetRooms, found: Found) -> ErrorCode:
    if isinstance(found, ProtocolError):
        return found.code
    if isinstance(found, Exception):
        rooms.reports.failure(found)
        return ErrorCode.CORRUPT_MESSAGE if isinstance(found, DamagedLog) else ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _find_offset(
    rooms: LogOffsetRooms,
    request: Request,
    isolation_level: int,
    topic: str,
    asked: ListOffsets.RequestPartition,
    done: Callable[[Found], None],
) -> None:
    """Calls back with (offset, timestamp, leader epoch), with -1 for missing values. Records are read in a thread."""
    replica = rooms.hosted.leader(topic, asked.partition_index).replica
    replica.check_epoch(asked.current_leader_epoch)
    log = replica.log
    end = replica.last_stable_offset if isolation_level == READ_COMMITTED else replica.high_watermark
    timestamp, version = asked.timestamp, request.version
    if timestamp < 0 and (timestamp < EARLIEST_PENDING_UPLOAD or version < _SPECIAL_SINCE.get(timestamp, 0)):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {timestamp} is not known in version {version}.")
    if timestamp in (LATEST, MAX_TIMESTAMP) or timestamp >= 0:
        _check_end_is_known(replica)
    if timestamp == LATEST:
        done((end, -1, replica.leader_epoch))
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        done((log.offsets.start, -1, log.replayed.leader_epochs.epoch_at(log.offsets.start)))
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        done(NOTHING_FOUND)  # there is no tiered storage
    else:
        search: Callable[[], FoundTimestamp | None]
        if timestamp == MAX_TIMESTAMP:
            search = partial(log.max_timestamp_offset, end_offset=end, apart=rooms.apart)
        else:
            search = log.timestamp_search(timestamp, end_offset=end, apart=rooms.apart).run
        rooms.loop.effects.for_client(
            request.reply.connection_id, search, lambda found: done(NOTHING_FOUND if found is None else found)
        )


def _check_end_is_known(replica: LeaderReplica) -> None:
    """Refuses while the end of a new leader could be below an offset that readers of an earlier leader have seen."""
    if not replica.knows_high_watermark:
        raise ProtocolError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{replica.log.partition}: the new leader does not know its high watermark yet.",
        )


def offset_for_leader_epoch(rooms: LogOffsetRooms, request: Request[OffsetForLeaderEpoch]) -> Steps:
    """Finds the end of an epoch: a client or follower compares it with its log to find a divergence."""
    body = yield from request.read()
    replica_id = body.replica_id
    judge = request.judge
    # With an authorizer the right counts, whoever asks.
    believed = replica_id < 0 or judge.enforces or is_broker(rooms.image, request, replica_id)

    def topic(asked: OffsetForLeaderEpoch.RequestTopic) -> OffsetForLeaderEpoch.AnswerTopic:
        allowed = believed and judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, asked.topic)

        def partition(each: OffsetForLeaderEpoch.RequestPartition) -> OffsetForLeaderEpoch.AnswerPartition:
            if allowed:
                return _epoch_end(rooms, asked.topic, each)
            return _epoch_end_answer(each.partition, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

        return {"topic": asked.topic, "partitions": Made(asked.partitions, partition)}

    request.answer(topics=Made(body.topics, topic))


def _epoch_end(
    rooms: LogOffsetRooms, topic: str, asked: OffsetForLeaderEpoch.RequestPartition
) -> OffsetForLeaderEpoch.AnswerPartition:
    leader_epoch, end_offset, error = -1, -1, ErrorCode.NONE
    try:
        replica = rooms.hosted.leader(topic, asked.partition).replica
        replica.check_epoch(asked.current_leader_epoch)
        leader_epoch, end_offset = replica.end_offset_for(asked.leader_epoch)
    except ProtocolError as refusal:
        error = refusal.code
    except StorageFailure as failure:
        rooms.reports.failure(failure)
        error = ErrorCode.KAFKA_STORAGE_ERROR
    return _epoch_end_answer(asked.partition, leader_epoch, end_offset, error)


def _epoch_end_answer(
    index: int, leader_epoch: int = -1, end_offset: int = -1, error: ErrorCode = ErrorCode.NONE
) -> OffsetForLeaderEpoch.AnswerPartition:
    return {"error_code": error, "partition": index, "leader_epoch": leader_epoch, "end_offset": end_offset}


def delete_records(rooms: LogOffsetRooms, request: Request[DeleteRecords]) -> Steps:
    """Moves the start of a log forward, durably, on every replica that may be elected: deleted records come back
    neither after a crash nor after a failover."""
    body = yield from request.read()
    results: list[tuple[str, DeleteRecords.AnswerPartition]] = []
    starts: dict[Partition, int] = {}
    dropped = 0
    judge = request.judge
    for topic in body.topics:
        denied = judge.refusal(Operation.DELETE, ResourceKind.TOPIC, topic.name)
        for asked in topic.partitions:
            if dropped >= DROPPED_AT_ONCE or (results and not len(results) % LOOKED_UP_PER_STEP):
                dropped = 0
                yield
            low_watermark, error = -1, ErrorCode.NONE
            try:
                if denied is not None:
                    raise denied
                partition, segments = _delete_before(rooms, topic.name, asked.partition_index, asked.offset)
                low_watermark = starts[partition] = partition.log.offsets.start
                dropped += segments
            except ProtocolError as refusal:
                error = refusal.code
            except StorageFailure as failure:
                rooms.reports.failure(failure)
                error = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(
                (
                    topic.name,
                    {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": error},
                )
            )

    def answer(errors: Mapping[tuple[str, int], ErrorCode]) -> None:
        for name, result in results:
            error = errors.get((name, result["partition_index"]), ErrorCode.NONE)
            result["error_code"] = result["error_code"] or error
        request.answer(topics=Made(by_topic(results), lambda each: {"name": each[0], "partitions": each[1]}))

    def saved(outcome: Exception | None) -> None:
        if isinstance(outcome, Exception):
            rooms.reports.failed_write(outcome)
            answer({partition.name: ErrorCode.KAFKA_STORAGE_ERROR for partition in starts})
        else:
            _when_all_saved(rooms.acks, starts, request.now.boot_ms + body.timeout_ms, answer)

    save = rooms.logs.save_offsets([partition.log for partition in starts])
    rooms.loop.effects.for_client(request.reply.connection_id, save, saved)


def _when_all_saved(
    acks: Acks,
    starts: Mapping[Partition, int],
    deadline_ms: int,
    answer: Callable[[Mapping[tuple[str, int], ErrorCode]], None],
) -> None:
    """Calls `answer` with the error of each partition once the wait for its followers is over."""
    errors: dict[tuple[str, int], ErrorCode] = {}

    def done(partition: Partition, error: ErrorCode) -> None:
        errors[partition.name] = error
        if len(errors) == len(starts):
            answer(errors)

    if not starts:
        answer(errors)
    for partition, start in starts.items():
        acks.when_starts_reach(partition, start, deadline_ms, partial(done, partition))


def _delete_before(rooms: LogOffsetRooms, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Moves the start of a log. Returns the partition, and the number of segments that its log has dropped."""
    partition = rooms.hosted.leader(topic, index)
    replica = partition.replica
    if partition.settings.compacted and not partition.settings.deletes:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"{topic!r} is compacted: delete its keys with tombstones.")
    target = replica.high_watermark if offset == -1 else offset
    if not 0 <= target <= replica.high_watermark:
        raise ProtocolError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.name} ends at {replica.high_watermark}, before {target}."
        )
    log = replica.log
    before = len(log.segments)
    if target > log.offsets.start:
        log.delete_records_before(target)
        partition.waits.wake_everybody(rooms.loop.now)
    dropped = before - len(log.segments)
    if dropped >= DROPPED_AT_ONCE:
        rooms.maintenance.drop_soon(partition)
    elif dropped:
        rooms.maintenance.remove_dropped(partition)
    return partition, dropped


HANDLERS = (
    serves(ApiKey.LIST_OFFSETS, 1, 11, list_offsets),
    serves(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, offset_for_leader_epoch),
    serves(ApiKey.DELETE_RECORDS, 0, 2, delete_records),
)
