"""The leader of one partition: decides which records are committed and visible, and checks the epochs of requests.

Three ends are distinct from the first day:
- log end: after the last record that the leader has appended;
- durable end: after the last record that the leader has synced (the end that counts under `ack.durability=disk`);
- high watermark: after the last record of every replica in the maximal in-sync set. Consumers see the records below it,
  and acks=all waits for it.

One node is a cluster of one: the same machine with an in-sync set of one. The machine does no I/O and reads no clock;
it reads the log's ends and the ends that followers report.
"""

from collections.abc import Collection

from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError


class LeaderReplica:
    """Leads one partition in one epoch. A new epoch is a new object over the same log."""

    __slots__ = (
        "_follower_ends",
        "_isr",
        "_min_insync_replicas",
        "broker_id",
        "enough_in_sync",
        "high_watermark",
        "leader_epoch",
        "log",
    )

    def __init__(
        self,
        log: Log,
        broker_id: int,
        leader_epoch: int,
        isr: Collection[int],
        min_insync_replicas: int,
        *,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark`: the last one that this broker knew; 0: none."""
        assert broker_id in isr, f"{log.partition}: broker {broker_id} leads but is not in the ISR {sorted(isr)}"
        self.log = log
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        # The epoch is recorded before the first request is served: else a follower could not tell where the epoch
        # began.
        log.begin_epoch(leader_epoch)
        self._isr = frozenset(isr)
        self._min_insync_replicas = min_insync_replicas
        self.enough_in_sync = len(self._isr) >= min_insync_replicas
        """Whether the in-sync set has min.insync.replicas members."""
        self._follower_ends: dict[int, int] = {}
        self.high_watermark = max(log.offsets.start, min(high_watermark, log.offsets.end))
        self.advance()

    @property
    def own_end(self) -> int:
        """The end of this replica's log as `ack.durability` counts: durable or appended."""
        log = self.log
        return log.offsets.durable_end if log.acks_mean_disk else log.offsets.end

    def advance(self) -> bool:
        """Moves the high watermark as far as the in-sync set allows; it never falls. True if it moved."""
        end = self.own_end
        if len(self._isr) > 1:
            end = min([end, *(self._follower_ends.get(member, 0) for member in self._isr if member != self.broker_id)])
        if end <= self.high_watermark or not self.enough_in_sync:
            return False
        self.high_watermark = end
        self.log.replayed.committed_to(end)
        return True

    def follower_has(self, broker_id: int, end_offset: int) -> bool:
        """Takes a follower's fetch offset, which is its durable end. True if the high watermark moved."""
        self._follower_ends[broker_id] = end_offset
        return self.advance()

    def change_isr(self, isr: Collection[int]) -> bool:
        """Takes a new in-sync set: the maximal of the agreed and the proposed. True if the watermark moved."""
        assert self.broker_id in isr
        self._isr = frozenset(isr)
        return self.change_min_insync(self._min_insync_replicas)

    def change_min_insync(self, min_insync_replicas: int) -> bool:
        """Takes a new min.insync.replicas. True if the watermark moved."""
        self._min_insync_replicas = min_insync_replicas
        self.enough_in_sync = len(self._isr) >= min_insync_replicas
        return self.advance()

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader: no transaction below it is open."""
        return max(self.log.replayed.last_stable_offset(self.high_watermark), self.log.offsets.start)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a request of another leader epoch; -1: the peer does not check."""
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.log.partition} is in leader epoch {self.leader_epoch}, not {current_leader_epoch}.",
            )
        raise ProtocolError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.log.partition} has not reached leader epoch {current_leader_epoch}, it is in {self.leader_epoch}.",
        )

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `leader_epoch`, and its end offset; (-1, -1) if the log does not know."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.offsets.end
        return self.log.replayed.leader_epochs.end_offset_for(leader_epoch, self.log.offsets.end)

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Epoch and end offset at which a reader's log diverged; None: it did not. OFFSET_OUT_OF_RANGE if unknown."""
        epoch, end_offset = self.end_offset_for(last_fetched_epoch)
        if epoch == -1:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.log.partition} does not know leader epoch {last_fetched_epoch}."
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None
