"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers, and their
descriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.groups.state.committed_positions import Commit
from cordwood.model.coordination import is_too_long
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.families import is_reserved
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicPartition
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.coordinators.coordinator_log import Done, Writer
from cordwood.node.coordinators.group_positions import CommitRequest, Settled
from cordwood.node.coordinators.group_shards import Author
from cordwood.node.coordinators.regular_expressions import names_matching
from cordwood.node.coordinators.transaction_markers import Ending
from cordwood.node.handlers.coordination.positions import AskedPositions
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.brokers_only import is_broker, may_write_markers
from cordwood.node.requests.request import Made, Request, in_order, serves
from cordwood.records.control import TransactionMarker
from cordwood.transactions.transaction import EPOCH_BUMPED, SAME_EPOCH, State, Step, Transaction
from cordwood.transactions.transactional_ids import Transactions
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.coordinators.group_coordinator import GroupCoordinator
    from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator, Vouched
    from cordwood.node.coordinators.transaction_markers import MarkerWriter
    from cordwood.node.coordinators.verification import Verification
    from cordwood.node.loop.loop import Loop
    from cordwood.node.requests.access import Judge
    from cordwood.wire.message_types.add_offsets_to_txn import AddOffsetsToTxn
    from cordwood.wire.message_types.add_partitions_to_txn import AddPartitionsToTxn
    from cordwood.wire.message_types.describe_transactions import DescribeTransactions
    from cordwood.wire.message_types.end_txn import EndTxn
    from cordwood.wire.message_types.list_transactions import ListTransactions
    from cordwood.wire.message_types.txn_offset_commit import TxnOffsetCommit
    from cordwood.wire.message_types.write_txn_markers import WriteTxnMarkers


FENCED_FROM_VERSION = 2
"""From this version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn on clients know PRODUCER_FENCED."""

BATCHED_FROM_VERSION = 4
END_BUMPS_FROM_VERSION = 5
OFFSETS_ADD_FROM_VERSION = 5
OFFSETS_ABORTABLE_FROM_VERSION = 4
OFFSETS_BY_TOPIC_ID_FROM_VERSION = 6

IDS_PER_STEP = 100
"""Transactional ids in one step: each may write to a log."""
LOOKED_UP_PER_STEP = 200
LISTED_PER_STEP = 1_000


class TransactionRooms(Protocol):
    """The rooms of a node that these handlers need."""

    groups: GroupCoordinator
    image: ClusterImage
    loop: Loop
    markers: MarkerWriter
    transactions: TransactionCoordinator
    verification: Verification


