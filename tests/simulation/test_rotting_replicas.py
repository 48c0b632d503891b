"""Seeds: bytes rot on replicas while brokers are killed, lose power and change leaders. No replica keeps damage, and
none loses or changes a record."""

import random

import pytest
from simulation.checkers.content import read_batches
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.seeds import seeds
from tests.simulation.test_repair_on_machines import repairs, segments
from tests.simulation.test_replication_on_machines import (
    ALL,
    ROUND_MS,
    TOPIC,
    begin_produce,
    create,
    elect,
    image,
    log,
    told,
)

from cordwood.records.batch import batches_in
from cordwood.segments.names import Suffix, segment_file_name


class Story:
    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        settings = {
            "log.flush.offset.checkpoint.interval.ms": "700",
            "log.scrub.interval.ms": "5000",
            "replica.lag.time.max.ms": "5000",
        }
        patience = (lambda: chance.randint(1, 6)) if seed % 2 else None
        self.world = World(seed=seed, settings=settings, machines=3, scrubbed=True, patience=patience).start()
        self.world.settle()
        create(self.world, segment_bytes=str(chance.choice((500, 900, 2000))))
        self.rotten: set[int] = set()
        """Base offsets of segments that rot on some replica: a second copy of a record stays sound."""
        self.written = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.chance.choice((self.produce, self.produce, self.produce, self.rot, self.rot, self.kill, self.move))()
            self.world.advance(self.chance.choice((10, 300, ROUND_MS, 15_000)))

    def leader(self) -> int:
        return image(self.world).leader

    def produce(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            values = [b"%05d" % (self.written + number) * self.chance.randint(1, 40) for number in range(2)]
            sent = begin_produce(self.world, self.leader(), *values)
            self.world.advance(100)
            if sent.answered and told(sent) == "NONE":
                self.written += 2

    def rot(self) -> None:
        broker_id = self.chance.choice(ALL)
        closed = [each for each in log(self.world, broker_id).segments.all[:-1] if each.base_offset not in self.rotten]
        if not closed:
            return
        segment = self.chance.choice(closed)
        disk = self.world.machine_of(broker_id).disk
        path = f"{DATA_DIRECTORY}/{TOPIC}-0/{segment_file_name(segment.base_offset, Suffix.LOG)}"
        size = self.chance.choice((1, 1, 2, 40, 512))
        position = self.chance.randrange(segment.size)
        batch = max(start for start, _ in batches_in(disk.platter.read_bytes(path)) if start <= position)
        if 10 <= position - batch < 16:
            return  # no checksum covers the leader epoch of a batch
        before = disk.platter.read_bytes(path)[position : position + size]
        disk.platter.corrupt(path, position, bytes([before[0] ^ 0x55]) + self.chance.randbytes(len(before) - 1))
        self.rotten.add(segment.base_offset)

    def kill(self) -> None:
        machine = self.world.machine_of(self.chance.choice(ALL))
        self.chance.choice((machine.kill, machine.lose_power, machine.stop))()
        self.world.advance(self.chance.choice((10, 1000)))
        machine.start()

    def move(self) -> None:
        elect(self.world, self.chance.choice(image(self.world).isr))

    def end(self) -> None:
        self.world.advance(300_000)
        damage = {broker_id: log(self.world, broker_id).reports.damage for broker_id in ALL}
        assert damage == {broker_id: [] for broker_id in ALL}
        self.repairs = sum(len(repairs(self.world, broker_id)) for broker_id in ALL)
        contents = [b"".join(segments(self.world, broker_id)) for broker_id in ALL]
        assert contents[0] == contents[1] == contents[2]
        assert sum(header.record_count for header, _ in read_batches(log(self.world, 1))) >= self.written
        self.world.kill()


@pytest.mark.parametrize("seed", seeds(5))
def test_replicas_that_rot_mend_each_other(seed: int) -> None:
    story = Story(seed)
    story.play(25)
    story.end()
    assert bool(story.repairs) == bool(story.rotten)
