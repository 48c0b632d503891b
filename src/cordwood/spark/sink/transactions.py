"""Transactions per task, which the driver ends one after the other: the most that the Kafka protocol allows without
families.

The transactional id is the query and the task, so that a new attempt fences the one before. The batch is committed as a
position in the same transaction, in a group of the same name: an attempt at a batch that its task has written before
finds that out and skips. `WEAKER`, which is logged, says where this is weaker than a family.
"""

import logging
from collections.abc import Collection

from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.sink.options import Guarantee, OlderBatches
from cordwood.spark.sink.promises import Producer, Promise, WriteIdentity
from cordwood.spark.sink.protocol import NO_BATCH, Slot, Verdict, judge

_log = logging.getLogger("cordwood.spark.sink")

WEAKER = (
    "this broker has no transaction families (Cordwood has), so each task writes in a transaction of its own: rows "
    "become visible task by task while a batch is committed; a driver that dies in between leaves part of it "
    "visible until the query is started again, and the rest is then written as computed anew, so it is exactly once "
    "only if a repeated batch computes the same rows in the same tasks; a batch has to end within "
    "kafka.transaction.timeout.ms ({timeout_ms}); and a query that stands still for longer than the broker's "
    "offsets.retention.minutes (a week) may write its last batch again. Batch writes that die while they commit "
    "leave what was committed. Say exactlyOnce=task to choose this without a warning, or exactlyOnce=false to do "
    "without transactions"
)


class TaskTransactionPromise(Promise):
    guarantee = Guarantee.TASK

    def __init__(self, cluster: Cluster, identity: WriteIdentity, timeout_ms: int, older: OlderBatches) -> None:
        self._cluster = cluster
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._older = older
        self._name = f"cordwood-{identity.family}-{identity.task}"
        if not identity.repeatable:
            # No attempt looks for the work of another: a later one must not fence the one that Spark has counted.
            self._name += f"-{identity.attempt}"

    def begin(self) -> Producer | None:
        producer_id, producer_epoch = self._cluster.init_producer_id(self._name, self._timeout_ms)
        if self._identity.repeatable:
            # After `init_producer_id` nothing of an earlier attempt is open any more, so the position is final.
            last_batch_id = max(self._cluster.committed(self._name, None).values(), default=0) - 1
            assert last_batch_id >= NO_BATCH
            if judge(self._name, self._identity.batch_id, last_batch_id, self._older) is Verdict.SKIP:
                return None
        self.slot = Slot(self._name, producer_id, producer_epoch)
        return Producer(self._name, producer_id, producer_epoch)

    def complete(self, written: Collection[TopicPartition]) -> None:
        if self._identity.repeatable and written:
            assert self.slot is not None
            # Brokers take positions only for partitions that exist: the first one written to stands for the task.
            self._cluster.commit_in_transaction(
                self._name, self.slot.producer, self._name, {min(written): self._identity.batch_id + 1}
            )

    def abandon(self) -> None:
        abandon_slot(self._cluster, self.slot)


def abandon_slot(cluster: Cluster, slot: Slot | None) -> None:
    """Aborts the transaction of a failed attempt. If that fails, the timeout ends the transaction."""
    if slot is None:
        return
    try:
        cluster.end_transaction(slot.transactional_id, slot.producer, commit=False)
    except ClientError as error:
        _log.info("transaction %s is left to its timeout: %s", slot.transactional_id, error)


class PlainPromise(Promise):
    """At least once: rows are visible as soon as they are acknowledged. Producers are idempotent, so that only a
    repeated task repeats rows."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self, cluster: Cluster, *, idempotent: bool) -> None:
        self._cluster = cluster
        self._idempotent = idempotent

    def begin(self) -> Producer | None:
        if not self._idempotent:
            return Producer(None, -1, -1)
        producer_id, producer_epoch = self._cluster.init_producer_id(None, 0)
        return Producer(None, producer_id, producer_epoch)

    def abandon(self) -> None:
        """Does nothing: acknowledged rows are visible already."""
