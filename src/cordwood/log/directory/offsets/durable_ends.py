"""Notes the durable end of each log after every fsync, and the first file of each log that begins, for the next start
(segments/end_witness.py).

Entries are appended to one of two files. A checkpoint of all logs begins the other file when it is taken, in the loop;
once its recovery points are saved, it empties the previous file, in any thread. Ends of the last life whose logs are
not open yet are carried over, and so are the first files of logs without a checkpoint. A failure to read or write the
witness is no failure of a start or a flush: a log without an entry is believed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.end_witness import (
    ENTRY_SIZE,
    FILE_NAMES,
    EndKey,
    decode_witness,
    encode_beginnings,
    encode_ends,
    end_key,
)
from cordwood.segments.filesystem import File, Filesystem, KnowsBoot

MAX_FILE_BYTES = 4 << 20
"""A file of this size is written anew with the last entry of each log, unless most entries are last ones."""


def do_nothing() -> None:
    """The end of a checkpoint that covers no noted end."""


class Begun(NamedTuple):
    """A log that may have no checkpoint yet."""

    first_file: int
    """The base offset of its first file."""
    offsets: LogOffsets | None = None
    """The offsets of the log; None: it is not open."""

    @property
    def covered(self) -> bool:
        """True if a checkpoint by now says that the log was there."""
        return self.offsets is not None and self.offsets.saved_recovery_point > self.first_file


class DurableEnds:
    """The ends of all logs of a data directory. Methods are called in the loop, functions that they return in any
    thread."""

    def __init__(self, filesystem: Filesystem, path: str, *, kept: bool) -> None:
        """`kept`: False for files that end with the process, whose witness is never read."""
        self._kept = kept
        self._boot = filesystem.boot_number() if isinstance(filesystem, KnowsBoot) else None
        """The number of the machine's boot; None: unknown, and no beginning is noted."""
        self._filesystem = filesystem
        self._path = path
        self._paths = [f"{path}/{name}" for name in FILE_NAMES]
        self._files: list[File] = []
        """The file that takes entries, then the other one. Empty until the first entry."""
        self._noted: dict[EndKey, int] = {}
        """The ends in the file that takes entries, and perhaps more."""
        self._inherited: dict[EndKey, int] = {}
        """Ends of the last life, of logs that are not open yet."""
        self._begun: dict[EndKey, Begun] = {}
        """Logs that began in this boot of the machine, and that may have no checkpoint yet."""
        self._durable = False
        """True if all inherited ends are synced. A checkpoint copies those that are left."""

    def read(self) -> list[str]:
        """Reads the ends that the last life noted; returns the faults of the files."""
        contents, problems = [], []
        for path in self._paths:
            try:
                contents.append(self._filesystem.read_bytes(path))
            except FileNotFoundError:
                continue
            except StorageFailure as failure:
                problems.append(f"{failure}: a log that lost its end may be taken for whole")
        self._inherited, first_files = decode_witness(contents, self._boot)
        self._begun = {key: Begun(first_file) for key, first_file in first_files.items()}
        self._noted = dict(self._inherited)
        return problems

    def of(self, topic_id: TopicId | None, partition: TopicPartition) -> int:
        """The end up to which a log was durable when the last life ended; 0: unknown."""
        return 0 if topic_id is None else self._inherited.get(end_key(topic_id, partition.partition), 0)

    def opened(self, topic_id: TopicId | None, partition: TopicPartition, offsets: LogOffsets) -> None:
        """Notes that a log is open: its next checkpoint covers the end that was inherited. Batches behind that end,
        which recovery made durable, are visible from now on."""
        if topic_id is not None:
            key = end_key(topic_id, partition.partition)
            if offsets.durable_end > max(offsets.recovery_point, self._inherited.pop(key, 0)):
                self._append({key: offsets.durable_end})

    def first_file(self, topic_id: TopicId | None, partition: TopicPartition) -> int | None:
        """The base offset of the first file of a log that began in this boot of the machine, and that the witness knows
        no checkpoint of; None: unknown. The file existed, if there was no power cut since."""
        begun = None if topic_id is None else self._begun.get(end_key(topic_id, partition.partition))
        return None if begun is None else begun.first_file

    def began(self, topic_id: TopicId | None, partition: TopicPartition, first_file: int, offsets: LogOffsets) -> None:
        """Notes that a log has its first file, unless a checkpoint says so."""
        if topic_id is None or self._boot is None:
            return
        key = end_key(topic_id, partition.partition)
        begun = Begun(first_file, offsets)
        known = self._begun.get(key)
        self._begun[key] = begun
        if not begun.covered and (known is None or known.first_file != first_file):
            self._append({}, {key: first_file})

    def deleted(self, topic_id: TopicId | None, partition: TopicPartition) -> None:
        """Notes no longer that a log of a deleted topic began: its id is never used again."""
        if topic_id is not None:
            self._begun.pop(end_key(topic_id, partition.partition), None)

    def _without_checkpoint(self) -> dict[EndKey, int]:
        """The first files of the logs that have no checkpoint yet; forgets all others."""
        self._begun = {key: begun for key, begun in self._begun.items() if not begun.covered}
        return {key: begun.first_file for key, begun in self._begun.items()}

    def make_durable(self) -> None:
        """Syncs the witness, waiting for the disk. Called when only the witness knows of a loss: if a power cut took
        the witness back before the next checkpoint, the lost offsets would be given out again, and records that were
        acknowledged behind them would be cut."""
        if self._durable:
            return
        with suppress(StorageFailure, FileNotFoundError):
            for file in self._opened_files():
                file.sync()
            self._filesystem.sync_directory(self._path)
            self._durable = True

    def note(self, tickets: Sequence[FlushTicket]) -> None:
        """Notes that the logs are durable up to the ends of these tickets."""
        self._append(
            {
                end_key(ticket.directory.topic_id, ticket.directory.partition.partition): ticket.end_offset
                for ticket in tickets
                if ticket.directory.topic_id is not None and not ticket.void
            }
        )

    def _append(self, ends: dict[EndKey, int], first_files: Mapping[EndKey, int] = MappingProxyType({})) -> bool:
        """Writes entries. False if the disk refuses; the caller reports it."""
        if not self._kept or not (ends or first_files):
            return True
        try:
            current, _ = self._opened_files()
            self._noted.update(ends)
            entries = encode_ends(ends) + encode_beginnings(first_files, self._boot or 0)
            if current.size + len(entries) <= max(MAX_FILE_BYTES, 2 * ENTRY_SIZE * len(self._noted)):
                current.append(entries)
            else:
                self._write_anew(current)
        except (StorageFailure, FileNotFoundError):
            return False
        return True

    def _write_anew(self, current: File) -> None:
        """Replaces the file, durably: entries that `make_durable` synced are never without a copy on disk."""
        beginnings = encode_beginnings(self._without_checkpoint(), self._boot or 0)
        self._filesystem.replace(current.path, encode_ends(self._noted) + beginnings)
        current.close()
        self._files[0] = self._filesystem.open(current.path)

    def _opened_files(self) -> list[File]:
        if not self._files:
            files = [self._filesystem.open(path, create=True) for path in self._paths]
            for file in files:
                # A torn entry would shift all entries behind it.
                file.truncate(file.size - file.size % ENTRY_SIZE)
            self._files = files
        return self._files

    def begin_checkpoint(self) -> Callable[[], None]:
        """Begins the other file. The returned function is called once the checkpoint is saved: its recovery points
        cover the entries so far, except those of logs that are not open."""
        if not self._files and not self._inherited and not self._begun:
            return do_nothing
        try:
            covered, other = self._opened_files()
        except (StorageFailure, FileNotFoundError):
            return do_nothing
        if other.size:
            # The previous checkpoint was not saved: this one covers the entries of both.
            covered = other
        else:
            self._files, self._noted = [other, covered], {}
        self._durable = False
        if not self._append(dict(self._inherited), self._without_checkpoint()):
            return do_nothing
        return lambda: _empty(covered)

    def unknown_to(self, known: Collection[EndKey]) -> list[EndKey]:
        """The inherited ends and beginnings of partitions that are not among these."""
        return [key for key in self._inherited.keys() | self._begun.keys() if key not in known]

    def begin_forget(self, gone: Iterable[EndKey] = ()) -> Callable[[], None]:
        """Empties the witness before a log is cut, or before the logs `gone` leave this directory: batches that were
        cut or moved away must not count as lost. The returned function makes that durable, in any thread."""
        for key in gone:
            self._inherited.pop(key, None)
            self._begun.pop(key, None)
        self._noted, self._durable = {}, False
        files = list(self._opened_files()) if self._kept else []
        for file in files:
            file.truncate(0)
        self._append(dict(self._inherited), self._without_checkpoint())

        def sync() -> None:
            for file in files:
                file.sync()

        return sync

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []


def _empty(file: File) -> None:
    # Entries that stay are true. The next checkpoint covers them as well.
    with suppress(StorageFailure):
        file.truncate(0)
