"""The leader of one partition: decides which records are committed and visible, and checks the epochs of requests.

Three ends are distinct from the first day:
- log end: after the last record that the leader has appended;
- durable end: after the last record that the leader has synced (the end that counts under `ack.durability=disk`);
- high watermark: after the last record of every replica in the maximal in-sync set. Consumers see the records below it,
  and acks=all waits for it.

One node is a cluster of one: the same machine with an in-sync set of one. The machine does no I/O and reads no clock;
it reads the log's ends and the ends that followers report. The high watermark moves only while the committed in-sync
set has min.insync.replicas members and the ELR is empty: records that are acknowledged over a set that is not written
yet are lost if the leader dies before the write.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import BrokerEpoch, BrokerId, Offset
from cordwood.replication.epochs import check_epoch
from cordwood.replication.in_sync import Follower, InSyncSet, Version

UNKNOWN_START = -1
"""The log start of a follower that does not report it."""
NO_BOUND = 1 << 63
"""An offset beyond all logs."""


class Proposal(NamedTuple):
    """A change of the in-sync set for the metadata store."""

    version: Version
    isr: frozenset[int]
    broker_epochs: dict[int, BrokerEpoch]
    """The broker epochs in which the added replicas caught up."""
    lost: frozenset[int] = frozenset()
    """Replicas that lost committed records: they may not be elected."""


class LeaderReplica:
    """Leads one partition in one epoch. A new epoch is a new object over the same log."""

    __slots__ = (
        "_followers",
        "_latecomers",
        "_min_insync_replicas",
        "_others",
        "_vouchers",
        "broker_id",
        "enough_in_sync",
        "epoch_start",
        "high_watermark",
        "in_sync",
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
        elr: Collection[int] = (),
        version: Version = Version(),  # noqa: B008
        recovering: bool = False,
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
        self.epoch_start = log.offsets.end
        """The log's end when the leadership began: all that earlier leaders may have committed is below it."""
        self.in_sync = InSyncSet(isr, elr, version, recovering=recovering)
        self._min_insync_replicas = min_insync_replicas
        self.enough_in_sync = False
        """True if the committed in-sync set has min.insync.replicas members, and the ELR is empty."""
        self._followers: dict[int, Follower] = {}
        self._latecomers: dict[int, tuple[int, int]] = {}
        """The smallest lag of each follower that catches up, and the time at which it was reached."""
        self._others: tuple[Follower, ...] = ()
        """The followers in the maximal in-sync set."""
        self._vouchers: tuple[Follower, ...] = ()
        """The possible successors: the followers in the maximal in-sync set, and the ELR."""
        self.high_watermark = max(log.offsets.start, min(high_watermark, log.offsets.end))
        self._members_changed()

    @property
    def own_end(self) -> int:
        """The end of this replica's log as `ack.durability` counts: durable or appended."""
        log = self.log
        return log.offsets.durable_end if log.acks_mean_disk else log.offsets.end

    def advance(self) -> bool:
        """Moves the high watermark as far as the maximal in-sync set allows; it never falls. True if it moved."""
        end = self.own_end
        for follower in self._others:
            if follower.end < end:
                end = follower.end
        if end <= self.high_watermark or not self.enough_in_sync:
            return False
        self.high_watermark = end
        self.log.replayed.committed_to(end)
        return True

    @property
    def knows_high_watermark(self) -> bool:
        """True if all records that an earlier leader may have committed are below the high watermark. Before that, an
        answer about the log's end could be below an offset that a reader has seen."""
        return self.high_watermark >= self.epoch_start

    # Followers

    def follower_fetched(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        connection_id: int,
        boot_ms: int,
    ) -> bool:
        """Takes a fetch of a follower whose history agrees with the leader's up to `offset`, which is the end that
        counts. True if the high watermark moved."""
        follower = self._followers.get(broker_id)
        if follower is None:
            follower = self._followers[broker_id] = Follower()
        follower.fetched(broker_epoch, offset, log_start, self.log.offsets.end, connection_id, boot_ms)
        return self.advance()

    def follower_answered(self, broker_id: BrokerId, connection_id: int, boot_ms: int) -> None:
        """Notes that a fetch of a follower is answered."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            follower.answered(self.log.offsets.told_start, connection_id, boot_ms)

    def tells_start(self, broker_id: int) -> bool:
        """True if the log's start moved since the follower last heard of it: the follower is told at once."""
        follower = self._followers.get(broker_id)
        return follower is not None and follower.told_start < self.log.offsets.told_start

    @property
    def saved_by_successors(self) -> int:
        """The log start that every possible successor of this leader has saved: no election brings earlier records
        back. A leader without successors has no bound."""
        return min((follower.log_start for follower in self._vouchers), default=NO_BOUND)

    def follower(self, broker_id: int) -> Follower | None:
        """The knowledge of a follower; None if it has not fetched in this epoch and is not in the in-sync set."""
        return self._followers.get(broker_id)

    def nearest(self, nearby: Collection[int], offset: int, boot_ms: int, within_ms: int) -> int | None:
        """The replica among `nearby` that a reader at this offset is sent to; None: the reader stays here.

        The replica is in the committed in-sync set, has the offset, has fetched within that time, and has had an answer
        of this leader: before that it serves no reader in this epoch. The replica with the most records is preferred,
        then the one with the lowest id.
        """
        followers = self._followers
        found = [
            (-follower.end, broker_id)
            for broker_id in nearby
            if broker_id in self.in_sync.committed
            and (follower := followers.get(broker_id)) is not None
            and 0 <= follower.log_start <= offset <= follower.end
            and follower.vouches_ms >= 0
            and boot_ms - follower.fetched_ms < within_ms
        ]
        return min(found)[1] if found else None

    def followers_vouch(self, boot_ms: int, within_ms: int) -> bool:
        """True if every possible successor followed this leader in this epoch within that time: then no other broker
        took the lead before. No follower vouches for a leader that is alone in its in-sync set."""
        vouchers = self._vouchers
        return bool(vouchers) and all(
            follower.vouches_ms >= 0 and boot_ms - follower.vouches_ms < within_ms for follower in vouchers
        )

    def may_join(self, broker_id: int) -> bool:
        """True if a follower outside of the maximal in-sync set has all records that are or may be committed, and no
        deleted ones: as a leader it would bring deleted records back."""
        follower = self._followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.in_sync.maximal
            and follower.end >= max(self.high_watermark, self.epoch_start)
            and (follower.log_start >= self.log.offsets.told_start or follower.log_start == UNKNOWN_START)
        )

    def has_latecomers(self, boot_ms: int, within_ms: int, patience_ms: int) -> bool:
        """True if a follower outside of the in-sync set catches up: it has fetched within `within_ms`, and came nearer
        to the log's end within `patience_ms`. A follower that is too slow ever to arrive does not count."""
        latecomers: dict[int, tuple[int, int]] = {}
        for broker_id, follower in self._followers.items():
            if broker_id in self.in_sync.committed or follower.fetched_ms < 0:
                continue
            if boot_ms - follower.fetched_ms < within_ms:
                now = (self.log.offsets.end - follower.end, boot_ms)
                latecomers[broker_id] = min(self._latecomers.get(broker_id, now), now)
        self._latecomers = latecomers
        return any(boot_ms - nearer_ms <= patience_ms for _, nearer_ms in latecomers.values())

    def has_lost(self, broker_id: int) -> bool:
        """True if a follower that had all committed records says that it lacks some: its log is gone."""
        follower, in_sync = self._followers.get(broker_id), self.in_sync
        return (
            follower is not None
            and 0 <= follower.end < self.high_watermark
            and (broker_id in in_sync.committed or broker_id in in_sync.elr)
        )

    # The in-sync set

    def image_shows(
        self, isr: Collection[int], elr: Collection[int], version: Version, *, recovering: bool = False
    ) -> bool:
        """Takes the partition's row in this epoch. True if the high watermark moved."""
        assert self.broker_id in isr
        before, in_sync = self.in_sync.committed, self.in_sync
        in_sync.image_shows(isr, elr, version, recovering=recovering)
        for member in before.difference(in_sync.committed, in_sync.elr):
            # A replica that left because its disk failed has to fetch again before it rejoins.
            self._followers.pop(member, None)
        return self._members_changed()

    def change_min_insync(self, min_insync_replicas: int) -> bool:
        """Takes a new min.insync.replicas. True if the watermark moved."""
        self._min_insync_replicas = min_insync_replicas
        return self._members_changed()

    def _members_changed(self) -> bool:
        in_sync = self.in_sync
        self._others = tuple(
            self._followers.setdefault(member, Follower()) for member in in_sync.maximal if member != self.broker_id
        )
        self._vouchers = self._others
        if in_sync.elr:
            self._vouchers += tuple(self._followers.setdefault(member, Follower()) for member in in_sync.elr)
        self.enough_in_sync = len(in_sync.committed) >= self._min_insync_replicas and not in_sync.elr
        return self.advance()

    def propose(
        self,
        boot_ms: int,
        lag_ms: int,
        replicas: Collection[int],
        may_join_in: Callable[[int], int | None],
        full: Collection[int] = (),
    ) -> Proposal | None:
        """The change of the in-sync set that is due, if any. `may_join_in` gives the broker epoch of a broker that may
        join the set; brokers in `full`, whose disks are full, leave it. The caller sends the proposal, and comes back
        with its outcome."""
        in_sync, end = self.in_sync, self.log.offsets.end
        if not in_sync.may_ask:
            return None
        lost = frozenset(broker_id for broker_id in self._followers if self.has_lost(broker_id))
        ready = [
            broker_id
            for broker_id, follower in self._followers.items()
            if broker_id in replicas and self.may_join(broker_id) and may_join_in(broker_id) == follower.broker_epoch
        ]
        wanted = in_sync.wanted(
            self.broker_id,
            lambda broker_id: self._followers[broker_id].lags(end, boot_ms, lag_ms),
            ready=ready,
            full=full,
            lost=lost,
            min_insync_replicas=self._min_insync_replicas,
        )
        if wanted is None:
            return None
        epochs = {
            broker_id: self._followers[broker_id].broker_epoch
            for broker_id in wanted
            if broker_id != self.broker_id and broker_id not in in_sync.committed
        }
        in_sync.asked(wanted)
        self._members_changed()
        return Proposal(in_sync.version, wanted, epochs, lost)

    def proposal_ended(self) -> bool:
        """Counts anew after the outcome of a proposal. True if the high watermark moved."""
        return self._members_changed()

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader: no transaction below it is open."""
        return max(self.log.replayed.last_stable_offset(self.high_watermark), self.log.offsets.start)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a request of another leader epoch; -1: the peer does not check."""
        check_epoch(self.log, self.leader_epoch, current_leader_epoch)

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
