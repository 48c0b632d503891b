"""One fetch under way: reads its partitions, answers with their visible records, now or as soon as there are enough.

Records stay in their files: an answer holds slices, and the sender of the answer reads the slices. A waiting fetch
keeps its findings; when a partition moves, only that partition is read again.

A follower reads up to the log's end, and waits until the end moves. If it names the high watermark that it knows, it
waits until that moves, too. A client that names its rack may be sent to a follower there, and reads from it
(`replication/near_reads.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from cordwood.log.log import ColdRead, Log
from cordwood.log.reading.lookup import LogSlice
from cordwood.model.errors import DamagedLog, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.moment import Moment
from cordwood.node.handlers.records.client_reads import ClientReads
from cordwood.node.handlers.records.fetch_answers import PARTITIONS_PER_STEP, answer_fetch
from cordwood.node.loop.timers import Timer
from cordwood.node.loop.turns import Steps
from cordwood.node.partitions.partition import Partition
from cordwood.node.replication.fetching_followers import LeaderThrottle, answer_follower, count_follower
from cordwood.node.replication.near_reads import TELL_LEADERSHIP_AGAIN_MS
from cordwood.node.requests.fetch_sessions import FetchPlan, Target
from cordwood.node.requests.request import Request
from cordwood.replication.follower import FollowerReplica
from cordwood.wire.fetch import UNKNOWN_HIGH_WATERMARK, FetchRequest
from cordwood.wire.fetched import FetchedPartition

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.unreadable import UnreadableFiles
    from cordwood.node.replication.in_sync_changes import InSyncChanges
    from cordwood.node.replication.near_reads import NearReads
    from cordwood.node.requests.leader_hints import LeaderHints
    from cordwood.node.requests.parked import ParkedRequests
    from cordwood.replication.leader import LeaderReplica

READ_COMMITTED = 1
LEADER_HINTS_FROM = 16
"""From this version on an answer names the leader to a client at the wrong broker, as Kafka does."""


class FetchingRooms(Protocol):
    """The rooms of a node that a fetch needs."""

    damage: DamageBook
    hosted: HostedReplicas
    image: ClusterImage
    in_sync_changes: InSyncChanges
    leader_hints: LeaderHints
    leader_throttle: LeaderThrottle
    loop: Loop
    near_reads: NearReads
    parked: ParkedRequests
    reports: Reports
    unreadable: UnreadableFiles


class Fetching:
    """One fetch, from its first look at the partitions until its answer."""

    __slots__ = (
        "_abandoned",
        "_bytes",
        "_cold",
        "_committed_only",
        "_ended",
        "_follower",
        "_follower_epoch",
        "_found",
        "_max_bytes",
        "_min_bytes",
        "_moved",
        "_places",
        "_plan",
        "_rack",
        "_reading",
        "_reads",
        "_request",
        "_rooms",
        "_timer",
        "_urgent",
        "_wait_ms",
    )

    def __init__(
        self, rooms: FetchingRooms, request: Request, body: FetchRequest, plan: FetchPlan, most_bytes: int
    ) -> None:
        # The answer has at most `most_bytes` of records, whatever the request asks for.
        self._rooms, self._request, self._plan = rooms, request, plan
        self._max_bytes = min(body.max_bytes, most_bytes)
        self._min_bytes = min(body.min_bytes, self._max_bytes)  # a full answer need not wait for more
        self._wait_ms = request.reply.session.bound_ms(body.max_wait_ms, request.now.boot_ms)
        self._follower = body.replica_id
        """The broker id of a follower; -1: the reader is a client."""
        self._follower_epoch = body.replica_epoch
        self._committed_only = body.isolation_level == READ_COMMITTED and body.replica_id < 0
        self._rack = body.rack_id if body.replica_id < 0 else ""
        """The rack of the client; empty if it gave none, or for a follower."""
        self._found: list[FetchedPartition] = []
        self._bytes = 0
        self._reading = True
        """True if partitions are being read in steps: the answer waits for the last one."""
        self._ended = False
        """True if a leadership ended while partitions were being read in steps."""
        self._urgent = False
        self._places: dict[Partition, int] = {}
        self._cold: set[int] = set()
        """Places in `_found` that a thread is looking up."""
        self._moved: set[int] = set()
        """Cold places whose partition moved meanwhile."""
        self._timer: Timer | None = None
        self._abandoned = False
        self._reads = ClientReads(rooms, request, self._rack)

    def start(self) -> None:
        """Reads every partition once; answers, or waits for more."""
        for place, target in enumerate(self._plan.targets):
            self._found.append(self._look(place, target))
        self._answer_or_wait()

    def start_in_steps(self) -> Steps:
        """Works like `start`, in steps of PARTITIONS_PER_STEP. A partition that moves or goes between two steps is read
        again, as for a waiting fetch."""
        try:
            for place, target in enumerate(self._plan.targets):
                if place and not place % PARTITIONS_PER_STEP:
                    yield
                self._found.append(self._look(place, target))
                self._hear_of_last_found()
            if self._ended:
                yield from self._look_at_all_again()
        except GeneratorExit:
            self.abandon()
            raise
        self._answer_or_wait()

    def _look_at_all_again(self) -> Steps:
        """Reads all partitions again: the event that ended one leadership may have ended others, which would wake the
        fetch only after its answer."""
        for number, place in enumerate(list(self._places.values()), 1):
            if place not in self._cold:
                self._look_again(place)
            if not number % PARTITIONS_PER_STEP:
                yield

    def _look_at_all_again_and_answer(self) -> Steps:
        try:
            yield from self._look_at_all_again()
        except GeneratorExit:
            self.abandon()
            raise
        self._reading = False
        self._answer_if_enough()

    def _hear_of_last_found(self) -> None:
        if self._places:
            self._wait_at(next(reversed(self._places)))

    def _wait_at(self, partition: Partition) -> None:
        """Listens for moves of the partition: its high watermark, its log's end, or both."""
        look = partial(self._woken_by, partition)
        if self._follower >= 0:
            partition.waits.followers[self] = look
            if self._plan.targets[self._places[partition]].high_watermark == UNKNOWN_HIGH_WATERMARK:
                return
        partition.waits.readers[self] = look

    def _answer_or_wait(self) -> None:
        self._reading = False
        if self._wait_ms <= 0 or not self._places:
            self._urgent = True
        if not self._answer_if_enough():
            # A follower that has more to ask sends a request behind the one that waits.
            self._rooms.parked.park(
                self._request.reply.connection_id,
                self,
                gives_way=self._follower >= 0,
                partitions=len(self._plan.targets),
            )
            # A fetch that only waits for the disk listens, too: a topic that is deleted meanwhile takes its slices
            # away.
            for partition in self._places:
                self._wait_at(partition)
            if not self._urgent:
                self._timer = self._rooms.loop.timers.at(self._request.now.boot_ms + self._wait_ms, self._timed_out)

    def _woken_by(self, partition: Partition, now: Moment) -> None:
        """Reads a partition again that has moved, or is gone."""
        place = self._places[partition]
        if place in self._cold:
            self._moved.add(place)
            return
        self._look_again(place)
        if self._found[place].error_code:
            if self._reading:
                # Each partition of a deleted topic wakes the fetch: to read all others each time would be quadratic.
                self._ended = True
            else:
                self._looked_at_all_again()
        self._answer_if_enough()

    def _looked_at_all_again(self) -> bool:
        """Reads all partitions again. False if that takes a while; the fetch goes on by itself afterwards."""
        if len(self._places) > PARTITIONS_PER_STEP:
            self._reading = True
            self._request.go_on(self._look_at_all_again_and_answer())
        else:
            for _ in self._look_at_all_again():
                pass
        return not self._reading and not self._cold

    def _look_again(self, place: int) -> None:
        self._bytes -= _length(self._found[place])
        self._found[place] = self._look(place, self._plan.targets[place])

    def hurry(self, now: Moment) -> None:
        self._timed_out(now)

    def _timed_out(self, now: Moment) -> None:
        self._urgent = True
        self._answer_if_enough()

    def _answer_if_enough(self) -> bool:
        if self._reading or self._cold or not (self._urgent or self._bytes >= self._min_bytes):
            return False
        if self._reads.rules_changed() and not self._looked_at_all_again():
            return False
        if not self._rooms.hosted.lease_holds:
            for partition, place in self._places.items():
                if not self._rooms.hosted.serves(partition):
                    self._look_again(place)
        self._leave()
        if self._follower >= 0:
            for partition, place in self._places.items():
                self._tell_dropped(partition, place)
                answer_follower(partition, self._follower, self._request.reply.connection_id, self._rooms.loop.now)
        answer_fetch(self._rooms, self._request, self._plan, self._found)
        return True

    def _tell_dropped(self, partition: Partition, place: int) -> None:
        """Tells a follower which deletions compaction has dropped by now: its records may have been read before."""
        replica = partition.role.leading
        dropped = None if replica is None else replica.log.segments.dropped
        if dropped is not None and dropped.highest >= 0:
            self._found[place] = self._found[place]._replace(dropped_deletions=dropped)

    def abandon(self) -> None:
        """Ends the fetch without an answer: its connection is closed."""
        self._abandoned = True
        self._leave()

    def _leave(self) -> None:
        for partition in self._places:
            partition.waits.readers.pop(self, None)
            partition.waits.followers.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._rooms.parked.unpark(self._request.reply.connection_id, self)

    def _look(self, place: int, target: Target) -> FetchedPartition:
        """Reads a target now. Counts the bytes; an error or a divergence makes the answer urgent."""
        try:
            return self._read(place, target)
        except ProtocolError as refusal:
            error = refusal.code
        except DamagedLog as damage:
            error = self._damaged(self._partition(target), damage)
        except StorageFailure as failure:
            self._rooms.reports.failure(failure)
            error = ErrorCode.KAFKA_STORAGE_ERROR
        except ColdRead as cold:
            return self._read_in_thread(place, target, cold)
        self._urgent = True
        hint = None
        if self._request.version >= LEADER_HINTS_FROM:
            hint = self._rooms.leader_hints.hint(target.topic, target.partition, error)
            connection_id = self._request.reply.connection_id
            if hint and self._rack and not self._rooms.near_reads.may_be_hinted(hint, connection_id):
                hint = None
        aborted = () if self._committed_only else None
        return FetchedPartition(target.partition, error, aborted_transactions=aborted, current_leader=hint)

    def _read_in_thread(self, place: int, target: Target, cold: ColdRead) -> FetchedPartition:
        """Looks up the records of a cold place in a thread: the answer waits for the disk, the loop does not."""
        self._cold.add(place)
        partition = self._partition(target)
        role = partition.role.leading or partition.role.following
        assert role is not None
        truncations = role.log.offsets.truncations

        def found(result: LogSlice | Exception | None) -> None:
            self._cold.discard(place)
            if self._abandoned:
                return
            if not self._still_serves(partition, role) or truncations != role.log.offsets.truncations:
                self._look_again(place)
            elif isinstance(result, Exception):
                self._failed(place, partition, result)
            elif result is not None and (not self._bytes or self._bytes + result.length <= self._max_bytes):
                # Otherwise the answer is full: cold places are looked up side by side, each without regard to the
                # others.
                self._found_in_thread(place, partition, result)
            if not self._answer_if_enough() and place in self._moved and place not in self._cold:
                self._moved.discard(place)
                self._look_again(place)
                self._answer_if_enough()

        self._rooms.loop.effects.for_client(self._request.reply.connection_id, cold.finish, found)
        return self._without_records(target, role)

    def _without_records(self, target: Target, role: LeaderReplica | FollowerReplica) -> FetchedPartition:
        return FetchedPartition(
            target.partition,
            0,
            role.high_watermark,
            role.last_stable_offset,
            self._start_of(role.log),
            b"",
            () if self._committed_only else None,
        )

    def _start_of(self, log: Log) -> int:
        """The log's start for the reader: a follower takes over the start that it is told."""
        return log.offsets.start if self._follower < 0 else log.offsets.told_start

    def _still_serves(self, partition: Partition, role: LeaderReplica | FollowerReplica) -> bool:
        if isinstance(role, FollowerReplica):
            return self._rooms.near_reads.still_followed(partition, role)
        return self._rooms.hosted.still_leads(partition)

    def _damaged(self, partition: Partition, damage: DamagedLog) -> ErrorCode:
        """Has the log examined. Returns the client's error, which sends a client of a follower to the leader."""
        self._rooms.reports.failure(damage)
        if (log := partition.opened) is not None:
            self._rooms.damage.look_at(log)
        return ErrorCode.CORRUPT_MESSAGE if partition.role.leads else ErrorCode.KAFKA_STORAGE_ERROR

    def _failed(self, place: int, partition: Partition, failure: Exception) -> None:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(failure, DamagedLog):
            code = self._damaged(partition, failure)
        else:
            self._rooms.reports.failure(failure)
        self._urgent = True
        self._found[place] = self._found[place]._replace(error_code=code)

    def _found_in_thread(self, place: int, partition: Partition, records: LogSlice) -> None:
        found = self._found[place]
        aborted = found.aborted_transactions
        try:
            self._rooms.unreadable.check(records.file.path)
            if self._committed_only:
                # Aborts are listed up to the last stable offset of the first look, where the records end, too.
                offset = self._plan.targets[place].fetch_offset
                aborted = partition.log.aborts.in_slice(records, offset, found.last_stable_offset)
        except StorageFailure as failure:
            self._failed(place, partition, failure)
            return
        self._count(partition, records.length)
        self._found[place] = found._replace(records=records, aborted_transactions=aborted)

    def _count(self, partition: Partition, length: int) -> None:
        self._bytes += length
        partition.fetched_bytes += length
        if self._follower >= 0:
            self._rooms.leader_throttle.sent(partition, self._follower, length, self._rooms.loop.now)
        elif not partition.role.leads:
            self._rooms.near_reads.served_bytes += length

    def _partition(self, target: Target) -> Partition:
        """The target, which this broker leads, or follows in a way that a client may read it here."""
        if self._follower >= 0:
            return self._rooms.hosted.leader_for_follower(target.topic, target.partition, self._follower)
        return self._reads.partition(target)

    def _read(self, place: int, target: Target) -> FetchedPartition:
        partition = self._partition(target)
        self._places[partition] = place
        if not partition.role.leads:
            return self._read_as_follower(partition, target)
        replica = partition.replica
        if self._rack and self._hears_of_leadership(partition, target.current_leader_epoch):
            return self._tell_leadership(replica, target, place)
        replica.check_epoch(target.current_leader_epoch)
        log = replica.log
        high_watermark = replica.high_watermark
        stable = replica.last_stable_offset
        if target.last_fetched_epoch >= 0:
            diverging = replica.divergence(target.last_fetched_epoch, target.fetch_offset)
            if diverging is not None:
                self._urgent = True
                return FetchedPartition(
                    target.partition, 0, high_watermark, stable, self._start_of(log), diverging_epoch=diverging
                )
        if self._rack:
            near = self._rooms.near_reads.send_near(
                partition,
                self._rack,
                target.fetch_offset,
                self._request.reply.session.entrance.name,
                self._request.reply.connection_id,
            )
            if near >= 0:
                self._urgent = True
                return self._without_records(target, replica)._replace(preferred_read_replica=near)
        end = stable if self._committed_only else high_watermark
        if self._follower >= 0:
            end = log.offsets.end
            if not log.offsets.start <= target.fetch_offset <= end:
                # The follower begins anew at the log's start. A follower with records keeps them if the start is in
                # doubt.
                self._urgent = True
                start = log.offsets.start if target.last_fetched_epoch < 0 else log.offsets.told_start
                return FetchedPartition(target.partition, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark, stable, start)
            if place == len(self._found):
                # Only the first look, at the request's arrival, brings news of the follower's end.
                count_follower(
                    self._rooms.in_sync_changes,
                    partition,
                    self._follower,
                    self._follower_epoch,
                    target.current_leader_epoch,
                    target.fetch_offset,
                    target.log_start,
                    self._request.reply.connection_id,
                    self._request.now,
                )
                high_watermark = replica.high_watermark
            if target.high_watermark < high_watermark or replica.tells_start(self._follower):
                # Clients of the follower wait for the news, or DeleteRecords here waits for the follower.
                self._urgent = True
            if self._rooms.leader_throttle.holds_back(partition, self._follower, self._rooms.loop.now):
                end = target.fetch_offset
        return self._find(partition, log, target, end, high_watermark, stable)

    def _hears_of_leadership(self, partition: Partition, epoch: int) -> bool:
        near_reads, connection_id = self._rooms.near_reads, self._request.reply.connection_id
        return self._request.version >= LEADER_HINTS_FROM and near_reads.hears_of_leadership(
            partition, epoch, connection_id
        )

    def _tell_leadership(self, replica: LeaderReplica, target: Target, place: int) -> FetchedPartition:
        """Tells a client of the leadership: at once if it waited here while this broker followed, after a pause if it
        asks now."""
        if place == len(self._found):
            self._wait_ms = min(self._wait_ms, TELL_LEADERSHIP_AGAIN_MS)
        elif self._found[place].current_leader is None:
            self._urgent = True
        return self._without_records(target, replica)._replace(current_leader=(replica.broker_id, replica.leader_epoch))

    def _read_as_follower(self, partition: Partition, target: Target) -> FetchedPartition:
        following = partition.role.following
        assert following is not None
        try:
            following.check_reader(target.current_leader_epoch, target.fetch_offset, target.last_fetched_epoch)
        except ProtocolError:
            self._rooms.near_reads.sent_back += 1
            raise
        high_watermark, stable = following.high_watermark, following.last_stable_offset
        end = stable if self._committed_only else high_watermark
        return self._find(partition, following.log, target, end, high_watermark, stable)

    def _find(
        self, partition: Partition, log: Log, target: Target, end: int, high_watermark: int, stable: int
    ) -> FetchedPartition:
        """Reads the target's log up to this end."""
        allowed = min(target.max_bytes, self._max_bytes - self._bytes)
        found = None
        first = self._bytes == 0
        if allowed > 0 or first:
            found = log.read(target.fetch_offset, allowed, end_offset=end, minimum_one_batch=first, may_block=False)
        if found is not None and self._rooms.unreadable:
            self._rooms.unreadable.check(found.file.path)
        aborted = None
        if self._committed_only:
            aborted = () if found is None else log.aborts.in_slice(found, target.fetch_offset, end)
        if found is not None:
            self._count(partition, found.length)
        return FetchedPartition(
            target.partition,
            0,
            high_watermark,
            stable,
            self._start_of(log),
            b"" if found is None else found,
            aborted,
        )


def _length(found: FetchedPartition) -> int:
    return found.records.length if isinstance(found.records, LogSlice) else 0
