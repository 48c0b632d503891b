"""One partition that this node hosts: its log, its role, and the acks and fetches that wait for it.

The image of the metadata decides the role (`HostedReplicas`). A leader has a `LeaderReplica` from the first use of its
log on, one for each leader epoch. A follower has a `FollowerReplica` while its fetcher follows the leader
(`node/replication/fetchers.py`), and serves at most clients in its rack (`node/replication/near_reads.py`). Each use of
a log that cannot be opened tries again, and fails with the StorageFailure of the attempt.

Five kinds of waiting exist, each woken by exactly one event: acks wait for this replica's disk, acks (and
coordinators) wait for the high watermark, deletions of records wait for the log starts of followers, fetches of clients
wait for records below the high watermark, and fetches of followers wait for the log's end. A follower whose clients
wait for the high watermark waits for that, too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.moment import Moment
from cordwood.model.topic_settings import TopicSettings
from cordwood.node.partitions.role import NO_LEADER, ROLE_MOVES, BeingCut, Following, Leading, Offline, Role
from cordwood.replication.follower import UNKNOWN_EPOCH, FollowerReplica
from cordwood.replication.in_sync import Version
from cordwood.replication.leader import LeaderReplica

WOKEN_AT_ONCE = 50
"""Fetches of clients that look again in one turn when a partition moves: a look and an answer take some 25 us. More of
them take turns: twenty thousand fetches that wait for one partition made each Produce to it take 150 ms."""

Done = Callable[[ErrorCode], None]


class WaitingAck:
    """A callback for an offset, called once: at the offset, at the deadline, or when the partition goes away."""

    __slots__ = ("deadline_ms", "done", "needs_enough", "offset")

    def __init__(self, offset: int, deadline_ms: int, done: Done, *, needs_enough: bool = False) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.done = done
        self.needs_enough = needs_enough
        """True if the wait ends when the in-sync set has too few members, or the leader may have been replaced."""


class WaitingReader(Protocol):
    def woken_by(self, partition: "Partition", now: Moment) -> None: ...


class Partition:
    """A partition that this node hosts. The first use opens its log."""

    __slots__ = (
        "_broker_id",
        "_high_watermark",
        "_log",
        "_moved_again",
        "_open",
        "_take_turns",
        "_waking",
        "_watermark_epoch",
        "agreed_epoch",
        "appended_bytes",
        "fetched_bytes",
        "image",
        "name",
        "news_until_ms",
        "rewriting",
        "role",
        "settings",
        "topic_id",
        "unsynced_messages",
        "waiting_committed",
        "waiting_durable",
        "waiting_followers",
        "waiting_readers",
        "waiting_starts",
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
        self.rewriting = False
        """True if compaction or a repair writes new segments for the log: only one of them does at a time."""
        self._broker_id = broker_id
        self._open = open_log
        self._take_turns = take_turns
        self._waking = False
        """True if readers are being woken in turns."""
        self._moved_again = False
        """True if the partition moved while readers were woken: all of them look once more."""
        self._log: Log | None = None
        self._high_watermark = high_watermark
        """The last high watermark of an earlier leadership, or of a follower."""
        self._watermark_epoch = watermark_epoch
        """The leader epoch in which that high watermark was known."""
        self.waiting_durable: deque[WaitingAck] = deque()
        self.waiting_committed: deque[WaitingAck] = deque()
        self.waiting_starts: deque[WaitingAck] = deque()
        """Waits of DeleteRecords: the offset is the log start that every electable replica has to save."""
        self.waiting_readers: dict[WaitingReader, None] = {}
        self.waiting_followers: dict[WaitingReader, None] = {}
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
                self._high_watermark,
                self._watermark_epoch,
                self.image.lossy_epoch,
                self.image.accepted_epoch,
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
                self._watermark_moved(self._begin_leading(), now)

    def follow(self, leader: int, leader_epoch: int, image: PartitionImage) -> list[WaitingAck]:
        """Stops leading, and follows this leader; -1: there is none. A log that a thread has, or whose data directory
        failed, stays so. Returns the acks that waited for the leadership that ends; the caller ends them, and wakes the
        readers."""
        before, self.image = self.role, image
        if before.leads:
            self._take(Following(leader, leader_epoch))
            return self.take_acks()
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
        return self.take_acks()

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

    # Waiting

    def when_durable(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once the record at `offset` is on this replica's disk."""
        self.waiting_durable.append(WaitingAck(offset, deadline_ms, done))

    def when_committed(self, offset: int, deadline_ms: int, done: Done, *, needs_enough: bool = False) -> None:
        """Calls `done` once every in-sync replica has the record at `offset`. `needs_enough`: the wait ends with
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if the in-sync set gets too small."""
        self.waiting_committed.append(WaitingAck(offset, deadline_ms, done, needs_enough=needs_enough))

    def when_starts_reach(self, offset: int, deadline_ms: int, done: Done) -> None:
        """Calls `done` once every replica that may be elected has saved a log start of at least `offset`."""
        if self.replica.saved_by_successors >= offset:
            done(ErrorCode.NONE)
        else:
            self.waiting_starts.append(WaitingAck(offset, deadline_ms, done))

    def _starts_moved(self, replica: LeaderReplica) -> None:
        saved = replica.saved_by_successors
        reached = [ack for ack in self.waiting_starts if ack.offset <= saved]
        if reached:
            kept = [ack for ack in self.waiting_starts if ack.offset > saved]
            self.waiting_starts.clear()
            self.waiting_starts.extend(kept)
        for ack in reached:
            ack.done(ErrorCode.NONE)

    def synced(self, durable_end_offset: int, now: Moment) -> None:
        """Wakes the acks below the log's new durable end."""
        waiting = self.waiting_durable
        while waiting and waiting[0].offset < durable_end_offset:
            waiting.popleft().done(ErrorCode.NONE)
        self.moved(now)

    def moved(self, now: Moment) -> None:
        """Advances the high watermark after the log's or a follower's end moved, and wakes acks and readers."""
        replica = self.role.leading
        if replica is not None and replica.advance():
            self._watermark_moved(replica, now)

    def _watermark_moved(self, replica: LeaderReplica, now: Moment) -> None:
        waiting = self.waiting_committed
        high_watermark = replica.high_watermark
        while waiting and waiting[0].offset < high_watermark:
            waiting.popleft().done(ErrorCode.NONE)
        if self.waiting_readers:
            self.wake_readers(now)

    def _in_sync_changed(self, replica: LeaderReplica, moved: bool, now: Moment) -> None:
        if moved:
            self._watermark_moved(replica, now)
        if self.waiting_starts:
            self._starts_moved(replica)
        if self.waiting_committed and not replica.enough_in_sync:
            self.end_producers(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def end_producers(self, error: ErrorCode) -> None:
        """Ends the waits of producers for all replicas; coordinators wait on."""
        ended = [ack for ack in self.waiting_committed if ack.needs_enough]
        kept = [ack for ack in self.waiting_committed if not ack.needs_enough]
        self.waiting_committed.clear()
        self.waiting_committed.extend(kept)
        for ack in ended:
            ack.done(error)

    def proposal_ended(self, now: Moment) -> None:
        """Counts anew: the leader knows more about a change of its in-sync set."""
        if (replica := self.role.leading) is not None:
            self._in_sync_changed(replica, replica.proposal_ended(), now)

    def follower_fetched(
        self, broker_id: int, broker_epoch: int, offset: int, log_start: int, connection_id: int, now: Moment
    ) -> None:
        """Takes the ends of a follower whose history agrees with the leader's."""
        replica = self.replica
        if replica.follower_fetched(broker_id, broker_epoch, offset, now.boot_ms, connection_id, log_start):
            self._watermark_moved(replica, now)
        if self.waiting_starts:
            self._starts_moved(replica)

    def wake_everybody(self, now: Moment) -> None:
        """Makes all waiting fetches look again: records were removed, or the leadership ended."""
        self.wake_readers(now)
        self.wake_followers(now)

    def wake_readers(self, now: Moment) -> None:
        """Makes waiting fetches of clients look again, many of them in turns."""
        if self._waking:
            self._moved_again = True
            return
        readers = list(self.waiting_readers)
        for reader in readers[:WOKEN_AT_ONCE]:
            reader.woken_by(self, now)
        if len(readers) > WOKEN_AT_ONCE:
            self._waking = True
            self._take_turns(self._wake_in_steps(readers[WOKEN_AT_ONCE:], now))

    def _wake_in_steps(self, readers: list[WaitingReader], now: Moment) -> Iterator[None]:
        while readers:
            for number, reader in enumerate(readers, 1):
                # A reader that no longer waits has its answer, or its connection is closed.
                if reader in self.waiting_readers:
                    reader.woken_by(self, now)
                if not number % WOKEN_AT_ONCE:
                    yield
            yield
            readers = list(self.waiting_readers) if self._moved_again else []
            self._moved_again = False
        self._waking = False

    def wake_followers(self, now: Moment) -> None:
        for reader in list(self.waiting_followers):
            reader.woken_by(self, now)

    def expire_acks(self, now: Moment) -> bool:
        """Answers acks past their deadline with REQUEST_TIMED_OUT. True if other acks still wait."""
        for waiting in (self.waiting_durable, self.waiting_committed, self.waiting_starts):
            if any(ack.deadline_ms <= now.boot_ms for ack in waiting):
                kept = [ack for ack in waiting if ack.deadline_ms > now.boot_ms]
                expired = [ack for ack in waiting if ack.deadline_ms <= now.boot_ms]
                waiting.clear()
                waiting.extend(kept)
                for ack in expired:
                    ack.done(ErrorCode.REQUEST_TIMED_OUT)
        return bool(self.waiting_durable or self.waiting_committed or self.waiting_starts)

    def take_acks(self) -> list[WaitingAck]:
        """Takes all waiting acks away, for a caller that ends them."""
        taken = [*self.waiting_durable, *self.waiting_committed, *self.waiting_starts]
        self.waiting_durable.clear()
        self.waiting_committed.clear()
        self.waiting_starts.clear()
        return taken


def _version(image: PartitionImage) -> Version:
    return Version(image.partition_epoch, image.mod_revision)


def no_such_partition(name: str, index: int) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index} of topic {name!r}.")


def not_led_here(name: str, index: int) -> ProtocolError:
    return ProtocolError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {index} of topic {name!r} is not led by this broker."
    )
