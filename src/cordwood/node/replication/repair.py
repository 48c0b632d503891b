"""Repairs damage on this broker's disk with batches of other replicas, one segment at a time.

Scrub, recovery and readers report damage to the `DamageBook`, and the book tells this room. The room chooses the
segment and the brokers to ask; `segment_repair.py` does the rest. A repair that fails is tried again after a pause that
grows; the reason is in the broker's log and in `cordwood topic describe`.

Only closed segments below the recovery point and the high watermark are repaired. Any replica can repair: a follower
asks its leader first, and a leader asks an in-sync follower.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.cluster.metadata.rows import ALL_DAMAGED, damaged_name
from cordwood.model.back_off import BackOff
from cordwood.model.errors import StorageFailure
from cordwood.node.replication.segment_repair import (
    Gone,
    InBackground,
    NotRepaired,
    Outcome,
    Repaired,
    RepairRooms,
    SegmentRepair,
)

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.log.directory.findings import Finding
    from cordwood.model.identifiers import TopicPartition
    from cordwood.model.moment import Moment
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.peers import Peers
    from cordwood.node.loop.reports import Reports
    from cordwood.node.loop.serving import Serving
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition

MOST_TOLD: Final = 200
"""The most damaged partitions that are named in the broker's registration."""
SOON_MS: Final = 100
"""Readers of a segment meet its damage at about the same time."""
BACK_OFF: Final = BackOff(5_000, 600_000)


class Place(NamedTuple):
    """A damaged segment."""

    partition: TopicPartition
    base_offset: int | None
    """None: the whole log is gone."""


class _Wait(Exception):
    """The reason why a segment is not repaired now."""


class _Pause(NamedTuple):
    reason: str
    failures: int
    until_ms: int


