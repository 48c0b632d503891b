"""The scrub reads closed segments again and again, slowly, so that damage is known before a reader needs the records.

A pass goes through the partitions by name and through the closed segments of each partition, oldest first. After a
restart the pass goes on at its last place. Only segments below the recovery point are read, in small pieces with pauses
between them (`log.scrub.bytes.per.second`, and at most BATCHES_PER_SECOND), in a separate thread. Findings go to the
`DamageBook`. Segments with findings from before a restart are read first: they may have been repaired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.log.directory.findings import Place
from cordwood.log.reading.scrubbing import SegmentCheck, Step, confirm
from cordwood.model.errors import StorageFailure

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.log.log import Log
    from cordwood.log.parts.segment import Segment
    from cordwood.model.identifiers import TopicPartition
    from cordwood.model.moment import Moment
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.reports import Reports
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition

FIRST_AFTER_MS: Final = 10_000
"""The time for which the scrub leaves the disk to the start of the broker."""
STEP_BYTES: Final = 1024 * 1024
STEP_BATCHES: Final = 256
"""The most batches in one piece: they hold the interpreter for about a millisecond, and the loop may have to wait."""
BATCHES_PER_SECOND: Final = 8192
LOOK_AGAIN_MS: Final = 60_000
PARTITIONS_PER_TURN: Final = 32
SAVE_EVERY_MS: Final = 60_000

InBackground = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does the work (first argument) in the scrub's thread; calls the second in the loop with the result or exception."""


class _Target(NamedTuple):
    """The segment that is being read."""

    partition: Partition
    log: Log
    segment: Segment
    end_offset: int
    truncations: int

    @property
    def still_there(self) -> bool:
        """True if the log has this very segment, and has not been cut since."""
        return self.truncations == self.log.offsets.truncations and any(
            each is self.segment for each in self.log.segments
        )


