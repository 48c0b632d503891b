"""Positions of readers: FindCoordinator, OffsetCommit, OffsetFetch.

A group with members takes commits from its members alone, and only in their generation. A group without members takes
commits from any client. A commit of many positions is written as several batches, one in each turn: a crash may keep
some positions and lose others, as between several commits. The answer waits until all batches are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.groups.state.committed_positions import Commit
from cordwood.groups.state.offset_records import Position
from cordwood.model.coordination import coordinating_partition, is_too_long, transaction_partition
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ZERO_TOPIC_ID,
    TopicId,
    TopicPartition,
)
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.coordinators.group_positions import UNSTABLE, CommitRequest, Settled
from cordwood.node.coordinators.group_shards import Author
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import NARROW_BYTES, Made, Request, in_order, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.endpoints import NodeEndpoint

if TYPE_CHECKING:
    from cordwood.node.coordinators.group_coordinator import GroupCoordinator
    from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
    from cordwood.node.requests.access import Judge
    from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients
    from cordwood.wire.message_types.find_coordinator import FindCoordinator
    from cordwood.wire.message_types.offset_commit import OffsetCommit
    from cordwood.wire.message_types.offset_fetch import OffsetFetch
    from cordwood.wire.message_types.txn_offset_commit import TxnOffsetCommit

    CommittedTopic = OffsetCommit.RequestTopic | TxnOffsetCommit.RequestTopic
    CommittedPartition = OffsetCommit.RequestPartition | TxnOffsetCommit.RequestPartition


GROUP_KEY = 0
TRANSACTION_KEY = 1
EPOCHS_FROM_VERSION = 9
"""Before this version of OffsetCommit clients know neither member epochs nor GROUP_ID_NOT_FOUND."""

COMMITS_PER_STEP = 150
GROUPS_PER_STEP = 100
LOOKED_UP_PER_STEP = 500

MAX_POSITIONS_ANSWERED = 250_000
"""The most positions in one answer to requests for all positions of groups: some 20 MB."""

Found = dict[TopicPartition, Position] | ErrorCode


class PositionRooms(Protocol):
    """The rooms of a node that these handlers need."""

    groups: GroupCoordinator
    image: ClusterImage
    transactions: TransactionCoordinator


def find_coordinator(rooms: PositionRooms, request: Request[FindCoordinator]) -> Steps:
    body = yield from request.read()
    version = request.version
    keys = list(body.coordinator_keys) if version >= 4 else [body.key]
    key_type = body.key_type
    judge = request.judge

    def answer(error: ProtocolError | None) -> None:
        def found(key: str) -> FindCoordinator.AnswerCoordinator:
            coordinator: NodeEndpoint | None = None
            try:
                refusal = _not_told(judge, key, key_type) or error
                if refusal is not None:
                    raise refusal
                coordinator = _coordinator(rooms.image, key, key_type, request.reply.session.entrance.name)
                problem = None
            except ProtocolError as refusal:
                problem = refusal
            return {
                "key": key,
                "node_id": -1 if coordinator is None else coordinator.node_id,
                "host": "" if coordinator is None else coordinator.host,
                "port": -1 if coordinator is None else coordinator.port,
                "error_code": ErrorCode.NONE if problem is None else problem.code,
                "error_message": None if problem is None else problem.message,
            }

        if version >= 4:
            request.answer(coordinators=Made(keys, found))
        else:
            only = found(keys[0])
            request.answer(
                node_id=only["node_id"],
                host=only["host"],
                port=only["port"],
                error_code=only["error_code"],
                error_message=only["error_message"],
            )

    if all(_not_told(judge, key, key_type) for key in keys):
        answer(None)
    elif key_type == GROUP_KEY:
        rooms.groups.shards.log.when_topic_exists(answer)
    elif key_type == TRANSACTION_KEY:
        rooms.transactions.log.when_topic_exists(answer)
    else:
        answer(None)


def _not_told(judge: Judge, key: str, key_type: int) -> ProtocolError | None:
    """The answer to somebody who may not look for this coordinator, or None."""
    if key_type == GROUP_KEY:
        return judge.refusal(Operation.DESCRIBE, ResourceKind.GROUP, key)
    if key_type == TRANSACTION_KEY:
        return judge.refusal(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key)
    return None


def _coordinator(image: ClusterImage, key: str, key_type: int, listener: str) -> NodeEndpoint:
    """The broker that leads the partition of the internal topic that the key belongs to, as clients of a listener reach
    it. The topic has to exist."""
    problem = _coordinator_problem(key, key_type)
    if problem is not None:
        raise problem
    topic = image.topics[CONSUMER_OFFSETS_TOPIC if key_type == GROUP_KEY else TRANSACTION_STATE_TOPIC]
    index_of = coordinating_partition if key_type == GROUP_KEY else transaction_partition
    leader = image.leadership(topic.partitions[index_of(key, len(topic.partitions))]).leader
    coordinator = image.brokers.get(leader)
    if coordinator is None:
        # A registration that expired while its process was stopped comes back at the next renewal.
        reason = "has no leader" if leader < 0 else f"is led by broker {leader}, which is not registered at the moment"
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The coordinator's partition {reason}.")
    endpoint = coordinator.endpoint(listener)
    if endpoint is None:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The coordinator has no listener {listener}.")
    return NodeEndpoint(leader, endpoint.host, endpoint.port)


def _coordinator_problem(key: str, key_type: int) -> ProtocolError | None:
    """Refuses keys that no coordinator takes. An empty key has one, as in Kafka: it refuses requests."""
    if key_type not in (GROUP_KEY, TRANSACTION_KEY):
        return ProtocolError(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    if not is_too_long(key):
        return None
    if key_type == TRANSACTION_KEY:
        return ProtocolError(ErrorCode.INVALID_REQUEST, "The transactional id is too long.")
    return ProtocolError(ErrorCode.INVALID_GROUP_ID, "The group id is too long.")


def _find(rooms: PositionRooms, by_id: bool, topic: CommittedTopic) -> TopicImage | None:
    image = rooms.image
    return image.topics_by_id.get(topic.topic_id or ZERO_TOPIC_ID) if by_id else image.topics.get(topic.name)


class AskedPositions:
    """The positions that a request commits, and the outcome of each."""

    def __init__(self, topics: Sequence[CommittedTopic], judge: Judge) -> None:
        self._topics = topics
        self._judge = judge
        self._errors: list[ErrorCode] = []
        self._places: list[int] = []
        self.commits: list[Commit] = []
        """Commits for partitions that exist."""

    def look_up_at_once(self, rooms: PositionRooms, *, by_id: bool, retention_ms: int = -1) -> None:
        """Looks up the topics of a request that is not wide."""
        for topic in self._topics:
            self._look_up(topic, _find(rooms, by_id, topic), by_id, topic.partitions, retention_ms)

    def look_up(self, rooms: PositionRooms, *, by_id: bool, retention_ms: int = -1) -> Steps:
        left = LOOKED_UP_PER_STEP
        for topic in self._topics:
            left -= 1
            for start in range(0, len(topic.partitions), LOOKED_UP_PER_STEP):
                # A topic that is deleted between two steps is refused when its positions are written.
                some = topic.partitions[start : start + LOOKED_UP_PER_STEP]
                self._look_up(topic, _find(rooms, by_id, topic), by_id, some, retention_ms)
                left -= len(some)
                if left <= 0:
                    left = LOOKED_UP_PER_STEP
                    yield

    def _look_up(
        self,
        named: CommittedTopic,
        topic: TopicImage | None,
        by_id: bool,
        partitions: Sequence[CommittedPartition],
        retention_ms: int,
    ) -> None:
        count = 0 if topic is None else len(topic.partitions)
        refusal: ProtocolError | None = None
        if topic is not None:
            refusal = self._judge.topic_refusal(Operation.READ, topic.name, topic.topic_id if by_id else None)
        elif not by_id:
            refusal = self._judge.refusal(Operation.READ, ResourceKind.TOPIC, named.name)
        for asked in partitions:
            index = asked.partition_index
            if refusal is not None:
                self._errors.append(refusal.code)
            elif topic is None and by_id:
                self._errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif topic is None or not 0 <= index < count:
                self._errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                self._places.append(len(self._errors))
                self._errors.append(ErrorCode.NONE)
                self.commits.append(
                    Commit(
                        TopicPartition(topic.name, index),
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata,
                        topic.topic_id,
                        retention_ms,
                    )
                )

    def commit(self, one: Callable[[list[Commit], Settled], None], done: Settled) -> Steps:
        """Lets `one` commit the positions, COMMITS_PER_STEP at a time; `done` gets an error code for each position."""
        starts = range(0, max(len(self.commits), 1), COMMITS_PER_STEP)

        def all_settled(outcomes: list[list[ErrorCode]]) -> None:
            done(list(chain.from_iterable(outcomes)))

        settled = in_order(len(starts), all_settled)
        for place, start in enumerate(starts):
            if place:
                yield
            end = start + COMMITS_PER_STEP
            one(self.commits[start:end], partial(settled, place))

    def refuse(self, error: ErrorCode) -> None:
        self._errors = [error] * len(self._errors)

    def settle(self, outcome: list[ErrorCode]) -> None:
        """Takes the error code of each commit."""
        if len(outcome) == len(self._errors):
            self._errors = outcome
            return
        for place, error in zip(self._places, outcome, strict=True):
            self._errors[place] = error

    def answer(self) -> Made[OffsetCommit.AnswerTopic]:
        """The topics of the response, with the names or ids of the request."""
        next_error = iter(self._errors).__next__

        def partition(asked: CommittedPartition) -> OffsetCommit.AnswerPartition:
            return {"partition_index": asked.partition_index, "error_code": next_error()}

        def topic(asked: CommittedTopic) -> OffsetCommit.AnswerTopic:
            partitions: Sequence[CommittedPartition] = asked.partitions
            return {"name": asked.name, "topic_id": asked.topic_id, "partitions": Made(partitions, partition)}

        return Made(self._topics, topic)


def offset_commit(rooms: PositionRooms, request: Request[OffsetCommit]) -> Steps | None:
    """Stores positions; answers when they are as safe as the internal topic's acks promise."""
    if len(request.frame) > NARROW_BYTES:
        return _commit_in_steps(rooms, request)
    body = request.decode()
    asked = AskedPositions(body.topics, request.judge)
    asked.look_up_at_once(rooms, by_id=request.version >= 10, retention_ms=body.retention_time_ms)
    if _may_commit(request, body, asked):
        _committing(rooms, request, body)(asked.commits, _committed(request, asked))
    return None


