"""A fetcher: asks one leader for partitions that it leads and this broker follows.

A fetcher has one request outstanding. The fetcher appends the leader's records, waits until they count as this
replica's (synced under `ack.durability=disk`), and asks again: its fetch offsets tell the leader the end of this
replica. A partition whose log is cut by a thread, or whose leader refused, is left out of requests for a while.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cordwood.model.back_off import BackOff
from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError, StorageFailure
from cordwood.model.identifiers import TopicId
from cordwood.model.moment import Moment
from cordwood.node.loop.peers import PeerAnswer, PeerFailed, PeerOutcome, PeerRequest
from cordwood.node.partitions.partition import Partition
from cordwood.node.replication.asking_leaders import FETCHER_MOVES, Asked, Asking, fetch_values
from cordwood.node.replication.asking_replicas import sound_batches_request
from cordwood.replication.follower import (
    Append,
    Cut,
    FollowerReplica,
    GiveUp,
    Late,
    LeaderAnswer,
    Refill,
    Refused,
    Restart,
    RestartWith,
    StartConfirmed,
    Withhold,
)
from cordwood.replication.throttle import is_listed
from cordwood.segments.dropped_deletions import Dropped
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood.node.replication.fetcher_rooms import FetcherRooms
    from cordwood.wire.message_types.fetch import Fetch

FETCH_VERSIONS = (15, 18)
TIMEOUT_BEYOND_WAIT_MS = 10_000
FIRST_PAUSE_MS = 50
REST_MS = 100
"""The pause of a partition in requests after its leader refused. The image shows a new leader sooner."""
SHORT_WAIT_MS = 10
"""The leader's wait while a partition is left out because its log is cut: it joins the next request."""
LONGEST_THROTTLED_MS = 5_000
"""The longest rest of a throttled partition: an operator may raise the rate meanwhile."""
OPENED_AT_ONCE = 64
"""The most logs that are opened for one request."""
FEW_PARTITIONS = 32
"""Up to this many partitions are fetched from a leader by one request, whether they move or not."""
AT_REST_MS = 5_000
"""A partition without new records for this time is at rest."""
LOOK_FOR_REST_MS = 1_000
"""The interval at which partitions at rest are looked for."""
NEVER_MS = 2**62
WRONG_LEADER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Refusals that end when both brokers have the same image."""


class Fetcher:
    """Fetches from one leader.

    Each leader has two: one for partitions that get records, and one for partitions at rest, whose request names many
    and mostly waits. A single request would name all partitions for each record of one. A partition changes its fetcher
    while no request that names it is outstanding.
    """

    def __init__(
        self, rooms: FetcherRooms, leader: int, of: dict[Partition, Fetcher], busy: Fetcher | None = None
    ) -> None:
        """`of`: the fetcher of each partition. `busy`: the other fetcher, if this one is for partitions at rest."""
        self.leader = leader
        self._rooms = rooms
        self._loop = rooms.loop
        self._of = of
        self._busy = busy
        self.at_rest: Fetcher | None = None
        """The other fetcher, if this one is for partitions that get records."""
        self._look_for_rest_at_ms = 0
        self._partitions: dict[Partition, int] = {}
        """The time at which each partition got its last records, or was added. Requests name the latest last."""
        self._resting: dict[Partition, int] = {}
        """Partitions that are left out of requests, and the time until which they are."""
        self._syncing: dict[Partition, None] = {}
        """Partitions whose last records are not durable yet."""
        self._name = f"of broker {leader}"
        self._asking = Asking.IDLE
        self._failures = 0

    def add(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)
        self._partitions[partition] = self._loop.now.boot_ms
        self._resting.pop(partition, None)
        if partition.role.following is None:
            self.hurry_soon()
        self._ask_soon()

    def hurry_soon(self) -> None:
        """Makes the leader answer the outstanding request, which does not ask for all that this follower wants."""
        if self._asking is Asking.ASKED:
            self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.HURRIED)
            self._loop.after(0, self._hurry)

    def _rests(self, now: Moment) -> None:
        """Gives partitions at rest to the fetcher for them. No request of this fetcher is outstanding."""
        if self.at_rest is None or len(self._partitions) <= FEW_PARTITIONS or now.boot_ms < self._look_for_rest_at_ms:
            return
        self._look_for_rest_at_ms = now.boot_ms + LOOK_FOR_REST_MS
        found = []
        for partition, moved_ms in self._partitions.items():
            if now.boot_ms - moved_ms < AT_REST_MS:
                break
            if partition.role.following is not None and not partition.role.being_cut and partition not in self._resting:
                found.append(partition)
        for partition in found:
            del self._partitions[partition]
            self.at_rest._partitions[partition] = now.boot_ms
            self._of[partition] = self.at_rest
        if found:
            self.at_rest.hurry_soon()
            self.at_rest._ask_soon()

    def _got_records(self, partition: Partition, now: Moment) -> Fetcher:
        """The fetcher for the partition from now on. The request that brought the records is answered."""
        if self._of.get(partition) is not self:
            # An answer never takes a partition away from the fetcher that has it, which may have asked for it.
            return self
        owner = self._of[partition] = self._busy or self
        # Partitions that got nothing come first in the next request, which may be full before the others' turn.
        self._partitions.pop(partition, None)
        owner._partitions[partition] = now.boot_ms
        return owner

    def _hurry(self, now: Moment) -> None:
        """Makes the leader answer the outstanding request: a new partition is not in it, and acks may wait for its
        followers. An empty request makes the previous one give way."""
        if self._asking is Asking.HURRIED:
            self._rooms.peers.send(self._request({}, wait_ms=0), lambda outcome, now: None)

    def remove(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)
        self._resting.pop(partition, None)
        if partition in self._syncing:
            del self._syncing[partition]
            self._ask_soon()

    def stop(self) -> None:
        """Fetches nothing more, and takes no answer."""
        for fetcher in (self, self.at_rest):
            if fetcher is not None:
                fetcher._asking = FETCHER_MOVES.moved(fetcher._name, fetcher._asking, Asking.STOPPED)

    # Requests

    def _ask_soon(self) -> None:
        """Asks in the next turn: changes of many partitions come in one event."""
        if self._asking is Asking.IDLE and not self._syncing:
            self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.DUE)
            self._loop.after(0, self._ask)

    def _ask(self, now: Moment) -> None:
        if self._asking is Asking.STOPPED:
            return
        if self._syncing or not self._partitions:
            self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.IDLE)
            return
        self._rests(now)
        settings = self._rooms.image.settings
        asked: dict[tuple[TopicId, int], Asked] = {}
        wait_ms, opened = settings.replica_fetch_wait_max_ms, 0
        for partition in self._partitions:
            if partition in self._resting:
                wait_ms = min(wait_ms, max(1, self._resting[partition] - now.boot_ms))
                continue
            if partition.role.being_cut or (partition.opened is None and opened >= OPENED_AT_ONCE):
                wait_ms = min(wait_ms, SHORT_WAIT_MS)
                continue
            opened += partition.opened is None
            found = self._place_of(partition, now)
            if found is not None:
                asked[partition.topic_id, partition.name.partition] = found
        if self._syncing or not asked:
            # Answers of a leader that waits for records would delay the news of this replica's end.
            self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.IDLE)
            return
        self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.ASKED)
        self._rooms.peers.send(self._request(asked, wait_ms), lambda outcome, now: self._answered(asked, outcome, now))

    def _request(self, asked: dict[tuple[TopicId, int], Asked], wait_ms: int) -> PeerRequest[Fetch.Response]:
        return PeerRequest(
            self.leader,
            ApiKey.FETCH,
            FETCH_VERSIONS,
            fetch_values(self._rooms, asked, wait_ms),
            wait_ms + TIMEOUT_BEYOND_WAIT_MS,
            waits_long=self._busy is not None,
        )

    def _place_of(self, partition: Partition, now: Moment) -> Asked | None:
        """The place from which the partition's log goes on; None if it cannot be asked for now."""
        try:
            following = partition.begin_following()
            if following.log.lost and not self._counts_as_in_sync(partition):
                self._begin_cut(partition, following, following.log.offsets.start, anew=True)
                return None
            place = following.ask()
            if following.log.offsets.saved_start < following.log.offsets.start:
                self._rooms.starts.save(partition, self._start_saved)
        except StorageFailure as failure:
            self._failed(failure)
            self._rooms.reports.failure(failure)
            self._rest(partition, self._rooms.image.settings.replica_fetch_backoff_ms, now)
            return None
        if place is None:
            self._rooms.flushes.sync(partition)
            self._wait_for_disk(partition, following)
            return None
        return Asked(partition, following, place)

    def _start_saved(self, partition: Partition) -> None:
        """Makes the leader answer: the next request tells it the log start that is saved here."""
        if (fetcher := self._of.get(partition)) is not None:
            fetcher.hurry_soon()

    # Answers

    def _answered(
        self, asked_for: dict[tuple[TopicId, int], Asked], outcome: PeerOutcome[Fetch.Response], now: Moment
    ) -> None:
        if self._asking is Asking.STOPPED:
            return
        self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.IDLE)
        if isinstance(outcome, PeerFailed):
            self._rooms.suspects.failed(self.leader, outcome, now)
            self._pause(outcome.text)
            return
        self._rooms.suspects.answered(self.leader)
        assert isinstance(outcome, PeerAnswer)
        if outcome.body.error_code != ErrorCode.NONE:
            self._pause(f"broker {self.leader} refused a fetch: {ErrorCode(outcome.body.error_code).name}")
            return
        self._failures = 0
        for topic in outcome.body.responses:
            for answer in topic.partitions:
                assert topic.topic_id is not None
                asked = asked_for.get((topic.topic_id, answer.partition_index))
                if asked is not None and self._still_counts(asked):
                    self._take(asked, answer, now)
        self._ask_soon()

    def _still_counts(self, asked: Asked) -> bool:
        """True if the partition follows the same leader in the same epoch as when it was asked for."""
        role = asked.partition.role
        return asked.partition in self._partitions and role.following is asked.following and not role.being_cut

    def _counts_as_in_sync(self, partition: Partition) -> bool:
        return self._rooms.image.node_id in (*partition.image.isr, *partition.image.elr)

    def _take(self, asked: Asked, answer: Fetch.ResponsePartition, now: Moment) -> None:
        partition, following, place = asked
        settings = self._rooms.image.settings
        if following.log.in_doubt and self._counts_as_in_sync(partition):
            # With these records the replica could be elected, as if it had all earlier ones (`doubtful_logs.py`).
            self._rest(partition, REST_MS, now)
            return
        diverging, dropped = answer.diverging_epoch, answer.dropped_deletions
        step = following.answered(
            place,
            LeaderAnswer(
                answer.error_code,
                answer.high_watermark,
                answer.log_start_offset,
                answer.records,
                diverging.epoch,
                diverging.end_offset,
                None if dropped.mark < 0 else Dropped(dropped.mark, dropped.highest),
            ),
        )
        match step:
            case Append(records, taken_over):
                self._append(partition, following, records, taken_over, answer, now)
            case Cut(offset) if partition in self._rooms.hosted.withheld and offset < following.high_watermark:
                # A controller of an earlier release did not note that an operator accepted the loss.
                self._give_up(partition, following, offset)
            case GiveUp(offset):
                self._give_up(partition, following, offset)
            case Cut(offset):
                self._begin_cut(partition, following, offset, anew=False)
            case Withhold(offset):
                if partition not in self._rooms.hosted.withheld:
                    # After a kill the replica knows only the saved facts about these records.
                    self._rooms.checkpoints.soon()
                self._rooms.withheld.keep(partition, following, offset)
                self._rest(partition, settings.replica_fetch_backoff_ms, now)
            case Restart(offset):
                self._begin_cut(partition, following, offset, anew=True)
            case RestartWith(offset, records, taken_over):
                self._begin_cut(
                    partition,
                    following,
                    offset,
                    anew=True,
                    then=lambda: self._append(partition, following, records, taken_over, answer, self._loop.now),
                )
            case Refill():
                self._refill(partition, following, step, now)
            case StartConfirmed():
                following.log.start_is_known()
            case Refused(error):
                if error not in WRONG_LEADER:
                    self._rooms.reports.report(
                        logging.WARNING, f"{partition.name}: broker {self.leader} refused a fetch: {error.name}"
                    )
                damaged = error is ErrorCode.CORRUPT_MESSAGE
                self._rest(partition, settings.replica_fetch_backoff_ms if damaged else REST_MS, now)
            case Late():
                if following.log.lost:
                    self._rest(partition, REST_MS, now)

    def _give_up(self, partition: Partition, following: FollowerReplica, offset: int) -> None:
        self._rooms.withheld.give_up(partition, following, offset, lambda succeeded: self._ask_soon())

    def _append(
        self,
        partition: Partition,
        following: FollowerReplica,
        records: bytes,
        taken_over: Dropped | None,
        answer: Fetch.ResponsePartition,
        now: Moment,
    ) -> None:
        log = following.log
        begins = not log.segments.all
        try:
            if records:
                if taken_over is not None:
                    log.take_over_dropped(taken_over)
                log.append_replicated(memoryview(records), leader_epoch=following.leader_epoch, now=now)
            moved = following.took(answer.high_watermark, now.boot_ms)
            if answer.log_start_offset > log.offsets.start:
                log.delete_records_before(min(answer.log_start_offset, log.offsets.end))
                moved = True
        except ProtocolError as damage:
            self._rooms.reports.report(logging.ERROR, f"{partition.name}: broker {self.leader} sent records: {damage}")
            self._have_leader_look(partition, following)
            self._rest(partition, self._rooms.image.settings.replica_fetch_backoff_ms, now)
            return
        except StorageFailure as failure:
            self._failed(failure)
            self._rooms.reports.failed_write(failure)
            self._rest(partition, self._rooms.image.settings.replica_fetch_backoff_ms, now)
            return
        if partition in self._rooms.hosted.withheld:
            self._rooms.withheld.let_go(partition)
        if moved and partition.waits.readers:
            partition.waits.wake_readers(now)
        if not records:
            return
        partition.appended_bytes += len(records)
        if log.segments.closing or (begins and log.segments[0].base_offset > log.offsets.start):
            # Until a checkpoint has the start and the leader epochs of a log that begins behind its start, the log is
            # in doubt after a crash, and is filled once more.
            self._rooms.checkpoints.soon()
        self._rooms.flushes.appended(partition, log, now)
        owner = self._got_records(partition, now)
        owner._throttle(partition, len(records), now)
        if not following.durable:
            owner._wait_for_disk(partition, following)
        elif owner is not self:
            owner.hurry_soon()
            owner._ask_soon()

    def _failed(self, failure: StorageFailure) -> None:
        if isinstance(failure, DiskFull):
            self._rooms.full_disk.found(failure)

    def _throttle(self, partition: Partition, length: int, now: Moment) -> None:
        """Leaves a throttled partition out of requests if it got more than the rate allows."""
        listed, image = partition.settings.follower_replication_throttled_replicas, self._rooms.image
        if not listed or image.node_id in partition.image.isr:
            return
        if is_listed(listed, partition.name.partition, image.node_id):
            throttle = self._rooms.throttle
            throttle.fetched(length, image.settings.follower_replication_throttled_rate, now.boot_ms)
            wait_ms = throttle.wait_ms(now.boot_ms)
            if wait_ms:
                self._rest(partition, min(wait_ms, LONGEST_THROTTLED_MS), now)

    def _have_leader_look(self, partition: Partition, following: FollowerReplica) -> None:
        """Asks the leader for checked batches: the leader finds its damage, and repairs it from another replica."""
        rooms, end = self._rooms, following.log.offsets.end
        request = sound_batches_request(
            rooms.image,
            rooms.serving,
            self.leader,
            partition,
            end,
            NEVER_MS,
            rooms.image.settings.replica_fetch_max_bytes,
        )
        rooms.peers.send(request, lambda outcome, now: None)

    def _wait_for_disk(self, partition: Partition, following: FollowerReplica) -> None:
        self._syncing[partition] = None

        def synced(error: ErrorCode) -> None:
            if self._syncing.pop(partition, partition) is None:
                self.hurry_soon()
                self._ask_soon()

        partition.waits.when_durable(following.log.offsets.end - 1, NEVER_MS, synced)

    # Pauses

    def _pause(self, reason: str) -> None:
        """Asks the leader again after a pause that grows."""
        back_off = BackOff(FIRST_PAUSE_MS, self._rooms.image.settings.replica_fetch_backoff_ms)
        self._failures += 1
        self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.PAUSED)
        self._rooms.reports.report(logging.INFO, f"followers of broker {self.leader}: {reason}")
        self._loop.after(back_off.pause_ms(self._failures), self._go_on)

    def _go_on(self, now: Moment) -> None:
        if self._asking is Asking.PAUSED:
            self._asking = FETCHER_MOVES.moved(self._name, self._asking, Asking.IDLE)
            self._ask_soon()

    def _rest(self, partition: Partition, rest_ms: int, now: Moment) -> None:
        """Leaves the partition out of requests for a while."""
        until_ms = self._resting[partition] = now.boot_ms + rest_ms
        self._loop.after(rest_ms, lambda _: self._rested(partition, until_ms))

    def _rested(self, partition: Partition, until_ms: int) -> None:
        if self._resting.get(partition) == until_ms:
            del self._resting[partition]
            self._ask_soon()

    # Refills and cuts

    def _refill(self, partition: Partition, following: FollowerReplica, why: Refill, now: Moment) -> None:
        """Sets the log aside; the next request fills it anew. Without room for both copies the log waits."""

        def ended(succeeded: bool) -> None:
            if not succeeded and partition in self._partitions:
                self._rest(partition, self._rooms.image.settings.replica_fetch_backoff_ms, self._loop.now)
            self._ask_soon()

        if not self._rooms.refills.begin(partition, following, why, ended):
            self._rest(partition, LONGEST_THROTTLED_MS, now)

    def _begin_cut(
        self,
        partition: Partition,
        following: FollowerReplica,
        offset: int,
        *,
        anew: bool,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins to cut the log. `then` follows a successful cut, in the same role."""

        def ended(succeeded: bool) -> None:
            if succeeded and partition.role.following is following:
                then()
            elif not succeeded and partition in self._partitions:
                # The partition got its role again, which ended an earlier rest.
                self._rest(partition, self._rooms.image.settings.replica_fetch_backoff_ms, self._loop.now)
            self._ask_soon()

        self._rooms.cuts.begin(partition, following, offset, anew=anew, ended=ended)
