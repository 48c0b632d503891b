"""One partition that this node hosts: its log, its role, and the waits for it.

The image of the metadata decides the role (`HostedReplicas`). A leader has a `LeaderReplica` from the first use of its
log on, one for each leader epoch. A follower has a `FollowerReplica` while its fetcher follows the leader
(`node/replication/fetchers.py`), and serves at most clients in its rack (`node/replication/near_reads.py`). Each use of
a log that cannot be opened tries again, and fails with the StorageFailure of the attempt.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.node.partitions.role import NO_LEADER, ROLE_MOVES, BeingCut, Following, Leading, Offline, Role
from cordwood.node.partitions.waits import WaitingAck, Waits
from cordwood.replication.follower import UNKNOWN_EPOCH, FollowerReplica
from cordwood.replication.in_sync import Version
from cordwood.replication.leader import LeaderReplica


class Partition:
    """A partition that this node hosts. The first use opens its log."""

    __slots__ = (
        "_broker_id",
        "_claimant",
        "_high_watermark",
        "_log",
        "_open",
        "_watermark_epoch",
        "agreed_epoch",
        "appended_bytes",
        "fetched_bytes",
        "image",
        "name",
        "news_until_ms",
        "role",
        "settings",
        "topic_id",
        "unsynced_messages",
        "waits",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        settings: TopicSettings,
        broker_id: int,
        open_log: Callable[["Partition"], Log],
        image: PartitionImage,
        take_turns: Callable[[Iterator[None]], None],
        high_watermark: int,
        watermark_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        """The partition begins as a follower without a leader. `take_turns` takes each step of some work in a separate
        turn. `high_watermark`: the last one that was saved, with the leader epoch in which
        it was known; -1: unknown."""
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.role: Role = Following(NO_LEADER, -1)
        """Changed by `_take` alone."""
        self.agreed_epoch = 0
        """The last finished epoch in which this replica led, or a leader's answer went on from its log; 0: none."""
        self.image = image
        """The partition's row that its present role comes from."""
        self._claimant: object = None
        """The duty that writes new segments for the log, if any."""
        self._broker_id = broker_id
        self._open = open_log
        self._log: Log | None = None
        self._high_watermark = high_watermark
        """The last high watermark of an earlier leadership, or of a follower."""
        self._watermark_epoch = watermark_epoch
        """The leader epoch in which that high watermark was known."""
        self.waits = Waits(take_turns)
        self.unsynced_messages = 0
        self.appended_bytes = 0
        self.fetched_bytes = 0
        """Bytes sent to readers since the broker started."""
        self.news_until_ms = 0
        """The time until which this broker, as a follower, asks for news of the high watermark: clients read here, or
        it stops."""

    # The log and its leader

    @property
    def replica(self) -> LeaderReplica:
        """The leader. Raises NOT_LEADER_OR_FOLLOWER, or StorageFailure if the log cannot be opened."""
        return self.role.leading or self._begin_leading()

    @property
    def log(self) -> Log:
        """The log, whoever leads. Raises StorageFailure if it cannot be opened."""
        if self.role.leads:
            return self.replica.log
        return self._log or self._opened_log()

    def open_log(self) -> None:
        """Opens the log, unless it is open, as its first use would. Raises StorageFailure."""
        _ = self.log

    @property
    def opened(self) -> Log | None:
        """The log if it is open, for duties that must not open a log."""
        return self._log

    @property
    def high_watermark(self) -> int:
        """The high watermark that this broker knows. The log has to be open."""
        role, log = self.role, self._log
        if role.leading is not None:
            return role.leading.high_watermark
        assert log is not None
        known = self._high_watermark if role.following is None else role.following.high_watermark
        return max(min(known, log.offsets.end), log.offsets.start)

    @property
    def watermark_epoch(self) -> int:
        """The leader epoch in which the high watermark was last known; -1: unknown."""
        role = self.role
        if role.leading is not None:
            return max(self._watermark_epoch, role.leading.leader_epoch)
        return self._watermark_epoch if role.following is None else role.following.watermark_epoch

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader that this broker knows. The log has to be open."""
        log = self._log
        assert log is not None
        return max(log.replayed.last_stable_offset(self.high_watermark), log.offsets.start)

    def _opened_log(self) -> Log:
        log = self._log = self._open(self)
        return log

    def _begin_leading(self) -> LeaderReplica:
        role = self.role
        if not isinstance(role, Leading):
            raise not_led_here(*self.name)
        log = self._log or self._opened_log()
        if not log.replayed.ready:
            log.replayed.make_ready()
        offsets = log.offsets
        if self.replicated and (
            offsets.end_in_doubt or (offsets.start_in_doubt and self.image.others_in_sync(self._broker_id))
        ):
            # Other replicas have the records, and would cut them off behind a lost end (`doubtful_logs.py` ends the
            # role).
            raise StorageFailure(f"{self.name}: records are missing in its log: another replica has to lead")
        role.leading = LeaderReplica(
            log,
            self._broker_id,
            role.leader_epoch,
            self.image.isr,
            self.settings.min_insync_replicas,
            elr=self.image.elr,
            version=_version(self.image),
            recovering=self.image.recovering,
            high_watermark=self._high_watermark,
        )
        return role.leading

    def begin_following(self) -> FollowerReplica:
        """The follower of the present leader. Raises StorageFailure if the log cannot be opened."""
        role = self.role
        assert isinstance(role, Following)
        if role.following is None:
            role.following = FollowerReplica(
                self._log or self._opened_log(),
                role.leader,
                role.leader_epoch,
                high_watermark=self._high_watermark,
                watermark_epoch=self._watermark_epoch,
                lossy_epoch=self.image.lossy_epoch,
                accepted_epoch=self.image.accepted_epoch,
            )
        return role.following

    # The role

    def lead(self, image: PartitionImage, leader_epoch: int, now: Moment) -> None:
        """Leads from now on, in this epoch. Waits of an earlier epoch of this leader go on."""
        before, self.image = self.role, image
        if isinstance(before, Leading) and leader_epoch == before.leader_epoch:
            if (replica := before.leading) is not None:
                moved = replica.image_shows(image.isr, image.elr, _version(image), recovering=image.recovering)
                self._in_sync_changed(replica, moved, now)
            return
        leads_on = isinstance(before, Leading) and leader_epoch == before.leader_epoch + 1
        if leader_epoch == 0 or leader_epoch == image.lossy_epoch:
            took_over_ms = None
        elif len(image.replicas) > 1 and not leads_on:
            took_over_ms = now.boot_ms
        else:
            took_over_ms = before.took_over_ms if isinstance(before, Leading) else None
        self._take(Leading(self._broker_id, leader_epoch, now.boot_ms, took_over_ms))
        if self._log is not None:
            with suppress(StorageFailure):  # offline: the next use tries again
                self.waits.committed_up_to(self._begin_leading().high_watermark, now)

    def follow(self, leader: int, leader_epoch: int, image: PartitionImage) -> list[WaitingAck]:
        """Stops leading, and follows this leader; -1: there is none. A log that a thread has, or whose data directory
        failed, stays so. Returns the acks that waited for the leadership that ends; the caller ends them, and wakes the
        readers."""
        before, self.image = self.role, image
        if before.leads:
            self._take(Following(leader, leader_epoch))
            return self.waits.take_acks()
        if (leader, leader_epoch) != (before.leader, before.leader_epoch):
            self._take(type(before)(leader, leader_epoch))
        return []

    def begin_cut(self) -> None:
        """Gives the log of a follower to a thread, until `end_cut`."""
        before = self.role
        self._take(BeingCut(before.leader, before.leader_epoch, before.following))

    def end_cut(self) -> None:
        """Takes the log back from the thread. `HostedReplicas.follow_again` takes the role from the image."""
        before = self.role
        self._take(Following(before.leader, before.leader_epoch, before.following))

    def lose_log(self) -> None:
        """Forgets the log of a follower, whose state is unclear: the next use opens the log."""
        before = self.role
        assert not before.leads
        self._take(type(before)(before.leader, before.leader_epoch))
        self._log = None

    def go_offline(self) -> list[WaitingAck]:
        """Ends the role and forgets the log: its data directory failed. Returns the acks that waited; the caller ends
        them, and wakes the readers."""
        self._take(Offline(NO_LEADER, self.role.leader_epoch))
        self._log = None
        return self.waits.take_acks()

    def _take(self, role: Role) -> None:
        """Changes the role. Keeps what later roles need of a leader or follower that ends: the high watermark, and its
        epoch if this log has the records of that epoch."""
        before = self.role
        ROLE_MOVES.moved(str(self.name), before.state, role.state)
        replica = before.leading or before.following
        if before.leads or (before.following is not None and before.following.heard_ms is not None):
            self.agreed_epoch = before.leader_epoch
        self._watermark_epoch = self.watermark_epoch
        if replica is not None:
            self._high_watermark = replica.high_watermark
        self.role = role

    @property
    def replicated(self) -> bool:
        return len(self.image.replicas) > 1

    def followers_vouch(self, now: Moment, within_ms: int) -> bool:
        """True if every other in-sync replica fetched in this epoch within that time: no other broker was elected."""
        replica = self.role.leading
        return replica is not None and replica.followers_vouch(now.boot_ms, within_ms)

    @property
    def must_sync(self) -> bool:
        """True if the ack of the last append waits for this replica's disk."""
        settings = self.settings
        return settings.ack_durability == "disk" or self.unsynced_messages >= settings.flush_messages

    def change_settings(self, settings: TopicSettings, now: Moment) -> None:
        self.settings = settings
        if self._log is not None:
            self._log.change_settings(settings)
        if (replica := self.role.leading) is not None:
            self._in_sync_changed(replica, replica.change_min_insync(settings.min_insync_replicas), now)

    # The claim to the segments

    @property
    def log_is_free(self) -> bool:
        """True if no thread has the log, and no duty writes new segments for it."""
        return self._claimant is None and not self.role.being_cut

    def claim(self, claimant: object) -> bool:
        """Lets one claimant at a time write new segments for the log: compaction, a repair, or a move to another data
        directory. False: the log is not free."""
        if not self.log_is_free:
            return False
        self._claimant = claimant
        return True

    def release(self, claimant: object) -> bool:
        """Takes the claim back. False: the claimant does not have it."""
        if self._claimant is not claimant:
            return False
        self._claimant = None
        return True

    # Ends that move

    def moved(self, now: Moment) -> None:
        """Advances the high watermark after the log's or a follower's end moved, and wakes acks and readers."""
        replica = self.role.leading
        if replica is not None and replica.advance():
            self.waits.committed_up_to(replica.high_watermark, now)

    def proposal_ended(self, now: Moment) -> None:
        """Counts anew: the leader knows more about a change of its in-sync set."""
        if (replica := self.role.leading) is not None:
            self._in_sync_changed(replica, replica.proposal_ended(), now)

    def _in_sync_changed(self, replica: LeaderReplica, moved: bool, now: Moment) -> None:
        if moved:
            self.waits.committed_up_to(replica.high_watermark, now)
        if self.waits.starts:
            self.waits.starts_saved(replica.saved_by_successors)
        if self.waits.committed and not replica.enough_in_sync:
            self.waits.end_producers(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def follower_fetched(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start: Offset,
        connection_id: int,
        now: Moment,
    ) -> None:
        """Takes the ends of a follower whose history agrees with the leader's."""
        replica = self.replica
        if replica.follower_fetched(broker_id, broker_epoch, offset, log_start, connection_id, now.boot_ms):
            self.waits.committed_up_to(replica.high_watermark, now)
        if self.waits.starts:
            self.waits.starts_saved(replica.saved_by_successors)


def _version(image: PartitionImage) -> Version:
    return Version(image.partition_epoch, image.mod_revision)


def no_such_partition(name: str, index: int) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic {name!r}.")


def not_led_here(name: str, index: int) -> ProtocolError:
    return ProtocolError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {index} of topic {name!r} is not led by this broker."
    )