class Scrub:
    """Reads all closed segments of a node, again and again, from `begin` on."""

    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        damage: DamageBook,
        reports: Reports,
    ) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._hosted = hosted
        self._damage = damage
        self._reports = reports
        self.bytes_read = 0
        """Bytes that the scrub has read since the broker started."""
        self._in_background: InBackground | None = None
        self._suspects: deque[Place] = deque()
        self._waiting: Iterator[Partition] | None = None
        """Partitions behind `_next` that this pass has not reached yet; None: no pass is under way."""
        self._next: Partition | None = None
        """The partition whose segments are read now."""
        self._target: _Target | None = None
        self._check: SegmentCheck | None = None
        self._saved_ms = 0
        self._saving = False

    def begin(self, in_background: InBackground, now: Moment) -> None:
        self._in_background = in_background
        self._saved_ms = now.boot_ms
        findings = self._damage.findings
        names = {partition.name for partition in self._hosted}
        findings.remove([finding for finding in findings.all() if finding.partition not in names])
        for finding in findings.all():
            if (base_offset := finding.segment_base_offset) is not None:
                self._suspects.append(Place(finding.partition, base_offset))
        self._again(now.boot_ms + FIRST_AFTER_MS)

    # Turns

    def _again(self, at_ms: int) -> None:
        self._loop.timers.at(at_ms, self._turn)
        self._loop.effects.wake()

    def _turn(self, now: Moment) -> None:
        """Reads a piece of the current segment, or looks for the next segment."""
        rate = self._image.settings.log_scrub_bytes_per_second
        self._save_if_due(now)
        if rate == 0:
            self._target = self._check = None
            self._again(now.boot_ms + LOOK_AGAIN_MS)
        elif self._target is not None:
            self._read_on(self._target, rate)
        elif self._choose(now):
            self._again(now.boot_ms)
        elif self._waiting is None:
            self._again(now.boot_ms + LOOK_AGAIN_MS)
        else:
            self._again(now.boot_ms + 1)

    def _choose(self, now: Moment) -> bool:
        """Chooses the next segment to read; False if there is none now. Looks at a few partitions only."""
        while self._suspects:
            place = self._suspects.popleft()
            suspected = self._hosted.get(*place.partition)
            if suspected is not None and self._take(suspected, place.base_offset, None):
                return True
        if self._waiting is None and not self._begin_pass(now):
            return False
        assert self._waiting is not None
        for _ in range(PARTITIONS_PER_TURN):
            partition = self._next
            if partition is None:
                self._end_pass(now)
                return False
            checked = self._damage.findings.checked
            after = checked.base_offset if checked is not None and checked.partition == partition.name else -1
            if self._take(partition, None, after):
                return True
            self._next = next(self._waiting, None)
        return False

    def _begin_pass(self, now: Moment) -> bool:
        findings = self._damage.findings
        if findings.pass_began_ms is None:
            due_ms = (findings.last_pass_began_ms or 0) + self._image.settings.log_scrub_interval_ms
            if findings.last_pass_began_ms is not None and due_ms > now.wall_ms >= findings.last_pass_began_ms:
                return False
            findings.pass_began_ms = now.wall_ms
            findings.checked = None
            findings.changed = True
        self._waiting = self._partitions_from(None if findings.checked is None else findings.checked.partition)
        self._next = next(self._waiting, None)
        return True

    def _partitions_from(self, start: TopicPartition | None) -> Iterator[Partition]:
        """All partitions by name, from `start` on. The partitions of a topic are looked up when their turn comes."""
        for topic in sorted(self._hosted.topics):
            if start is None or topic >= start.topic:
                first = start.partition if start is not None and topic == start.topic else 0
                partitions = self._hosted.topics.get(topic, {})
                yield from [partitions[index] for index in sorted(partitions) if index >= first]

    def _end_pass(self, now: Moment) -> None:
        findings = self._damage.findings
        findings.last_pass_began_ms, findings.last_pass_ended_ms = findings.pass_began_ms, now.wall_ms
        findings.pass_began_ms = findings.checked = self._waiting = self._next = None
        self._save(now)

    def _take(self, partition: Partition, base_offset: int | None, after: int | None) -> bool:
        """Begins with the segment at `base_offset`, or with the first segment behind `after`; False if there is
        none."""
        if not self._hosted.hosts(partition):
            return False
        if partition.role.being_cut or (partition.opened is None and not self._logs.has_log(partition.name)):
            return False
        try:
            log = partition.log
        except StorageFailure as failure:
            self._reports.failed_write(failure)
            return False
        for place, segment in enumerate(log.segments):
            end_offset = log.segments.end_of(place)
            if segment is log.segments.active or end_offset > log.offsets.recovery_point:
                return False
            if segment.base_offset == base_offset or (after is not None and segment.base_offset > after):
                self._target = _Target(partition, log, segment, end_offset, log.offsets.truncations)
                self._check = SegmentCheck(log.segments, segment, end_offset)
                return True
        return False

    def _read_on(self, target: _Target, rate: int) -> None:
        assert self._in_background is not None
        check = self._check
        assert check is not None
        max_bytes = min(STEP_BYTES, rate)

        def stepped(result: Step | Exception) -> None:
            now = self._loop.now
            if isinstance(result, Exception):
                self._give_up(target, result)
                self._again(now.boot_ms + 1)
                return
            self.bytes_read += result.bytes
            if not result.done:
                pass
            elif result.sound or not self._there(target):
                self._checked(target)
            else:
                self._confirm(target)
                return
            pause_s = max(result.bytes / rate, result.batches / BATCHES_PER_SECOND)
            self._again(now.boot_ms + max(1, int(pause_s * 1000)))

        self._in_background(lambda: check.step(max_bytes, STEP_BATCHES), stepped)

    def _confirm(self, target: _Target) -> None:
        """Finds the damaged offsets of a bad segment. Readers may need it soon, so it is read at once."""
        assert self._in_background is not None

        def confirmed(result: Exception | None) -> None:
            if isinstance(result, Exception):
                self._give_up(target, result)
            else:
                if self._there(target):
                    target.log.reports.note_holes(target.segment)
                    target.log.segments.loaded_indexes.used(target.segment)
                    self._damage.look_at(target.log)
                self._checked(target)
            self._save(self._loop.now)
            self._again(self._loop.now.boot_ms + 1)

        self._in_background(lambda: confirm(target.log.segments, target.segment, target.end_offset), confirmed)

    def _checked(self, target: _Target) -> None:
        """Ends the check of this segment. Forgets findings in the segment that the check did not confirm."""
        self._target = self._check = None
        if not self._there(target):
            return
        name, base_offset = target.partition.name, target.segment.base_offset
        holes = {hole.position for hole in target.segment.holes}
        self._damage.repaired(
            finding
            for finding in self._damage.findings.of(name)
            if finding.segment_base_offset == base_offset and finding.position not in holes
        )
        if self._next is target.partition:
            self._damage.findings.checked = Place(name, base_offset)
            self._damage.findings.changed = True

    def _give_up(self, target: _Target, failure: Exception) -> None:
        """Ends the check of a segment that could not be read: it was removed meanwhile, or the disk fails."""
        if self._there(target):
            self._reports.failed_write(failure)
        self._checked(target)

    def _there(self, target: _Target) -> bool:
        return self._hosted.hosts(target.partition) and target.still_there

    # On disk

    def _save_if_due(self, now: Moment) -> None:
        if now.boot_ms - self._saved_ms >= SAVE_EVERY_MS:
            self._saved_ms = now.boot_ms
            self._damage.gather()
            self._save(now)

    def _save(self, now: Moment) -> None:
        findings = self._damage.findings
        if not findings.changed or self._saving:
            return
        assert self._in_background is not None
        self._saved_ms, self._saving, findings.changed = now.boot_ms, True, False
        data = findings.to_bytes()

        def saved(result: Exception | None) -> None:
            self._saving = False
            if isinstance(result, Exception):
                findings.changed = True
                self._reports.failed_write(result)

        self._in_background(lambda: self._damage.write(data), saved)
