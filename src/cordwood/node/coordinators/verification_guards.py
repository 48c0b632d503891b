"""Guards of verifications: the leader of a partition notes each open question to a transaction's coordinator.

A marker for the producer voids the question, since the transaction may have ended after the coordinator gave its
answer. A guard belongs to one leadership (`LeaderReplica`) and ends with it.
"""

from cordwood.node.coordinators.coordinator_log import Writer
from cordwood.replication.leader import LeaderReplica
from cordwood.transactions.transaction import EPOCH_BUMPED


class Guard:
    """One question about one producer in one partition, in one leadership."""

    __slots__ = ("replica", "void", "writer")

    def __init__(self, replica: LeaderReplica, writer: Writer) -> None:
        self.replica = replica
        self.writer = writer
        self.void = False


class Guards:
    """The open questions, by leader and producer."""

    def __init__(self) -> None:
        self._open: dict[tuple[LeaderReplica, int], list[Guard]] = {}

    def begin(self, replica: LeaderReplica, writer: Writer) -> Guard:
        guard = Guard(replica, writer)
        self._open.setdefault((replica, writer.producer_id), []).append(guard)
        return guard

    def end(self, guard: Guard) -> None:
        key = guard.replica, guard.writer.producer_id
        others = self._open.get(key)
        if others is not None:
            others.remove(guard)
            if not others:
                del self._open[key]

    def marker(self, replica: LeaderReplica, writer: Writer, transaction_version: int) -> None:
        """Voids the questions about transactions that this marker ends in the partition.

        From version 2 on a marker has a higher epoch than the transaction that it ends, and the producer's next
        transaction has the marker's: a question about the next may wait at the coordinator for this very marker.
        """
        if self._open:
            below = writer.producer_epoch if transaction_version >= EPOCH_BUMPED else writer.producer_epoch + 1
            for guard in self._open.get((replica, writer.producer_id), ()):
                if guard.writer.producer_epoch < below:
                    guard.void = True
