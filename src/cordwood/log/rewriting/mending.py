"""Mends a closed segment with holes: writes a sound copy beside it, with another replica's batches in the holes.

The copy has the segment's own sound batches, byte for byte, and in each hole the batches that another replica has at
these offsets. The copy is read back from the disk before it takes the segment's place (`replacement.py`), so a crash
leaves the old segment or the whole copy. docs/decisions/repair.md says why the rules of `Filling` are enough.

A `SegmentMending` runs in steps in any thread, one step at a time, beside appends, retention and compaction of other
segments. If the segment is removed meanwhile, a step fails with StorageFailure or FileNotFoundError.
"""

from typing import Final

from cordwood.log.parts.holes import Hole
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.parts.report import LogReports
from cordwood.log.parts.saved_state import SavedState
from cordwood.log.parts.segment import SEGMENT_SUFFIXES, Segment
from cordwood.log.parts.segments import LogSegments
from cordwood.log.reading.reading import Search
from cordwood.log.reading.scrubbing import CHUNK_BYTES, ColdFile, confirm
from cordwood.model.errors import DamagedLog
from cordwood.records.batch import CRC_START, MAGIC, BatchHeader, Buffer, batches_in, crc_is_right, read_header
from cordwood.records.checksum import crc32c
from cordwood.records.control import known_marker_in
from cordwood.segments.damaged import DamagedIndex
from cordwood.segments.filesystem import Readable, remove_if_there
from cordwood.segments.indexes import SegmentIndexes
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Stage, Suffix, segment_file
from cordwood.segments.scan import SegmentScan
from cordwood.segments.transaction_index import TransactionIndex

WRITE_BYTES: Final = 1024 * 1024


class Misfit(Exception):
    """The reason why batches of another replica cannot fill a hole."""


class Filling:
    """Checks batches of another replica that are to fill one hole.

    Two replicas have the same record at the same offset of the same leader epoch, so each batch must have a right CRC
    and the epoch that this log's history has at its offset. Compaction may have left less on one replica than on the
    other. So the batches must have every offset of the hole, in a log that was never compacted; or the damaged bytes
    must vouch for each batch: at its place they still have its checksum, or its content.
    """

    def __init__(self, hole: Hole, damaged: Readable, epochs: LeaderEpochs, *, may_have_gaps: bool) -> None:
        """`damaged`: the file with the hole. `epochs`: the history of this log; the object belongs to this filling."""
        self.hole = hole
        self.next_offset = hole.first_offset
        self._damaged = damaged
        self._epochs = epochs
        self._every_offset = not may_have_gaps
        self._vouched = True
        self._bytes = 0

    @property
    def complete(self) -> bool:
        """True if the batches so far fill the hole."""
        if self._every_offset and self.next_offset == self.hole.end_offset:
            return True
        return self._vouched and 0 < self._bytes == self.hole.end_position - self.hole.position

    @property
    def empty(self) -> bool:
        return self._bytes == 0

    def take(self, batches: Buffer) -> list[tuple[int, BatchHeader]]:
        """Position and header of each of the next batches. Raises Misfit if they cannot fill the hole."""
        if not batches:
            raise Misfit("it has no batch at these offsets: one of the replicas was compacted further than the other")
        found = list(batches_in(batches))
        if not found or found[-1][0] + found[-1][1].size != len(batches):
            raise Misfit("its answer does not consist of whole batches")
        for position, header in found:
            self._check(batches, position, header)
            at = self._bytes
            self._bytes += header.size
            self._every_offset &= header.base_offset == self.next_offset
            self._vouched &= self._vouches(at, header)
            self.next_offset = header.next_offset
            if not self._every_offset and not self._vouched:
                raise Misfit(
                    f"it has another batch at offsets {header.base_offset} to {header.last_offset}: one of the "
                    "replicas was compacted further than the other"
                )
        if self.next_offset == self.hole.end_offset and not self.complete:
            raise Misfit("its batches have another size: one of the replicas was compacted further than the other")
        return found

    def _check(self, batches: Buffer, position: int, header: BatchHeader) -> None:
        base_offset, hole = header.base_offset, self.hole
        if header.magic != MAGIC or header.last_offset_delta < 0 or not crc_is_right(batches, position, header.size):
            raise Misfit(f"its batch at offset {base_offset} is damaged as well")
        if base_offset < self.next_offset or header.next_offset > hole.end_offset:
            raise Misfit(
                f"its batch has offsets {base_offset} to {header.last_offset} where {self.next_offset} to "
                f"{hole.end_offset - 1} are missing"
            )
        # The history begins at the log's start, which may be within the batch. A batch has one epoch.
        epoch = self._epochs.epoch_at(header.last_offset)
        if header.partition_leader_epoch != epoch:
            raise Misfit(
                f"its batch at offset {base_offset} is of leader epoch {header.partition_leader_epoch}, and this log's "
                f"history has epoch {epoch} there"
            )

    def _vouches(self, at: int, header: BatchHeader) -> bool:
        """True if the damaged bytes at this place show that this very batch was there."""
        position = self.hole.position + at
        if position + header.size > self.hole.end_position:
            return False
        own = self._damaged.read(position, header.size)
        if len(own) < header.size:
            # The file was cut short under the running broker.
            return False
        claimed = read_header(own)
        if claimed.crc == header.crc and claimed.batch_length == header.batch_length:
            return True
        return bool(crc32c(memoryview(own)[CRC_START:]) == header.crc)


