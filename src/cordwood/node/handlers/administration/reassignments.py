"""Moves of partitions to other replicas: AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.cluster.planner.reassignment import Move, is_moving
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.outcomes import each_outcome, status
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.wire.message_types.alter_partition_reassignments import AlterPartitionReassignments
    from cordwood.wire.message_types.list_partition_reassignments import ListPartitionReassignments


MOVES_PER_STEP = 500


class ReassignmentRooms(Protocol):
    """The rooms of a node that these handlers need."""

    image: ClusterImage
    loop: Loop
    reports: Reports


def alter_partition_reassignments(rooms: ReassignmentRooms, request: Request[AlterPartitionReassignments]) -> Steps:
    body = yield from request.read()
    refusal = request.judge.refusal(Operation.ALTER, ResourceKind.CLUSTER)
    if refusal is not None:
        # Java's client takes the error from the partitions.
        request.answer(
            **status(refusal),
            responses=Made(
                body.topics,
                lambda topic: {
                    "name": topic.name,
                    "partitions": Made(
                        topic.partitions, lambda each: {"partition_index": each.partition_index, **status(refusal)}
                    ),
                },
            ),
        )
        return
    moves = []
    for topic in body.topics:
        for each in topic.partitions:
            replicas = None if each.replicas is None else tuple(each.replicas)
            moves.append(Move(topic.name, each.partition_index, replicas))
            if not len(moves) % MOVES_PER_STEP:
                yield
    may_change_count = request.version < 1 or body.allow_replication_factor_change

    def moved(outcomes: dict[tuple[str, int], ProtocolError | None] | Exception) -> None:
        keys = list(dict.fromkeys((move.topic, move.partition) for move in moves))
        by_topic: dict[str, list[tuple[int, ProtocolError | None]]] = {}
        for (name, index), outcome in each_outcome(rooms.reports, outcomes, keys):
            by_topic.setdefault(name, []).append((index, outcome))
        request.answer(
            error_code=ErrorCode.NONE,
            error_message=None,
            allow_replication_factor_change=may_change_count,
            responses=Made(
                list(by_topic.items()),
                lambda topic: {
                    "name": topic[0],
                    "partitions": Made(topic[1], lambda each: {"partition_index": each[0], **status(each[1])}),
                },
            ),
        )

    rooms.loop.effects.metadata(lambda writer: writer.reassign(moves, may_change_count=may_change_count), moved)


def list_partition_reassignments(rooms: ReassignmentRooms, request: Request[ListPartitionReassignments]) -> Steps:
    body = yield from request.read()
    refusal = request.judge.refusal(Operation.DESCRIBE, ResourceKind.CLUSTER)
    if refusal is not None:
        request.answer(**status(refusal), topics=())
        return
    image = rooms.image
    asked: dict[str, Sequence[int]]
    if body.topics is None:
        asked = {topic.name: range(len(topic.partitions)) for topic in image.sorted_topics()}
    else:
        asked = {topic.name: topic.partition_indexes for topic in body.topics}
    found = []
    for name, indexes in asked.items():
        moving = [
            (index, partition)
            for index in indexes
            if (partition := image.partition_of(name, index)) is not None and is_moving(partition)
        ]
        if moving:
            found.append((name, moving))
        yield
    request.answer(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=Made(
            found,
            lambda topic: {
                "name": topic[0],
                "partitions": [
                    {
                        "partition_index": index,
                        "replicas": partition.replicas,
                        "adding_replicas": partition.adding,
                        "removing_replicas": partition.removing,
                    }
                    for index, partition in topic[1]
                ],
            },
        ),
    )


HANDLERS = (
    serves(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, alter_partition_reassignments),
    serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, list_partition_reassignments),
)
