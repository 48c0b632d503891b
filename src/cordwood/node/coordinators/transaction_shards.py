"""The shards of transactions on this node: one `Transactions` per partition of __transaction_state, and the leases,
waits and completions that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

from cordwood.cluster.metadata.partitions import Leadership
from cordwood.model.coordination import is_too_long, transaction_partition
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC, TopicPartition
from cordwood.node.coordinators.coordinator_log import CoordinatorLog, Done, Ground, Shard
from cordwood.node.loop.timers import Timer
from cordwood.node.partitions.partition import Partition
from cordwood.transactions.families_leases import Leases
from cordwood.transactions.next_begun import NextBegun
from cordwood.transactions.transactional_ids import Transactions


class WaitingDecision:
    """A family's decision whose answer waits for markers."""

    __slots__ = ("done", "slots", "timer")

    def __init__(self, slots: set[str], done: Done) -> None:
        self.slots = slots
        self.done = done
        self.timer: Timer | None = None


class NextTry(NamedTuple):
    """The next attempt to complete a transaction."""

    timer: Timer
    leaders: dict[TopicPartition, Leadership]
    """The leaders that the missing markers were sent to in vain."""


class LedTransactions(Shard[Transactions]):
    """The transactional ids of one partition of __transaction_state, as long as this broker leads it in one epoch."""

    __slots__ = (
        "completing",
        "leases",
        "looks",
        "marked",
        "next_begun",
        "next_tries",
        "patient",
        "pauses_ms",
        "waiting_decisions",
    )

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition, Transactions())
        self.completing: set[str] = set()
        """Transactional ids whose markers are being written, or will be tried again."""
        self.marked: dict[str, frozenset[TopicPartition]] = {}
        """Partitions with committed markers, by incomplete id: another try must not write these again."""
        self.pauses_ms: dict[str, int] = {}
        """The last pause before another try, for each id that is not complete yet."""
        self.next_tries: dict[str, NextTry] = {}
        """The tries that wait for the end of their pause, by transactional id."""
        self.patient: dict[str, list[Timer]] = {}
        """Requests that wait for a completion, by transactional id."""
        self.next_begun = NextBegun()
        self.leases = Leases()
        self.waiting_decisions: dict[str, list[WaitingDecision]] = {}
        """Decisions of families, by each slot whose markers are missing."""
        self.looks: set[Callable[[LedTransactions], Iterator[None]]] = set()
        """Unfinished checks by the clock."""


class TransactionShards:
    def __init__(
        self,
        ground: Ground,
        loaded: Callable[[LedTransactions], None],
        unloaded: Callable[[LedTransactions], None],
    ) -> None:
        self._image = ground.image
        self.log = CoordinatorLog(ground, TRANSACTION_STATE_TOPIC, LedTransactions, loaded, unloaded)

    def with_shard(self, transactional_id: str, loaded: Callable[[LedTransactions], None], failed: Done) -> None:
        if is_too_long(transactional_id):
            failed(ErrorCode.INVALID_REQUEST)
            return
        self.log.with_shard(partial(transaction_partition, transactional_id), loaded, failed)

    def when_safe(self, shard: LedTransactions, partitions: Collection[TopicPartition], done: Done) -> None:
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

    def _outlast(self, shard: LedTransactions, partitions: Collection[TopicPartition]) -> bool:
        """True if records in one of these partitions may survive a power cut that the shard's records do not."""
        if shard.partition.settings.acks_mean_disk:
            return False
        topics = self._image.topics
        return any(name.topic in topics and topics[name.topic].settings.acks_mean_disk for name in partitions)