class SegmentMending:
    """The mending of one segment: `copy` up to a hole, `fill` the hole, and so on; then `finish` and `verify`."""

    def __init__(self, segments: LogSegments, segment: Segment, end_offset: int, epochs: LeaderEpochs) -> None:
        """`segment` is closed, and was examined: its holes are known. `epochs` are a copy of the log's."""
        self.filling: Filling | None = None
        """The hole that has to be filled next, once `copy` has come to it."""
        self.spoilt = False
        """True if half of a hole was filled with batches of a replica that does not have the rest."""
        self._segment = segment
        self._end_offset = end_offset
        self._epochs = epochs
        self._may_have_gaps = segments.may_have_gaps
        self._interval_bytes = segments.settings.index_interval_bytes
        self._filesystem, self._directory = segments.directory.filesystem, segments.directory.path
        self._source = ColdFile(segment.file)
        self._holes = list(reversed(segment.holes))
        self._scan = self._scan_from(0, segment.base_offset)
        self._indexes = SegmentIndexes(segment.base_offset, self._interval_bytes)
        self._aborts: list[int] = []
        self._batches = self._size = 0
        self._pending = bytearray()
        self._file = self._filesystem.open(self._path(Suffix.LOG), create=True)
        self._file.truncate(0)

    @property
    def complete(self) -> bool:
        """True if all of the segment is copied or filled."""
        return not self._holes and self._scan.position >= self._segment.size

    def copy(self, max_bytes: int, max_batches: int) -> None:
        """Copies sound batches up to the next hole, which becomes `filling`, or to the end. Raises DamagedLog at damage
        that was not known."""
        assert self.filling is None
        scan, started = self._scan, self._scan.position
        for number, (_, header) in enumerate(scan, 1):
            self._write(header, scan.batch)
            if number >= max_batches or scan.position - started >= max_bytes:
                return
        if scan.invalid is not None:
            raise DamagedLog(f"{self._segment.file.path} at byte {scan.invalid.position}: {scan.invalid.reason}")
        if self._holes:
            self.filling = self._filling()

    def fill(self, batches: bytes) -> None:
        """Fills the hole with these batches of another replica. Raises Misfit if they do not fit: then a third replica
        fills the hole, unless the mending is `spoilt`."""
        filling = self.filling
        assert filling is not None
        fresh = filling.empty
        try:
            found = filling.take(batches)
        except Misfit:
            self.filling, self.spoilt = self._filling(), not fresh
            raise
        for position, header in found:
            batch = memoryview(batches)[position : position + header.size]
            self._write(header, batch)
            self._note_abort(header, batch)
        if filling.complete:
            hole = self._holes.pop()
            self.filling, self._scan = None, self._scan_from(hole.end_position, hole.end_offset)

    def finish(self) -> bool:
        """Makes the copy durable, with its indexes. True if its transaction index lacks aborts that were in holes."""
        assert self.complete
        self._flush()
        self._file.sync()
        self._indexes.close()
        path = self._segment.path(Suffix.TXN_INDEX)
        aborted = self._filesystem.read_bytes(path) if self._filesystem.exists(path) else b""
        try:
            known = {entry.last_offset for entry in TransactionIndex.from_bytes(aborted).entries()}
            lacks_aborts = any(offset not in known for offset in self._aborts)
        except DamagedIndex:
            lacks_aborts = True
        for suffix, content in (
            (Suffix.INDEX, self._indexes.offsets.to_bytes()),
            (Suffix.TIME_INDEX, self._indexes.times.to_bytes()),
            (Suffix.TXN_INDEX, aborted),
        ):
            if content or suffix is not Suffix.TXN_INDEX:
                self._filesystem.replace(self._path(suffix), content)
            else:
                remove_if_there(self._filesystem, self._path(suffix))
        self._filesystem.sync_directory(self._directory)
        # The page cache would show bytes that the disk may not have.
        self._file.forget_cached()
        self._scan = SegmentScan(self._file, self._segment.base_offset, chunk_size=CHUNK_BYTES)
        return lacks_aborts

    def verify(self, max_bytes: int, max_batches: int) -> bool:
        """Reads the copy; True at its end. Raises DamagedLog if the copy differs from the written bytes."""
        scan, started = self._scan, self._scan.position
        for number, _ in enumerate(scan, 1):
            self._batches -= 1
            if number >= max_batches or scan.position - started >= max_bytes:
                return False
        whole = scan.invalid is None and scan.position == self._size and self._batches == 0
        if not whole or not (self._may_have_gaps or scan.next_offset == self._end_offset):
            raise DamagedLog(f"{self._file.path}: the copy cannot be read at byte {scan.position}")
        self._file.close()
        return True

    def abandon(self) -> None:
        """Removes the copy."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            remove_if_there(self._filesystem, self._path(suffix))

    def _path(self, suffix: Suffix) -> str:
        return segment_file(self._directory, self._segment.base_offset, suffix, Stage.CLEANED)

    def _scan_from(self, position: int, next_offset: int) -> SegmentScan:
        """The scan of the segment's own batches up to the next hole."""
        end_position = self._holes[-1].position if self._holes else self._segment.size
        return SegmentScan(
            self._source,
            self._segment.base_offset,
            position=position,
            next_offset=next_offset,
            end_position=end_position,
            chunk_size=CHUNK_BYTES,
        )

    def _filling(self) -> Filling:
        return Filling(self._holes[-1], self._source, self._epochs, may_have_gaps=self._may_have_gaps)

    def _write(self, header: BatchHeader, batch: memoryview) -> None:
        size = len(batch)
        self._indexes.note(self._size, size, header.last_offset, header.max_timestamp)
        self._size += size
        self._batches += 1
        self._pending += batch
        if len(self._pending) >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.append(bytes(self._pending))
            self._pending.clear()

    def _note_abort(self, header: BatchHeader, batch: memoryview) -> None:
        """Notes the marker of an aborted transaction."""
        marker = known_marker_in(header, batch) if header.transactional else None
        if marker is not None and not marker.committed:
            self._aborts.append(header.base_offset)


