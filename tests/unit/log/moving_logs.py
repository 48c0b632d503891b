"""A machine with two data directories and a log that moves between them."""

import uuid
from collections.abc import Callable, Iterator

from tests.moments import at
from tests.unit.log.log_making import NOW_MS, append, values

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.finishing_moves import UnfinishedMoves
from cordwood.log.directory.moving import LogMove, Phase, path_of_copy
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.segments.filesystem import File, Filesystem

A, B = "/a", "/b"
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=42)
SETTINGS = TopicSettings(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)


class Stopped(Exception):
    """The process was killed, or the power cut."""


class Disk(CrashingFilesystem):
    """Stops the process before its n-th change."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.left: int | None = None
        self.changes = 0

    def change(self) -> None:
        """Is called before each change."""
        self.changes += 1
        if self.left is not None:
            if not self.left:
                raise Stopped
            self.left -= 1

    def take(self, count: int, path: str) -> None:
        self.change()
        super().take(count, path)

    def count_sync(self, path: str) -> None:
        self.change()
        super().count_sync(path)

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self.change()
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        self.change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.change()
        super().remove(path)

    def make_directory(self, path: str) -> None:
        self.change()
        super().make_directory(path)


class Machine:
    """Two data directories, and the promises that were made about one log."""

    def __init__(self, disk: Filesystem) -> None:
        self.disk = disk
        self.done: list[str] = []
        self.written: list[bytes] = []
        """The values of all records, by offset."""
        self.promised = 0
        """The end of the records that were acknowledged."""
        self.start()

    def start(self, partition: TopicPartition = ORDERS, settings: TopicSettings = SETTINGS) -> None:
        directories = [DataDirectory(self.disk, path) for path in (A, B)]
        for directory in directories:
            directory.take()
        self.done = UnfinishedMoves(directories, all_present=True).finish().words
        for directory in directories:
            directory.open()
        self.a, self.b = directories
        (self.home,) = [each for each in directories if each.has_log(partition)] or [self.a]
        self.log = self.home.open_log(partition, TOPIC_ID, settings, at(NOW_MS))

    def write(self, count: int = 3, *, flushed: bool = True) -> None:
        for value in (f"{len(self.written) + number}".encode().ljust(100, b".") for number in range(count)):
            self.written.append(value)
            append(self.log, value)
        if flushed:
            self.flush()

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.home.note_durable([ticket])
            ticket.finish()
        self.promised = self.log.offsets.durable_end

    def checkpoint(self) -> None:
        self.home.checkpoint()

    def other(self) -> DataDirectory:
        return self.b if self.home is self.a else self.a

    def stop(self) -> None:
        self.a.close()
        self.b.close()

    def check(self) -> None:
        """All that was acknowledged is there, in order, with the producers, and nothing is there twice."""
        assert self.log.reports.damage == []
        found = values(self.log)
        start, end = self.log.offsets.start, self.log.offsets.end
        assert end >= self.promised, f"{end} is below the acknowledged {self.promised}"
        assert found == self.written[start:end]
        del self.written[end:]
        places = [f"{path}/{name}" for path in (A, B) for name in self.disk.list_directories(path)]
        assert places == ([self.log.directory.path] if self.log.segments.all else []), places


def moving(machine: Machine, between: Callable[[], None] = lambda: None) -> Iterator[LogMove]:
    """The steps of a move, as the duty of a node takes them."""
    path = path_of_copy(machine.other(), ORDERS, "0" * 32)
    move = LogMove(machine.home, machine.other(), machine.log, path)
    move.begin([machine.a, machine.b], ())()
    between()
    yield move
    while move.phase is Phase.COPYING:
        while (piece := move.next_piece()) is not None:
            between()
            piece.run()
            yield move
        machine.checkpoint()
        work = move.settle(NOW_MS)
        yield move
        work()
        between()
        yield move
        finish = move.switch(0)
        if finish is None:
            continue
        machine.home = move.target
        machine.promised = machine.log.offsets.durable_end
        between()
        condemned = finish()
        between()
        if condemned is not None:
            machine.disk.remove_tree(condemned)
        yield move


def move_whole(machine: Machine, between: Callable[[], None] = lambda: None) -> None:
    for _ in moving(machine, between):
        pass
