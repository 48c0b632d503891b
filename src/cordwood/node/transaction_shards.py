"""The shards of transactions on this node: one `Transactions` per partition of __transaction_state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from cordwood.model.coordination import is_too_long, transaction_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC, TopicPartition
from cordwood.node.coordinator_log import CoordinatorLog, Done, Ground, Shard
from cordwood.transactions.transactions import Transactions


class TransactionShards:
    def __init__(self, ground: Ground, unloaded: Callable[[Shard[Transactions]], None]) -> None:
        self._image = ground.image
        self.log = CoordinatorLog(ground, TRANSACTION_STATE_TOPIC, Transactions, after_unloading=unloaded)

    def with_shard(self, transactional_id: str, loaded: Callable[[Shard[Transactions]], None], failed: Done) -> None:
        if is_too_long(transactional_id):
            failed(ErrorCode.INVALID_REQUEST)
            return
        self.log.with_shard(partial(transaction_partition, transactional_id), loaded, failed)

    def when_safe(self, shard: Shard[Transactions], partitions: Collection[TopicPartition], done: Done) -> None:
        """Calls back when the shard's record of a transaction is as safe as the records in the transaction's
        partitions.

        If acks of a partition mean the disk and acks of __transaction_state do not, a power cut could leave records in
        the partition whose transaction is forgotten and never ends.
        """

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and self._outlast(shard, partitions):
                self.log.when_durable(shard, done)
            else:
                done(error)

        self.log.when_committed(shard, committed)

    def _outlast(self, shard: Shard[Transactions], partitions: Collection[TopicPartition]) -> bool:
        """Whether records in one of these partitions may survive a power cut that the shard's records do not."""
        if shard.partition.settings.acks_mean_disk:
            return False
        topics = self._image.topics
        return any(name.topic in topics and topics[name.topic].settings.acks_mean_disk for name in partitions)