def read_sound(
    segments: LogSegments,
    offsets: LogOffsets,
    saved: SavedState,
    reports: LogReports,
    offset: int,
    end_offset: int,
    max_bytes: int,
) -> bytes:
    """Whole batches with a right CRC from the batch with the offset on, at most max_bytes but at least one batch, up to
    the batch that holds end_offset. Raises DamagedLog at a damaged batch, which is noted. In any thread."""
    found = Search(segments, offsets, saved, reports).run(offset, max_bytes, end_offset, True, True, False)
    if found is None:
        return b""
    batches = found.file.read(found.position, found.length)
    sound_bytes = 0
    for position, header in batches_in(batches):
        if not crc_is_right(batches, position, header.size):
            _know_damage(segments, reports, header.base_offset)
            if position == 0:
                raise DamagedLog(f"{segments.directory.partition}: the batch at offset {header.base_offset} is damaged")
            break
        sound_bytes = position + header.size
    return batches[:sound_bytes]


def _know_damage(segments: LogSegments, reports: LogReports, offset: int) -> None:
    """Examines the segment of a damaged batch, if it is closed."""
    place = segments.place_of(offset)
    segment = segments[place]
    if segment is not segments.active:
        confirm(segments, segment, segments.end_of(place))
        reports.note_holes(segment)
