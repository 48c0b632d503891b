"""Asks the coordinator of a transaction, at its broker, whether partitions are part of the transaction.

The answer is a later event, and the transaction may have ended meanwhile. So each question has a guard at each
partition: a marker for the producer voids the question, and so does the end of the leadership in which it was asked. An
answer that names a coordinator's epoch below that of the producer's last marker in the partition comes from a
coordinator that was deposed, and is void too. The guards stay until the verdict is taken: the batch may be appended in
that very event, and in no later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.coordination import is_too_long, transaction_partition
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure, known_error
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from cordwood.node.coordinators.coordinator_log import Writer
from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator, Vouched
from cordwood.node.coordinators.verification_guards import Guard, Guards
from cordwood.node.loop.peers import Home, PeerAnswer, PeerOutcome, PeerRequest, Peers
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.add_partitions_to_txn import AddPartitionsToTxn

TIMEOUT_MS = 10_000
BROKERS_VERSIONS = (4, 5)
"""The versions of AddPartitionsToTxn that brokers send."""

VOID = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The outcome of a question whose answer is void. Asking again is safe."""

_STRANGER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

Verdict = Callable[[], dict[TopicPartition, ErrorCode]]
"""Returns the error code of each partition, in the coordinator's words, for the present event. Called once."""


class Verification:
    def __init__(
        self,
        image: ClusterImage,
        hosted: HostedReplicas,
        guards: Guards,
        peers: Peers,
        home: Home,
        transactions: TransactionCoordinator,
    ) -> None:
        """`home` takes questions to `transactions`, the coordinator on this very broker; `peers` takes all others."""
        self._image = image
        self._hosted = hosted
        self._guards = guards
        self._peers = peers
        self._home = home
        self._transactions = transactions

    def ask(
        self,
        transactional_id: str,
        writer: Writer,
        partitions: Collection[TopicPartition],
        done: Callable[[Verdict], None],
        *,
        add: bool,
    ) -> None:
        """Calls back with the verdict about these partitions.

        With `add`, partitions that the transaction lacks are added to it. This broker leads the partitions.
        """
        if is_too_long(transactional_id):
            done(lambda: dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
            return
        coordinator = self._coordinator_of(transactional_id)
        if coordinator < 0:
            done(lambda: dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        guards: dict[TopicPartition, Guard] = {}
        topic_ids: dict[str, TopicId] = {}
        for name in partitions:
            try:
                partition = self._hosted.leader(*name)
                guards[name] = self._guards.begin(partition.replica, writer)
            except (ProtocolError, StorageFailure):
                continue  # a partition without a guard is void
            topic_ids[name.topic] = partition.topic_id

        def answered(vouched: Vouched) -> None:
            done(partial(self._verdict, partitions, guards, vouched))

        if coordinator == self._image.node_id:
            vouch = self._transactions.vouch
            self._home.call(partial(vouch, transactional_id, writer, list(guards), topic_ids, add, answered))
            return
        transaction = {
            "transactional_id": transactional_id,
            "producer_id": writer.producer_id,
            "producer_epoch": writer.producer_epoch,
            "verify_only": not add,
            "topics": [
                {"name": topic, "partitions": [index for _, index in grouped], "topic_id": topic_ids[topic]}
                for topic, grouped in groupby(sorted(guards), key=lambda name: name.topic)
            ],
        }
        values = {"transactions": [transaction]}
        request = PeerRequest(coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, BROKERS_VERSIONS, values, TIMEOUT_MS)
        self._peers.send(request, lambda outcome, now: answered(_vouched(outcome)))

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that leads the transactional id's partition; -1 if none does."""
        topic = self._image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return -1
        index = transaction_partition(transactional_id, len(topic.partitions))
        return self._image.leadership(topic.partitions[index]).leader

    def _verdict(
        self, partitions: Collection[TopicPartition], guards: dict[TopicPartition, Guard], vouched: Vouched
    ) -> dict[TopicPartition, ErrorCode]:
        for guard in guards.values():
            self._guards.end(guard)
        errors = {}
        for name in partitions:
            error = vouched.errors.get(name, vouched.otherwise)
            if error is ErrorCode.NONE and not self._holds(guards.get(name), name, vouched.coordinator_epoch):
                error = VOID
            errors[name] = error
        return errors

    def _holds(self, guard: Guard | None, name: TopicPartition, coordinator_epoch: int) -> bool:
        if guard is None or guard.void:
            return False
        partition = self._hosted.get(*name)
        if partition is None or partition.role.leading is not guard.replica:
            return False
        last_marker_epoch = guard.replica.log.replayed.producers.coordinator_epoch_of(guard.writer.producer_id)
        return coordinator_epoch < 0 or coordinator_epoch >= last_marker_epoch


def _vouched(outcome: PeerOutcome) -> Vouched:
    if not isinstance(outcome, PeerAnswer):
        return Vouched({}, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    body: AddPartitionsToTxn.Response = outcome.body
    errors: dict[TopicPartition, ErrorCode] = {}
    epoch = -1
    for result in body.results_by_transaction:
        epoch = result.coordinator_epoch
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                errors[TopicPartition(topic.name, each.partition_index)] = known_error(each.partition_error_code)
    refusal = known_error(body.error_code)
    # A coordinator that has not heard of this broker's registration yet refuses it as a stranger: asking again is safe.
    return Vouched(errors, epoch, VOID if refusal in (ErrorCode.NONE, _STRANGER) else refusal)
