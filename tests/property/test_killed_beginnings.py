"""A process that dies between any two writes leaves a log that misses nothing: no damage, and no end in doubt.

Logs begin, are cut, begin anew, lose first files to retention, are set aside and deleted. Deaths keep all writes; power
cuts take unsynced ones.
"""

import random
import uuid

import pytest
from simulation.world.disk import ProcessDied, SimulatedDisk
from tests.moments import at
from tests.seeds import seeds
from tests.unit.log.log_making import NOW_MS, fill
from tests.unit.log.test_missing_first_segment import COMPACTED, KEEPS_ALL, KEEPS_LITTLE, refill

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.log import Log
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import remove_if_there

PATH = "/data"
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=42)
LIVES = 6
NOTE_COMES_BACK = 6297
"""Seed: a process dies in a cut, and a power cut brings back the note of a directory that was put back before."""


class Life:
    """One process on the disk, which does something random to one log."""

    def __init__(self, disk: SimulatedDisk, chance: random.Random) -> None:
        self.disk = disk
        self.chance = chance
        self.settings = (KEEPS_ALL, KEEPS_LITTLE, COMPACTED)[chance.randrange(3)]
        self.directory = DataDirectory(disk, PATH)
        self.directory.open()
        self.misses = self.directory.lacks(TOPIC_ID, ORDERS)
        self.log = self.open_log()

    def open_log(self) -> Log:
        return self.directory.open_log(ORDERS, TOPIC_ID, self.settings, at(NOW_MS))

    def act(self) -> None:
        often = (self.append, self.append, self.append)
        cuts = (self.begin_anew, self.cut, self.delete_records, self.retain)
        self.chance.choice((*often, *cuts, self.flush, self.checkpoint, self.set_aside, self.remove))()

    def append(self) -> None:
        if self.log.segments or self.chance.random() < 0.5:
            fill(self.log, self.chance.randint(1, 12))
        else:
            refill(self.log, self.log.offsets.end + 190)

    def flush(self) -> None:
        if (ticket := self.log.begin_flush()) is not None:
            ticket.sync()
            self.directory.note_durable([ticket])
            ticket.finish()

    def checkpoint(self) -> None:
        self.directory.checkpoint()

    def begin_anew(self) -> None:
        offsets = self.log.offsets
        offset = self.chance.choice((0, offsets.start, offsets.end, offsets.end + 50))
        self.directory.cuts.begin(self.log, offset, anew=True)()
        self.directory.cuts.end(self.log)

    def cut(self) -> None:
        offset = self.chance.randint(self.log.offsets.start, self.log.offsets.end)
        self.directory.cuts.begin(self.log, offset, anew=False)()
        self.directory.cuts.end(self.log)

    def delete_records(self) -> None:
        self.log.delete_records_before(self.chance.randint(self.log.offsets.start, self.log.offsets.end))

    def retain(self) -> None:
        self.log.apply_retention(at(NOW_MS), limit_offset=self.log.offsets.end)
        due, save = self.log.segments.take_due_deletions(NOW_MS), self.log.offsets.on_removal()
        save()
        for path in due:
            remove_if_there(self.disk, path)

    def set_aside(self) -> None:
        self.directory.set_logs_aside([(TOPIC_ID, ORDERS)], "a test", NOW_MS).run()
        self.log = self.open_log()

    def remove(self) -> None:
        """The replica moves to another broker, and comes back."""
        self.directory.condemn_logs([ORDERS], self.directory.forget_ends([(TOPIC_ID, ORDERS)])).run()
        self.log = self.open_log()


@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("seed", [*seeds(10), NOTE_COMES_BACK])
def test_a_log_whose_process_dies_at_any_write_misses_nothing(seed: int, power_fails: bool) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    for _ in range(LIVES):
        life = Life(disk, chance)
        log = life.log
        assert ([*log.reports.damage], log.offsets.end_in_doubt, life.misses) == ([], False, False)
        disk.die_within(60)
        try:
            for _ in range(chance.randint(1, 12)):
                life.act()
        except ProcessDied:
            pass
        disk.begin_life()
        if power_fails and chance.random() < 0.5:
            disk.lose_power()