def _fenced(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


# Partitions


def add_partitions_to_txn(rooms: TransactionRooms, request: Request[AddPartitionsToTxn]) -> Steps:
    body = yield from request.read()
    if request.version < BATCHED_FROM_VERSION:
        writer = Writer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        wanted = _partitions(body.v3_and_below_topics)
        _add_partitions(
            rooms,
            request.judge,
            request.reply.connection_id,
            body.v3_and_below_transactional_id,
            writer,
            wanted,
            lambda errors: request.answer(results_by_topic_v3_and_below=_topic_errors(wanted, errors, request.version)),
        )
        return
    if not is_broker(rooms.image, request):
        request.answer(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=())
        return

    def all_answered(results: list[AddPartitionsToTxn.AnswerResultsByTransaction]) -> None:
        request.answer(error_code=ErrorCode.NONE, results_by_transaction=results)

    answered = in_order(len(body.transactions), all_answered)

    def one_done(place: int, transactional_id: str, wanted: list[TopicPartition]) -> Callable[[Vouched], None]:
        def done(vouched: Vouched) -> None:
            errors = {name: vouched.errors.get(name, vouched.otherwise) for name in wanted}
            result: AddPartitionsToTxn.AnswerResultsByTransaction = {
                "transactional_id": transactional_id,
                "topic_results": _topic_errors(wanted, errors, request.version),
                "coordinator_epoch": vouched.coordinator_epoch,
            }
            answered(place, result)

        return done

    for place, each in enumerate(body.transactions):
        if place and not place % IDS_PER_STEP:
            yield
        writer = Writer(each.producer_id, each.producer_epoch)
        wanted = _partitions(each.topics)
        done = one_done(place, each.transactional_id, wanted)
        ids = {topic.name: topic.topic_id for topic in each.topics if topic.topic_id is not None}
        rooms.transactions.vouch(each.transactional_id, writer, wanted, ids, not each.verify_only, done)


def _partitions(
    topics: Sequence[AddPartitionsToTxn.RequestTopic | AddPartitionsToTxn.RequestV3AndBelowTopic],
) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _topic_errors(
    wanted: list[TopicPartition], errors: dict[TopicPartition, ErrorCode], version: int
) -> Made[AddPartitionsToTxn.AnswerTopicResult]:
    indexes: dict[str, list[int]] = {}
    for name, index in wanted:
        indexes.setdefault(name, []).append(index)

    def topic(name: str) -> AddPartitionsToTxn.AnswerTopicResult:
        def partition(index: int) -> AddPartitionsToTxn.AnswerResultsByPartition:
            error = _fenced(errors[TopicPartition(name, index)], version)
            return {"partition_index": index, "partition_error_code": error}

        return {"name": name, "results_by_partition": Made(indexes[name], partition)}

    return Made(indexes, topic)


def _add_partitions(
    rooms: TransactionRooms,
    judge: Judge,
    connection_id: int,
    transactional_id: str,
    writer: Writer,
    wanted: list[TopicPartition],
    done: Callable[[dict[TopicPartition, ErrorCode]], None],
) -> None:
    """Adds partitions for a client of version 1: such a client adds them before it writes."""

    def same_for_all(error: ErrorCode) -> None:
        done(dict.fromkeys(wanted, error))

    refusal = _no_writer(judge, transactional_id)
    if refusal is not ErrorCode.NONE:
        same_for_all(refusal)
        return
    problems = {name: _partition_problem(rooms, judge, name) for name in wanted}
    if any(problem is not ErrorCode.NONE for problem in problems.values()):
        # Either all partitions are added or none.
        rooms.transactions.refused_to_add(transactional_id, connection_id)
        done({name: problem or ErrorCode.OPERATION_NOT_ATTEMPTED for name, problem in problems.items()})
        return
    rooms.transactions.add_partitions(transactional_id, writer, wanted, connection_id, same_for_all)


def _no_writer(judge: Judge, transactional_id: str) -> ErrorCode:
    """The error of somebody who cannot write under this transactional id, or NONE."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return judge.error(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)


def _partition_problem(rooms: TransactionRooms, judge: Judge, name: TopicPartition) -> ErrorCode:
    if name.topic in INTERNAL_TOPICS or not judge.may(Operation.WRITE, ResourceKind.TOPIC, name.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if rooms.image.partition_of(*name) is None else ErrorCode.NONE


# Positions


def add_offsets_to_txn(rooms: TransactionRooms, request: Request[AddOffsetsToTxn]) -> None:
    """Adds the partition of __consumer_offsets that stores a group's positions to the transaction."""
    body = request.decode()

    def answer(error: ErrorCode) -> None:
        request.answer(error_code=_fenced(error, request.version))

    def topic_exists(problem: ProtocolError | None) -> None:
        if problem is not None:
            answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        writer = Writer(body.producer_id, body.producer_epoch)
        partitions = [rooms.groups.positions.partition_of(body.group_id)]
        connection_id = request.reply.connection_id
        rooms.transactions.add_partitions(body.transactional_id, writer, partitions, connection_id, answer)

    judge = request.judge
    refusal = _no_writer(judge, body.transactional_id) or judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        answer(refusal)
    elif is_too_long(body.group_id):
        answer(ErrorCode.INVALID_GROUP_ID)
    else:
        rooms.groups.shards.log.when_topic_exists(topic_exists)


def txn_offset_commit(rooms: TransactionRooms, request: Request[TxnOffsetCommit]) -> Steps:
    """Stores positions that hold once the transaction is committed, and never if it is aborted."""
    body = yield from request.read()
    version = request.version
    judge = request.judge
    asked = AskedPositions(body.topics, judge)
    yield from asked.look_up(rooms, by_id=version >= OFFSETS_BY_TOPIC_ID_FROM_VERSION)
    refusal = _no_writer(judge, body.transactional_id) or judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        asked.refuse(refusal)
    if refusal is not ErrorCode.NONE or not asked.commits:
        request.answer(topics=asked.answer())
        return

    def committed(outcome: list[ErrorCode]) -> None:
        told = {error: _offset_error(error, version) for error in set(outcome)}
        asked.settle(list(map(told.__getitem__, outcome)))
        request.answer(topics=asked.answer())

    author = Author(body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    writer = Writer(body.producer_id, body.producer_epoch)
    add = version >= OFFSETS_ADD_FROM_VERSION

    def admit(partition: TopicPartition, done: Done) -> None:
        rooms.verification.ask(
            body.transactional_id, writer, [partition], lambda verdict: done(verdict()[partition]), add=add
        )

    def commit(commits: list[Commit], done: Settled) -> None:
        wanted = CommitRequest(body.group_id, author, commits)
        rooms.groups.positions.commit_in_transaction(wanted, admit, writer, done)

    yield from asked.commit(commit, committed)


def _offset_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error code as clients of this version understand it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < OFFSETS_ABORTABLE_FROM_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < OFFSETS_ADD_FROM_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH):
        return error if version >= OFFSETS_BY_TOPIC_ID_FROM_VERSION else ErrorCode.ILLEGAL_GENERATION
    return error


# The end


def end_txn(rooms: TransactionRooms, request: Request[EndTxn]) -> None:
    body = request.decode()

    def ended(step: Step) -> None:
        request.answer(
            error_code=_fenced(step.error, request.version),
            producer_id=step.producer_id,
            producer_epoch=step.producer_epoch,
        )

    refusal = _no_writer(request.judge, body.transactional_id)
    if refusal is not ErrorCode.NONE:
        ended(Step(refusal))
        return
    if is_reserved(body.transactional_id):
        # Only its family ends a slot, with the whole batch.
        ended(Step(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    version = EPOCH_BUMPED if request.version >= END_BUMPS_FROM_VERSION else SAME_EPOCH
    writer = Writer(body.producer_id, body.producer_epoch)
    connection_id = request.reply.connection_id
    rooms.transactions.end(body.transactional_id, writer, body.committed, version, connection_id, ended)


def write_txn_markers(rooms: TransactionRooms, request: Request[WriteTxnMarkers]) -> Steps:
    """Writes markers for another broker's coordinator, or for an administrator who ends a hanging transaction."""
    body = yield from request.read()

    def all_written(results: list[WriteTxnMarkers.AnswerMarker]) -> None:
        request.answer(markers=results)

    answered = in_order(len(body.markers), all_written)

    def one_done(
        place: int, marker: WriteTxnMarkers.RequestMarker
    ) -> Callable[[dict[TopicPartition, ErrorCode]], None]:
        def done(outcomes: dict[TopicPartition, ErrorCode]) -> None:
            def topic(asked: WriteTxnMarkers.RequestTopic) -> WriteTxnMarkers.AnswerTopic:
                def partition(index: int) -> WriteTxnMarkers.AnswerPartition:
                    return {"partition_index": index, "error_code": outcomes[TopicPartition(asked.name, index)]}

                return {"name": asked.name, "partitions": Made(asked.partition_indexes, partition)}

            answered(place, {"producer_id": marker.producer_id, "topics": Made(marker.topics, topic)})

        return done

    allowed = may_write_markers(rooms.image, request)
    for place, marker in enumerate(body.markers):
        if place and not place % IDS_PER_STEP:
            yield
        how = Ending(
            Writer(marker.producer_id, marker.producer_epoch),
            TransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            marker.transaction_version,
            marker.durable,
            {topic.name: topic.topic_id for topic in marker.topics if topic.topic_id is not None},
        )
        partitions = dict.fromkeys(
            TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        )
        if not allowed:
            one_done(place, marker)(dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            continue
        rooms.markers.write(how, partitions, one_done(place, marker))


# Descriptions


def describe_transactions(rooms: TransactionRooms, request: Request[DescribeTransactions]) -> Steps:
    body = yield from request.read()
    wanted = list(dict.fromkeys(body.transactional_ids))
    judge = request.judge

    def all_found(found: list[Transaction | ErrorCode]) -> None:
        states = list(zip(wanted, found, strict=True))
        request.answer(transaction_states=Made(states, lambda state: _described(judge, *state)))

    answered = in_order(len(wanted), all_found)

    def one_done(place: int) -> Callable[[Transaction | ErrorCode], None]:
        return lambda found: answered(place, found)

    for place, transactional_id in enumerate(wanted):
        if place and not place % LOOKED_UP_PER_STEP:
            yield
        refusal = judge.error(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id or refusal is not ErrorCode.NONE:
            one_done(place)(refusal or ErrorCode.INVALID_REQUEST)
        else:
            rooms.transactions.describe(transactional_id, one_done(place))


def _described(
    judge: Judge, transactional_id: str, found: Transaction | ErrorCode
) -> DescribeTransactions.AnswerTransactionState:
    if isinstance(found, ErrorCode):
        return {"error_code": found, "transactional_id": transactional_id}
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        if topic not in topics and not judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            continue
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }


def _listed(each: Transaction) -> ListTransactions.AnswerTransactionState:
    return {
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "transaction_state": each.state.label,
    }


def list_transactions(rooms: TransactionRooms, request: Request[ListTransactions]) -> Steps:
    body = yield from request.read()
    known = {state.label: state for state in State}
    states = {known[name] for name in body.state_filters if name in known}
    producer_ids = set(body.producer_id_filters)
    wall_ms = request.now.wall_ms
    judge = request.judge

    def wanted(each: Transaction) -> bool:
        if not judge.may(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, each.transactional_id):
            return False
        if body.state_filters and each.state not in states:
            return False
        if producer_ids and each.producer_id not in producer_ids:
            return False
        if body.duration_filter < 0:
            return True
        return each.state is State.ONGOING and wall_ms - each.started_ms > body.duration_filter

    def answer(transactions: list[Transaction]) -> None:
        request.answer(
            error_code=ErrorCode.NONE,
            unknown_state_filters=[name for name in body.state_filters if name not in known],
            transaction_states=Made(transactions, _listed),
        )

    def listing(shards: list[Transactions]) -> Steps:
        found: list[Transaction] = []
        for shard in shards:
            ids = shard.ids()
            for start in range(0, len(ids), LISTED_PER_STEP):
                some = map(shard.get, ids[start : start + LISTED_PER_STEP])
                found += [each for each in some if each is not None and wanted(each)]
                yield
        all_listed(found)

    def all_listed(listed: list[Transaction]) -> None:
        pattern = body.transactional_id_pattern
        if not pattern:
            answer(listed)
            return
        names = [each.transactional_id for each in listed]

        def matched(result: list[str] | Exception) -> None:
            if isinstance(result, ProtocolError):
                request.answer(error_code=result.code)
            elif isinstance(result, Exception):
                raise result
            else:
                those = frozenset(result)
                answer([each for each in listed if each.transactional_id in those])

        rooms.loop.effects.for_client(request.reply.connection_id, lambda: names_matching(pattern, names), matched)

    rooms.transactions.when_loaded(lambda shards: request.go_on(listing(shards)))


HANDLERS = (
    serves(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, add_partitions_to_txn),
    serves(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, add_offsets_to_txn),
    serves(ApiKey.END_TXN, 0, 5, end_txn),
    serves(ApiKey.WRITE_TXN_MARKERS, 1, 2, write_txn_markers),
    serves(ApiKey.TXN_OFFSET_COMMIT, 0, 6, txn_offset_commit),
    serves(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, describe_transactions),
    serves(ApiKey.LIST_TRANSACTIONS, 0, 2, list_transactions),
)