def _commit_in_steps(rooms: PositionRooms, request: Request[OffsetCommit]) -> Steps:
    """Handles an OffsetCommit with many positions."""
    body = yield from request.read()
    asked = AskedPositions(body.topics, request.judge)
    yield from asked.look_up(rooms, by_id=request.version >= 10, retention_ms=body.retention_time_ms)
    if _may_commit(request, body, asked):
        yield from asked.commit(_committing(rooms, request, body), _committed(request, asked))


def _may_commit(request: Request[OffsetCommit], body: OffsetCommit.Request, asked: AskedPositions) -> bool:
    """Checks the request. False if the whole request was refused."""
    refusal = request.judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        asked.refuse(refusal)
        request.answer(topics=asked.answer())
        return False
    return True


def _committing(
    rooms: PositionRooms, request: Request[OffsetCommit], body: OffsetCommit.Request
) -> Callable[[list[Commit], Settled], None]:
    author = Author(body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    knows_epochs = request.version >= EPOCHS_FROM_VERSION

    def commit(commits: list[Commit], done: Settled) -> None:
        rooms.groups.positions.commit(CommitRequest(body.group_id, author, commits, knows_epochs), done)

    return commit


def _committed(request: Request[OffsetCommit], asked: AskedPositions) -> Settled:
    def committed(outcome: list[ErrorCode]) -> None:
        if request.version < EPOCHS_FROM_VERSION and ErrorCode.GROUP_ID_NOT_FOUND in outcome:
            outcome = [ErrorCode.ILLEGAL_GENERATION] * len(outcome)
        asked.settle(outcome)
        request.answer(topics=asked.answer())

    return committed


class AskedTopic(NamedTuple):
    name: str | None
    """None for an id that no topic has, or none that the principal may know of."""
    topic_id: TopicId
    indexes: Sequence[int]
    refused: bool = False
    """True if the principal may not see the positions."""


class Question(NamedTuple):
    """A group whose positions a request asks for, in the name of a reader."""

    group_id: str
    reader: Author
    topics: Made[AskedTopic] | None
    """None asks for all positions of the group."""


def _questions(
    image: ClusterImage, judge: Judge, version: int, body: OffsetFetch.Request
) -> Generator[None, None, list[Question]]:
    def named(topic: OffsetFetch.RequestTopic | OffsetFetch.RequestGroupTopic) -> AskedTopic:
        refused = not judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name)
        return AskedTopic(topic.name, image.topic_id(topic.name), topic.partition_indexes, refused)

    def by_id(topic: OffsetFetch.RequestGroupTopic) -> AskedTopic:
        topic_id = topic.topic_id or ZERO_TOPIC_ID
        name = image.topic_name(topic_id)
        if name is not None and not judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            name = None
        return AskedTopic(name, topic_id, topic.partition_indexes)

    if version < 8:
        return [Question(body.group_id, Author(), None if body.topics is None else Made(body.topics, named))]
    resolve = by_id if version >= 10 else named
    questions: list[Question] = []
    for group in body.groups:
        topics = None if group.topics is None else Made(group.topics, resolve)
        questions.append(Question(group.group_id, Author(group.member_id or "", None, group.member_epoch), topics))
        if not len(questions) % LOOKED_UP_PER_STEP:
            yield
    return questions


