"""The repair of one damaged segment: examines it, writes a copy, asks other replicas, and puts the copy in its place.

`begin` calls `done` once, in a later event, with the outcome. All work that waits for the disk runs in the scrub's
thread, in small steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.log.reading.scrubbing import confirm
from cordwood.log.rewriting.mending import Misfit, SegmentMending
from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.node.loop.peers import PeerAnswer, PeerFailed, PeerOutcome
from cordwood.node.replication.asking_replicas import sound_batches_request
from cordwood.segments.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.findings import Finding
    from cordwood.log.log import Log
    from cordwood.log.parts.segment import Segment
    from cordwood.model.moment import Moment
    from cordwood.node.loop.peers import Peers
    from cordwood.node.loop.serving import Serving
    from cordwood.node.partitions.damage_book import DamageBook
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.wire.message_types.sound_batches import SoundBatches

ASKED_BYTES: Final = 1024 * 1024
STEP_BYTES: Final = 4 * 1024 * 1024
STEP_BATCHES: Final = 256
"""The most batches in one step: they hold the interpreter for about a millisecond."""

InBackground = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does the work (first argument) in the scrub's thread; calls the second in the loop with the result or exception."""


class Repaired(NamedTuple):
    findings: list[Finding]
    broker_ids: set[int]


class NotRepaired(NamedTuple):
    reason: str
    failure: Exception | None = None
    """A failure of this broker's disk, or of its code."""


class Gone(NamedTuple):
    """Nothing is left to repair: the segment is sound, or it is no longer the log's."""


Outcome = Repaired | NotRepaired | Gone


