"""Bytes that rot on disks: single bytes of closed segments are flipped, until the broker repairs them.

Only committed records rot, below the saved recovery point, in topics whose acknowledgements mean the disk, and only
where another in-sync replica has a sound copy and no replica leaves: the repair must always succeed in the end.
Otherwise a move could remove the sound copy before the damage is found, or a replaced disk could take it. The flipped
byte is covered by the batch's checksum.

One kind of damage is left to the operator, as in docs/operations/damaged-records.md. A leader deletes the sound copies
for a DeleteRecords, and loses power before a damaged replica, the next leader, knows of it durably.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import CRC_POSITION, batches_in
from cordwood.segments.names import Suffix
from simulation.checkers.replica_history import PartitionHistory
from simulation.checkers.replicas import ReplicasChecker
from simulation.world.links import CLIENTS
from simulation.world.machine import Machine
from simulation.world.world import World

Key = tuple[TopicId, int]


class Place(NamedTuple):
    """A closed segment on one machine."""

    broker_id: int
    key: Key
    path: str
    base_offset: int
    end_offset: int


class FlippedByte(NamedTuple):
    place: Place
    position: int
    right: int
    """The byte as it was written."""
    base_offset: int
    """The start of the batch with the byte."""
    end_offset: int
    """The end of that batch."""

    def __str__(self) -> str:
        return f"byte {self.position} of {self.place.path} on broker {self.place.broker_id}"


class Rot:
    def __init__(self, world: World, checker: ReplicasChecker) -> None:
        self._world = world
        self._checker = checker
        self.flipped: list[FlippedByte] = []

    def strike(self, chance: random.Random) -> str:
        """Flips a byte on a machine that has a segment which may rot; returns a line for the transcript."""
        places = [place for machine in self._world.machines for place in self._places(machine)]
        if not places:
            return "fault: nothing can rot"
        place = chance.choice(places)
        platter = self._world.machine_of(place.broker_id).disk.platter
        content = platter.read_bytes(place.path)
        start, header = chance.choice(list(batches_in(content)))
        position = chance.randrange(start + CRC_POSITION, start + header.size)
        right = content[position]
        platter.corrupt(place.path, position, bytes([right ^ (1 << chance.randrange(8))]))
        self.flipped.append(FlippedByte(place, position, right, header.base_offset, header.next_offset))
        return f"fault: {self.flipped[-1]} flips, at offset {header.base_offset}"

    def _places(self, machine: Machine) -> Iterator[Place]:
        # Answers on their way to clients are compared with their files when they arrive.
        answers = [each for each in machine.network.answers if each.connection.source == CLIENTS]
        for partition in () if machine.life is None else machine.node.hosted:
            key = (partition.topic_id, partition.name.partition)
            history = self._checker.histories.get(key)
            if history is not None and self._may_rot(machine.broker_id, partition, history):
                for place in self._closed(machine.broker_id, key, partition, history.committed_end):
                    if not any(answer.carries(place.path) for answer in answers):
                        yield place

    def _may_rot(self, broker_id: int, partition: Partition, history: PartitionHistory) -> bool:
        """True if another replica can repair rot here."""
        row = history.row
        if row is None or row.removing or history.lost or not history.on_disk:
            return False
        if partition.settings.compacted or partition.role.being_cut:
            return False
        key = (partition.topic_id, partition.name.partition)
        log_start = 0 if partition.opened is None else partition.opened.offsets.start
        return broker_id in row.replicas and self._checker.has_sound_copy(key, broker_id, log_start)

    def _closed(self, broker_id: int, key: Key, partition: Partition, committed_end: int) -> Iterator[Place]:
        log = partition.opened
        if log is None:
            return
        limit = min(log.offsets.saved_recovery_point, committed_end, partition.high_watermark)
        rotten = [each.place for each in self.flipped if each.place.key == key]
        for number, segment in enumerate(log.segments):
            base, end = segment.base_offset, log.segments.end_of(number)
            if segment is log.segments.active or end > limit or base < log.offsets.start or not segment.size:
                continue
            if not any(base < each.end_offset and each.base_offset < end for each in rotten):
                yield Place(broker_id, key, segment.path(Suffix.LOG), base, end)

    def _is_there(self, flipped: FlippedByte) -> bool:
        """True if the wrong byte is still in a file of the log."""
        platter = self._world.machine_of(flipped.place.broker_id).disk.platter
        if not platter.exists(flipped.place.path):
            return False
        content = platter.read_bytes(flipped.place.path)
        return flipped.position < len(content) and content[flipped.position] != flipped.right

    def rotten_until(self, broker_id: int, key: Key) -> int:
        """The end of the last rotten segment of a replica; 0: all of it is sound."""
        return max(
            (
                each.place.end_offset
                for each in self.flipped
                if each.place.broker_id == broker_id and each.place.key == key and self._is_there(each)
            ),
            default=0,
        )

    def left(self) -> str:
        """Names a byte that is not repaired; empty if there is none."""
        return next((f"{each} is not repaired" for each in self.flipped if self._is_needed(each)), "")

    def _is_needed(self, flipped: FlippedByte) -> bool:
        """True if the byte is wrong, in a record that was not deleted."""
        history = self._checker.histories.get(flipped.place.key)
        replica = None if history is None else history.replicas.get(flipped.place.broker_id)
        return replica is not None and replica.start < flipped.end_offset and self._is_there(flipped)

    def deleted_elsewhere(self) -> Iterator[FlippedByte]:
        """The bytes that are not repaired, in records that all other replicas have deleted."""
        for flipped in self.flipped:
            if not self._is_needed(flipped):
                continue
            broker_id, history = flipped.place.broker_id, self._checker.histories[flipped.place.key]
            others = [replica for other, replica in history.replicas.items() if other != broker_id]
            if not any(replica.start <= flipped.base_offset < replica.end for replica in others):
                yield flipped