class FetchRooms(PositionRooms, Protocol):
    librdkafka_clients: LibrdkafkaClients


def offset_fetch(rooms: FetchRooms, request: Request[OffsetFetch]) -> Steps:
    """Answers with the positions of one group, or of several (v8+). A group that is asked for more than once is looked
    up once; all of its positions are shown once."""
    body = yield from request.read()
    version = request.version
    judge = request.judge
    asked = yield from _questions(rooms.image, judge, version, body)
    # Questions for all positions of a group have the same answer.
    groups = list({(each[:2] if each.topics is None else place): each for place, each in enumerate(asked)}.values())
    places = {reader: place for place, reader in enumerate(dict.fromkeys(group[:2] for group in groups))}

    def all_found(found: list[Found]) -> None:
        def answer_for(group: Question) -> OffsetFetch.AnswerGroup:
            return _group_answer(rooms.image, judge, version, group, found[places[group[:2]]])

        shown_whole = [found[places[group[:2]]] for group in groups if group.topics is None]
        count = sum(0 if isinstance(positions, ErrorCode) else len(positions) for positions in shown_whole)
        if ErrorCode.NOT_COORDINATOR in found and request.reply.connection_id in rooms.librdkafka_clients:
            # librdkafka (2.16) passes this error on to the application, and never reads the partitions that it asked
            # for. If the connection ends, it looks for the coordinator and asks again.
            request.reply.hang_up("its group has another coordinator now, which librdkafka looks for when this closes")
        elif count > MAX_POSITIONS_ANSWERED:
            request.reply.hang_up(f"its answer would have {count} positions: ask for fewer groups at a time")
        elif version >= 8:
            request.answer(groups=Made(groups, answer_for))
        else:
            only = answer_for(groups[0])
            request.answer(error_code=only["error_code"], topics=Made(only["topics"], _without_id))

    one_found = in_order(len(places), all_found)
    for (group_id, reader), place in places.items():
        if place and not place % GROUPS_PER_STEP:
            yield
        refusal = judge.group_error(Operation.DESCRIBE, group_id)
        if refusal is not ErrorCode.NONE:
            one_found(place, refusal)
        else:
            done = partial(one_found, place)
            rooms.groups.positions.fetch(group_id, reader, done, require_stable=body.require_stable)