class RepairRooms:
    """The rooms that repairs use."""

    def __init__(
        self,
        image: ClusterImage,
        hosted: HostedReplicas,
        damage: DamageBook,
        peers: Peers,
        serving: Serving,
    ) -> None:
        self.image = image
        self.hosted = hosted
        self.damage = damage
        self.serving = serving
        self.peers = peers
        self.background: InBackground | None = None
        self.stopped = False
        """True if the broker stops: the next start removes a copy that is not complete."""

    def in_background(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        assert self.background is not None
        self.background(work, lambda result: None if self.stopped else done(result))


class SegmentRepair:
    """The repair of one segment, from the examination to the replacement."""

    def __init__(
        self,
        rooms: RepairRooms,
        partition: Partition,
        log: Log,
        segment: Segment,
        end_offset: int,
        donors: list[int],
        done: Callable[[Outcome], None],
    ) -> None:
        """`donors`: the brokers to ask, in this order."""
        self._rooms = rooms
        self._partition = partition
        self._log = log
        self._segment = segment
        self._end_offset = end_offset
        self._donors = donors
        self._done = done
        self._truncations = log.offsets.truncations
        self._findings: list[Finding] = []
        self._mending: SegmentMending | None = None
        self._refused: dict[tuple[int, int], str] = {}
        """The reason why a broker (second) cannot fill the hole at a position (first)."""
        self._brokers: set[int] = set()

    def begin(self) -> None:
        segments, segment, end_offset = self._log.segments, self._segment, self._end_offset
        self._in_background(lambda: confirm(segments, segment, end_offset), self._examined)

    def _in_background(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Does the work in the scrub's thread, then goes on if the segment is still there."""

        def done(result: Any) -> None:
            if not self._still_there:
                self._end(Gone())
            elif isinstance(result, Exception) and not isinstance(result, Misfit):
                self._end(NotRepaired(str(result), result))
            else:
                then(result)

        self._rooms.in_background(work, done)

    @property
    def _still_there(self) -> bool:
        return (
            self._rooms.hosted.hosts(self._partition)
            and not self._partition.role.being_cut
            and self._truncations == self._log.offsets.truncations
            and any(each is self._segment for each in self._log.segments)
        )

    def _examined(self, _: None) -> None:
        """Takes in the findings of another look at the segment."""
        damage, log, segment = self._rooms.damage, self._log, self._segment
        log.reports.note_holes(segment)
        log.segments.loaded_indexes.used(segment)
        damage.look_at(log)
        holes = {hole.position for hole in segment.holes}
        known = [each for each in damage.findings.of(log.partition) if each.segment_base_offset == segment.base_offset]
        damage.repaired(each for each in known if each.position not in holes)
        self._findings = [each for each in known if each.position in holes]
        if not segment.holes:
            self._end(Gone())
        elif any(hole.end_offset > self._partition.high_watermark for hole in segment.holes):
            self._end(NotRepaired("the records are not known to be committed"))
        else:
            self._begin_mending()

    def _begin_mending(self) -> None:
        segments, segment, end_offset = self._log.segments, self._segment, self._end_offset
        epochs = LeaderEpochs.from_bytes(self._log.replayed.leader_epochs.to_bytes())
        self._brokers = set()
        self._in_background(lambda: SegmentMending(segments, segment, end_offset, epochs), self._go_on_with)

    def _go_on_with(self, mending: SegmentMending) -> None:
        self._mending = mending
        self._go_on()

    def _go_on(self, _: None = None) -> None:
        mending = self._mending
        assert mending is not None
        if mending.filling is not None:
            self._ask()
        elif mending.complete:
            self._in_background(mending.finish, self._finished)
        else:
            self._in_background(lambda: mending.copy(STEP_BYTES, STEP_BATCHES), self._go_on)

    def _ask(self) -> None:
        """Asks a replica for the next batches of the hole. All batches of a hole come from the same replica."""
        mending = self._mending
        assert mending is not None
        filling = mending.filling
        assert filling is not None
        hole = filling.hole
        willing = [donor for donor in self._donors if (hole.position, donor) not in self._refused]
        if not willing:
            reasons = "; ".join(f"broker {donor}: {self._refused[hole.position, donor]}" for donor in self._donors)
            offsets = f"{hole.first_offset} to {hole.end_offset - 1}"
            self._end(NotRepaired(f"no replica has sound batches for offsets {offsets} ({reasons})"))
            return
        donor = willing[0]

        def answered(batches: bytes | Misfit) -> None:
            if not self._still_there:
                self._end(Gone())
            elif isinstance(batches, Misfit):
                self._refuse(donor, hole.position, batches, again=not filling.empty)
            else:
                self._in_background(lambda: _filled(mending, batches), lambda result: self._filled(donor, result))

        first_offset, start = filling.next_offset, self._log.offsets.start
        if first_offset < start < hole.end_offset:
            # DeleteRecords moved the log's start into a batch. Replicas give that batch for the offsets that they show.
            first_offset = start
        self._request(donor, first_offset, hole.end_offset, answered)

    def _filled(self, donor: int, result: Misfit | None) -> None:
        mending = self._mending
        assert mending is not None
        if isinstance(result, Misfit):
            assert mending.filling is not None
            self._refuse(donor, mending.filling.hole.position, result, again=mending.spoilt)
            return
        self._brokers.add(donor)
        self._go_on()

    def _refuse(self, donor: int, position: int, reason: Misfit, *, again: bool) -> None:
        """Fills the hole at this position with another replica's batches, `again` from the start of the segment."""
        self._refused[position, donor] = str(reason)
        if again:
            self._begin_mending()
        else:
            self._go_on()

    def _finished(self, lacks_aborts: bool) -> None:
        mending = self._mending
        assert mending is not None

        def verified(complete: bool) -> None:
            if complete:
                self._replace(lacks_aborts=lacks_aborts)
            else:
                self._finished(lacks_aborts)

        self._in_background(lambda: mending.verify(STEP_BYTES, STEP_BATCHES), verified)

    def _replace(self, *, lacks_aborts: bool) -> None:
        self._mending = None
        try:
            self._log.put_mended(self._segment.base_offset, lacks_aborts=lacks_aborts)
        except StorageFailure as failure:
            self._end(NotRepaired(str(failure), failure))
            return
        self._end(Repaired(self._findings, self._brokers))

    def _request(self, donor: int, first_offset: int, end_offset: int, done: Callable[[bytes | Misfit], None]) -> None:
        """Asks a replica for checked batches."""
        rooms = self._rooms
        request = sound_batches_request(
            rooms.image, rooms.serving, donor, self._partition, first_offset, end_offset, ASKED_BYTES
        )

        def answered(outcome: PeerOutcome[SoundBatches.Response], now: Moment) -> None:
            if rooms.stopped:
                return
            if isinstance(outcome, PeerFailed):
                done(Misfit(outcome.text))
                return
            assert isinstance(outcome, PeerAnswer)
            error = outcome.body.error_code
            done(outcome.body.batches if error == ErrorCode.NONE else Misfit(_in_words(error)))

        rooms.peers.send(request, answered)

    def _end(self, outcome: Outcome) -> None:
        """Ends with this outcome, and removes a copy that did not take the segment's place."""
        mending, self._mending = self._mending, None
        # The directory of a deleted topic is removed as a whole, and its path may belong to a new topic of that name.
        if mending is None or not self._rooms.hosted.hosts(self._partition):
            self._done(outcome)
        else:
            self._rooms.in_background(mending.abandon, lambda _: self._done(outcome))


def _filled(mending: SegmentMending, batches: bytes) -> Misfit | None:
    try:
        mending.fill(batches)
    except Misfit as misfit:
        return misfit
    return None


def _in_words(error: int) -> str:
    match error:
        case ErrorCode.CORRUPT_MESSAGE:
            return "its bytes are damaged as well"
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return "it does not have these offsets"
        case _:
            return f"it refuses with {ErrorCode(error).name}"
