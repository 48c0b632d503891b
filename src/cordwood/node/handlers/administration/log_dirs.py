"""DescribeLogDirs: the sizes of partitions on disk, and how far followers are behind their leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.partitions.partition import Partition
from cordwood.node.requests.request import Request, by_topic, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.log.directory.data_directory import DataDirectory
    from cordwood.node.duties.log_moves import FutureLog, LogMoves
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.wire.message_types.describe_log_dirs import DescribeLogDirs


SIZED_PER_STEP = 100
"""Partitions in one step: a log may have to be opened to be sized."""


class LogDirRooms(Protocol):
    """The rooms of a node that these handlers need."""

    hosted: HostedReplicas
    image: ClusterImage
    log_moves: LogMoves
    logs: DataDirectories
    loop: Loop
    reports: Reports


def describe_log_dirs(rooms: LogDirRooms, request: Request[DescribeLogDirs]) -> Steps:
    """Describes the data directories, with the size of each requested partition (null: of all). A partition without a
    log is listed in the first directory."""
    body = yield from request.read()
    refusal = request.judge.error(Operation.DESCRIBE, ResourceKind.CLUSTER)
    if refusal is not ErrorCode.NONE:
        request.answer(error_code=refusal, results=())
        return
    # A partition that is asked for more than once is told once.
    asked = dict.fromkeys((topic.topic, index) for topic in body.topics or () for index in topic.partitions)
    names = (partition.name for partition in list(rooms.hosted)) if body.topics is None else iter(asked)
    logs = rooms.logs
    sized: dict[str, list[tuple[str, DescribeLogDirs.AnswerPartition]]] = {each.path: [] for each in logs.directories}
    for looked_at, (topic, index) in enumerate(names, 1):
        partition = rooms.hosted.get(topic, index)
        if partition is not None:
            directory = logs.directory_of(partition.name) or logs.home
            if not partition.role.offline:
                sized[directory.path].append((topic, _sized(rooms, partition)))
            if (future := rooms.log_moves.future_of(partition.name)) is not None:
                sized[future.directory.path].append((topic, _copy(partition, future)))
        if not looked_at % SIZED_PER_STEP:
            yield

    def measured(free: list[tuple[int, int]] | Exception) -> None:
        assert not isinstance(free, Exception)
        lost = {directory.path for directory in logs.lost}
        # A broker is cordoned as a whole: cordoned.log.dirs takes all directories or none.
        cordoned = rooms.image.node_id in rooms.image.cordoned_brokers()
        results: list[DescribeLogDirs.AnswerResult] = [
            {
                "error_code": ErrorCode.KAFKA_STORAGE_ERROR if path in lost else ErrorCode.NONE,
                "log_dir": path,
                "topics": [{"name": topic, "partitions": partitions} for topic, partitions in by_topic(found)],
                "total_bytes": total_bytes,
                "usable_bytes": usable_bytes,
                "is_cordoned": cordoned,
            }
            for (path, found), (total_bytes, usable_bytes) in zip(sized.items(), free, strict=True)
        ]
        request.answer(error_code=ErrorCode.NONE, results=results)

    rooms.loop.effects.for_client(
        request.reply.connection_id, lambda: [_free_bytes(each) for each in logs.directories], measured
    )


def _free_bytes(directory: DataDirectory) -> tuple[int, int]:
    try:
        return directory.free_bytes()
    except StorageFailure:
        return -1, -1


def _sized(rooms: LogDirRooms, partition: Partition) -> DescribeLogDirs.AnswerPartition:
    size_bytes, last_epoch, end_offset = 0, -1, 0
    if partition.opened is not None or rooms.logs.has_log(partition.name):
        try:
            log = partition.log
            size_bytes, last_epoch, end_offset = log.segments.size_bytes, log.replayed.latest_epoch, log.offsets.end
        except StorageFailure as failure:
            end_offset = -1
            rooms.reports.failure(failure)
    return {
        "partition_index": partition.name.partition,
        "partition_size": size_bytes,
        "offset_lag": 0 if partition.role.following is None else partition.role.following.lag,
        "is_future_key": False,
        "last_epoch": last_epoch,
        "end_offset": end_offset,
    }


def _copy(partition: Partition, future: FutureLog) -> DescribeLogDirs.AnswerPartition:
    """The copy of a log that moves to another directory."""
    return {
        "partition_index": partition.name.partition,
        "partition_size": future.size_bytes,
        "offset_lag": future.lag,
        "is_future_key": True,
        "last_epoch": -1,
        "end_offset": -1,
    }


HANDLERS = (serves(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, describe_log_dirs),)
