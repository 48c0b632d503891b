"""A reader's position, kept for it: FindCoordinator, OffsetCommit, OffsetFetch.

A group with members takes commits from them alone, and only in their generation; one without takes them from anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cordwood.groups.offset_records import Position
from cordwood.groups.positions import Commit
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId, TopicPartition
from cordwood.node.group_positions import UNSTABLE, CommitRequest
from cordwood.node.group_shards import Author
from cordwood.node.partition import Partition
from cordwood.node.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.node import Node

GROUP_KEY = 0
TRANSACTION_KEY = 1
EPOCHS_FROM_VERSION = 9
"""Of OffsetCommit: older clients know neither epochs of members nor that a group may not be there."""


def find_coordinator(node: Node, request: Request) -> None:
    body = request.decode()
    version = request.version
    keys = list(body.coordinator_keys) if version >= 4 else [body.key]
    key_type = body.key_type

    def answer(error: ProtocolError | None) -> None:
        me = node.image.brokers[node.broker_id].endpoints[0]
        found = []
        for key in keys:
            problem = error or _coordinator_problem(key, key_type)
            located = problem is None
            found.append(
                {
                    "key": key,
                    "node_id": node.broker_id if located else -1,
                    "host": me.host if located else "",
                    "port": me.port if located else -1,
                    "error_code": ErrorCode.NONE if problem is None else problem.code,
                    "error_message": None if problem is None else problem.message,
                }
            )
        if version >= 4:
            request.answer(coordinators=found)
        else:
            request.answer(**{name: value for name, value in found[0].items() if name != "key"})

    if key_type == GROUP_KEY:
        node.groups.when_topic_exists(answer)
    elif key_type == TRANSACTION_KEY:
        node.transactions.when_topic_exists(answer)
    else:
        answer(None)


def _coordinator_problem(key: str, key_type: int) -> ProtocolError | None:
    if key_type == TRANSACTION_KEY:
        return None if key else ProtocolError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    if key_type != GROUP_KEY:
        return ProtocolError(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    if not key:
        return ProtocolError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    return None


class AskedPositions:
    """The positions that a request wants committed, and what becomes of each."""

    def __init__(self, node: Node, topics: Any, *, by_id: bool, retention_ms: int = -1) -> None:
        self._topics = topics
        self._errors: list[ErrorCode] = []
        self._places: list[int] = []
        self.commits: list[Commit] = []
        """Those in partitions that there are."""
        self.partitions: list[Partition] = []
        """That these are in."""
        for topic in topics:
            name = node.topic_name(topic.topic_id or ZERO_TOPIC_ID) if by_id else topic.name
            there = [] if name is None else node.topics.get(name, [])
            for asked in topic.partitions:
                index = asked.partition_index
                if name is None:
                    self._errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
                elif not 0 <= index < len(there):
                    self._errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    self._places.append(len(self._errors))
                    self._errors.append(ErrorCode.NONE)
                    partition = there[index]
                    self.partitions.append(partition)
                    self.commits.append(
                        Commit(
                            partition.name,
                            asked.committed_offset,
                            asked.committed_leader_epoch,
                            asked.committed_metadata,
                            partition.topic_id,
                            retention_ms,
                        )
                    )

    def refuse(self, error: ErrorCode) -> None:
        self._errors = [error] * len(self._errors)

    def settle(self, outcome: list[ErrorCode]) -> None:
        """One for each of the commits."""
        if len(outcome) == len(self._errors):
            self._errors = outcome
            return
        for place, error in zip(self._places, outcome, strict=True):
            self._errors[place] = error

    def answer(self) -> list[dict[str, Any]]:
        """The topics of the response, under the names or ids that the request has for them."""
        errors = iter(self._errors)
        return [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": asked.partition_index, "error_code": next(errors)} for asked in topic.partitions
                ],
            }
            for topic in self._topics
        ]


def offset_commit(node: Node, request: Request) -> None:
    """Remembers positions; answers when they are as safe as the internal topic's acks promise."""
    body = request.decode()
    asked = AskedPositions(node, body.topics, by_id=request.version >= 10, retention_ms=body.retention_time_ms)
    if not body.group_id:
        asked.refuse(ErrorCode.INVALID_GROUP_ID)
        request.answer(topics=asked.answer())
        return

    knows_epochs = request.version >= EPOCHS_FROM_VERSION

    def committed(outcome: list[ErrorCode]) -> None:
        if not knows_epochs and ErrorCode.GROUP_ID_NOT_FOUND in outcome:
            outcome = [ErrorCode.ILLEGAL_GENERATION] * len(outcome)
        asked.settle(outcome)
        request.answer(topics=asked.answer())

    author = Author(body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    wanted = CommitRequest(body.group_id, author, asked.commits, asked.partitions, knows_epochs)
    node.groups.positions.commit(wanted, committed)


def _resolve_topic(node: Node, by_id: bool, topic: Any) -> tuple[str | None, TopicId]:
    if by_id:
        topic_id = topic.topic_id or ZERO_TOPIC_ID
        return node.topic_name(topic_id), topic_id
    return topic.name, node.topic_id(topic.name)


def offset_fetch(node: Node, request: Request) -> None:
    """The positions of one group, or of several (v8+)."""
    body = request.decode()
    version = request.version
    groups = list(body.groups) if version >= 8 else [body]
    answers: list[dict[str, Any]] = [{}] * len(groups)
    missing = len(groups)

    def one_done(place: int) -> Callable[[dict[TopicPartition, Position] | ErrorCode], None]:
        def done(found: dict[TopicPartition, Position] | ErrorCode) -> None:
            nonlocal missing
            answers[place] = _group_answer(node, version, groups[place], found)
            missing -= 1
            if not missing:
                if version >= 8:
                    request.answer(groups=answers)
                else:
                    request.answer(**{name: value for name, value in answers[0].items() if name != "group_id"})

        return done

    if not groups:
        request.answer(groups=[])
    for place, group in enumerate(groups):
        if not group.group_id:
            one_done(place)(ErrorCode.INVALID_GROUP_ID)
        else:
            node.groups.positions.fetch(
                group.group_id,
                _reader(version, group),
                one_done(place),
                require_stable=body.require_stable,
            )


def _reader(version: int, group: Any) -> Author:
    return Author(group.member_id or "", None, group.member_epoch) if version >= 9 else Author()


def _group_answer(
    node: Node, version: int, group: Any, found: dict[TopicPartition, Position] | ErrorCode
) -> dict[str, Any]:
    error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
    positions = {} if isinstance(found, ErrorCode) else found
    topics: dict[str | TopicId, dict[str, Any]] = {}
    if error == ErrorCode.NONE or version < 2:
        for name, topic_id, index in _wanted(node, version, group, positions):
            known_as = {"name": name or "", "topic_id": topic_id} if version >= 8 else {"name": name}
            entry = topics.setdefault(name or topic_id, {**known_as, "partitions": []})
            position = positions.get(TopicPartition(name, index)) if name is not None else None
            entry["partitions"].append(
                {
                    "partition_index": index,
                    "committed_offset": -1 if position is None else position.offset,
                    "committed_leader_epoch": -1 if position is None else position.leader_epoch,
                    "metadata": "" if position is None else position.metadata,
                    "error_code": _position_error(error, name, position),
                }
            )
    return {"group_id": group.group_id, "topics": list(topics.values()), "error_code": error}


def _position_error(error: ErrorCode, topic: str | None, position: Position | None) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if position is UNSTABLE else error


def _wanted(
    node: Node, version: int, group: Any, positions: dict[TopicPartition, Position]
) -> Iterator[tuple[str | None, TopicId, int]]:
    """(topic name or None if its id is unknown, topic id, partition): those asked for, or all that have a position."""
    if group.topics is None:
        for partition in sorted(positions):
            yield partition.topic, node.topic_id(partition.topic), partition.partition
        return
    for topic in group.topics:
        name, topic_id = _resolve_topic(node, version >= 10, topic)
        for index in topic.partition_indexes:
            yield name, topic_id, index


HANDLERS = (
    serves(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator),
    serves(ApiKey.OFFSET_COMMIT, 2, 10, offset_commit),
    serves(ApiKey.OFFSET_FETCH, 1, 10, offset_fetch),
)