class Repair:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        damage: DamageBook,
        peers: Peers,
        serving: Serving,
        reports: Reports,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._damage = damage
        self._reports = reports
        self._rooms = RepairRooms(image, hosted, damage, peers, serving)
        self._working = False
        self._pauses: dict[Place, _Pause] = {}
        self._look_at_ms: int | None = None
        self._told: tuple[str, ...] = ()
        """The damaged partitions that the broker's registration names."""

    def begin(self, in_background: InBackground) -> None:
        self._rooms.background = in_background
        self.due()

    def stop(self) -> None:
        """Repairs nothing more: the broker stops, and the next start removes a copy that is not complete."""
        self._rooms.stopped = True

    def due(self) -> None:
        """Looks for damage soon."""
        self._look_in(SOON_MS)

    def brokers_changed(self) -> None:
        """Tries repairs again that failed: another broker may have the records. Pauses begin anew: otherwise brokers
        that come and go for some seconds would make the next pause ten minutes long."""
        if self._pauses:
            self._pauses = {place: _Pause(pause.reason, 0, 0) for place, pause in self._pauses.items()}
            self.due()

    def why_not(self, finding: Finding) -> str:
        """The reason why a finding is not repaired yet; empty if its repair is due or under way."""
        pause = self._pauses.get(Place(finding.partition, finding.segment_base_offset))
        return "" if pause is None else pause.reason

    def _look_in(self, delay_ms: int) -> None:
        at_ms = self._loop.now.boot_ms + delay_ms
        if self._rooms.background is None or self._rooms.stopped:
            return
        if self._look_at_ms is not None and self._look_at_ms <= at_ms:
            return
        self._look_at_ms = at_ms

        def look(now: Moment) -> None:
            if self._look_at_ms == at_ms:
                self._look_at_ms = None
                self._look(now)

        self._loop.after(delay_ms, look)

    def _tell(self, findings: Iterable[Finding]) -> None:
        """Tells the cluster which replicas are damaged: partitions are not moved to damaged replicas alone."""
        found = dict.fromkeys(self._hosted.get(*finding.partition) for finding in findings)
        names = [
            damaged_name(partition.topic_id, partition.name.partition)
            for partition in found
            if partition is not None and partition.replicated
        ]
        damaged = tuple(sorted(names)) if len(names) <= MOST_TOLD else (ALL_DAMAGED,)
        if damaged == self._told:
            return
        self._told = damaged

        def done(result: Exception | None) -> None:
            # The registration keeps the names, and a later renewal says them: they count as told.
            if isinstance(result, Exception):
                self._reports.failure(result)

        self._loop.effects.metadata(lambda writer: writer.registration.say_damaged(damaged), done)

    def _look(self, now: Moment) -> None:
        if self._working or self._rooms.stopped:
            return
        findings = self._damage.known()
        self._tell(findings)
        places = dict.fromkeys(Place(each.partition, each.segment_base_offset) for each in findings)
        self._pauses = {place: pause for place, pause in self._pauses.items() if place in places}
        for place in places:
            pause = self._pauses.get(place)
            if pause is not None and pause.until_ms > now.boot_ms:
                continue
            try:
                self._begin(place)
            except _Wait as reason:
                self._wait(place, str(reason))
            except StorageFailure as failure:
                self._reports.failed_write(failure)
                self._wait(place, str(failure))
            else:
                return
        if self._pauses:
            first_ms = min(pause.until_ms for pause in self._pauses.values())
            self._look_in(max(SOON_MS, first_ms - now.boot_ms))

    def _wait(self, place: Place, reason: str) -> None:
        before = self._pauses.get(place)
        failures = 1 if before is None else before.failures + 1
        self._pauses[place] = _Pause(reason, failures, self._loop.now.boot_ms + BACK_OFF.pause_ms(failures))

    def _begin(self, place: Place) -> None:
        """Begins the repair of a segment. Raises _Wait, StorageFailure."""
        partition = self._hosted.get(*place.partition)
        if partition is None:
            raise _Wait("this broker is no replica")
        if not partition.replicated:
            raise _Wait("the partition has no other replica")
        if place.base_offset is None:
            raise _Wait(
                "the whole log is gone: it is fetched anew when another replica leads and this one is not in sync"
            )
        if not partition.log_is_free or not self._logs.has_log(partition.name):
            raise _Wait("the log is being cut or compacted")
        donors = self._donors(partition)
        if not donors:
            raise _Wait("no other in-sync replica is running")
        log = partition.log
        if not log.replayed.ready:
            log.replayed.make_ready()
        if log.segments.replacing:
            raise _Wait("the disk refused to replace a segment: the next start of the broker finishes that")
        segment = next((each for each in log.segments if each.base_offset == place.base_offset), None)
        if segment is None:
            raise _Wait("the segment is gone")
        end_offset = log.segments.end_of(log.segments.place_of(place.base_offset))
        if segment is log.segments.active:
            # An append that would close the segment may never come, and only closed segments are replaced.
            if segment.size:
                log.roll()
            raise _Wait("the segment waits for a checkpoint")
        if segment in log.segments.closing or segment.rewrite_transactions or end_offset > log.offsets.recovery_point:
            raise _Wait("the segment waits for a checkpoint")
        if any(hole.end_offset > partition.high_watermark for hole in segment.holes):
            raise _Wait("the records are not known to be committed")
        self._working = claimed = partition.claim(self)
        assert claimed, f"{partition.name} was free"
        done = partial(self._ended, place, partition)
        SegmentRepair(self._rooms, partition, log, segment, end_offset, donors, done).begin()

    def _donors(self, partition: Partition) -> list[int]:
        """The brokers to ask, the leader first."""
        image, own = partition.image, self._image.node_id
        leader = self._image.leadership(image).leader
        found = dict.fromkeys(broker_id for broker_id in (leader, *image.isr) if broker_id != own)
        return [broker_id for broker_id in found if broker_id in self._image.brokers]

    def _ended(self, place: Place, partition: Partition, outcome: Outcome) -> None:
        partition.release(self)
        self._working = False
        self._look_in(SOON_MS)
        match outcome:
            case Repaired(findings, broker_ids):
                self._pauses.pop(place, None)
                self._damage.repaired_from(findings, broker_ids)
                partition.waits.wake_everybody(self._loop.now)
                data = self._damage.findings.to_bytes()
                self._rooms.in_background(lambda: self._damage.write(data), self._saved)
            case NotRepaired(reason, failure):
                self._wait(place, reason)
                self._reports.report(logging.WARNING, f"{partition.name}: damage is not repaired: {reason}")
                if failure is not None:
                    self._reports.failed_write(failure)
            case Gone():
                self._pauses.pop(place, None)

    def _saved(self, result: Exception | None) -> None:
        if isinstance(result, Exception):
            self._reports.failed_write(result)