def _without_id(topic: OffsetFetch.AnswerGroupTopic) -> OffsetFetch.AnswerTopic:
    """A topic in an answer about a single group."""
    return {"name": topic["name"], "partitions": topic["partitions"]}


def _group_answer(
    image: ClusterImage, judge: Judge, version: int, group: Question, found: Found
) -> OffsetFetch.AnswerGroup:
    # The rules may have changed while the positions were looked up.
    error = found if isinstance(found, ErrorCode) else judge.group_error(Operation.DESCRIBE, group.group_id)
    positions = {} if isinstance(found, ErrorCode) or error is not ErrorCode.NONE else found
    if error is not ErrorCode.NONE and version >= 2:
        return {"group_id": group.group_id, "error_code": error, "topics": ()}

    def answered(topic: AskedTopic) -> OffsetFetch.AnswerGroupTopic:
        name = topic.name

        def partition(index: int) -> OffsetFetch.AnswerPartition:
            position = None if name is None or topic.refused else positions.get(TopicPartition(name, index))
            return {
                "partition_index": index,
                "committed_offset": -1 if position is None else position.offset,
                "committed_leader_epoch": -1 if position is None else position.leader_epoch,
                "metadata": "" if position is None else position.metadata,
                "error_code": error or _position_error(topic, position),
            }

        return {"name": name or "", "topic_id": topic.topic_id, "partitions": Made(topic.indexes, partition)}

    topics = group.topics
    if topics is None:
        by_topic: dict[str, list[int]] = {}
        for name, index in positions:
            by_topic.setdefault(name, []).append(index)
        seen = [name for name in sorted(by_topic) if judge.may_see_topic(name)]
        topics = Made(seen, lambda name: AskedTopic(name, image.topic_id(name), sorted(by_topic[name])))
    return {"group_id": group.group_id, "error_code": error, "topics": Made(topics, answered)}


def _position_error(topic: AskedTopic, position: Position | None) -> ErrorCode:
    if topic.refused:
        return ResourceKind.TOPIC.refusal
    if topic.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if position is UNSTABLE else ErrorCode.NONE


HANDLERS = (
    serves(ApiKey.FIND_COORDINATOR, 0, 6, find_coordinator),
    serves(ApiKey.OFFSET_COMMIT, 2, 10, offset_commit),
    serves(ApiKey.OFFSET_FETCH, 1, 10, offset_fetch),
)
