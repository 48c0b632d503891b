"""AlterReplicaLogDirs: moves this broker's replicas to other data directories of this broker.

The answer comes at once: the move has begun or waits for its turn. DescribeLogDirs shows its progress, and the broker's
log its end. A request for the present directory of a log ends its move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Request, by_topic, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.node.duties.log_moves import LogMoves
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.wire.message_types.alter_replica_log_dirs import AlterReplicaLogDirs

ASKED_PER_STEP = 100


class MovingRooms(Protocol):
    """The rooms of a node that these handlers need."""

    hosted: HostedReplicas
    logs: DataDirectories
    log_moves: LogMoves
    reports: Reports


def alter_replica_log_dirs(rooms: MovingRooms, request: Request[AlterReplicaLogDirs]) -> Steps:
    body = yield from request.read()
    refusal = request.judge.error(Operation.ALTER, ResourceKind.CLUSTER)
    answers: list[tuple[str, AlterReplicaLogDirs.AnswerPartition]] = []
    for each in body.dirs:
        for topic in each.topics:
            for index in topic.partitions:
                error = refusal or _move(rooms, TopicPartition(topic.name, index), each.path)
                answers.append((topic.name, {"partition_index": index, "error_code": error}))
                if not len(answers) % ASKED_PER_STEP:
                    yield
    request.answer(results=[{"topic_name": topic, "partitions": partitions} for topic, partitions in by_topic(answers)])


def _move(rooms: MovingRooms, name: TopicPartition, path: str) -> ErrorCode:
    directory = rooms.logs.directory_at(path)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = rooms.hosted.get(*name)
    if directory in rooms.logs.lost or (partition is not None and partition.role.offline):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition is None:
        # As in Kafka, the partition is made in this directory when it comes.
        rooms.log_moves.wish(name, directory)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if rooms.logs.has_log(name):
        try:
            partition.open_log()
        except StorageFailure as failure:
            rooms.reports.failure(failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
    rooms.log_moves.move(partition, directory)
    return ErrorCode.NONE


HANDLERS = (serves(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, alter_replica_log_dirs),)
