"""The history of one replicated partition, from all its replicas and its row in the metadata store.

`PartitionHistory` remembers for every replica the batches that were seen in its log, and for the partition the batches
that were ever below a leader's high watermark: the committed ones. The history takes rows, sightings of replicas and
losses, and raises InvariantBroken at the first contradiction. The cost of a sighting grows with the changes since the
last one: only new batches are read, unless the log was cut.

The rules have numbers in messages, as in the specification of replication: 1 one leader per epoch, 2 same offset and
epoch, same record, 3 and 4 a leader has every committed record, 5 sets in order, 6 in-sync replicas have every
committed record, 7 ends in order, 8 no cut below the high watermark, 9 committed means min.insync.replicas, 11
contiguous sequences, 12 one partition epoch per write, 13 a leader has no record whose deletion was acknowledged, 14
committed records are cut only after a recorded loss.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.cluster.metadata.partitions import Leadership
from cordwood.cluster.metadata.rows import PartitionRow
from simulation.world.broken import InvariantBroken

SEQUENCES = 1 << 31


class Entry(NamedTuple):
    """One batch in a log."""

    base: int
    next: int
    epoch: int
    content: bytes
    """A digest of all its bytes."""
    producer: tuple[int, int] | None = None
    """Id and epoch of its idempotent producer."""
    first_sequence: int = -1
    last_sequence: int = -1


class Sighting(NamedTuple):
    """The state of one replica whose log is open."""

    life: int
    """The number of the broker's process."""
    log: int
    """A number of this opening of the log, which no other opening has."""
    leads: bool
    leader_epoch: int
    start: int
    end: int
    durable_end: int
    high_watermark: int
    last_stable_offset: int
    truncations: int
    min_insync_replicas: int
    isr: frozenset[int]
    """The in-sync set of the row from which the replica has its role."""


Read = Callable[[int], Sequence[Entry]]
"""Reads the batches of a log from an offset on, up to its end."""


@dataclass(slots=True)
class Replica:
    """The last sighting of one replica."""

    seen: Sighting | None = None
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    durable_end: int = 0
    agreed: int = 0
    """Up to this offset the log holds exactly the committed batches."""
    watermark_epoch: int = -1
    """The leader epoch in which its high watermark last moved."""
    excused: bool = False
    """True if the replica may have lost records by a fault: power under ack.durability=os, or its disk. Ends when the
    broker is registered without a fence again."""
    emptied: bool = False
    """True if the replica has lost its disk: it never leads while another candidate is left. Ends as `excused` does."""

    lost_end: int = 0
    """The end that counted when the replica lost its disk. A fetch from before the loss may wait at a leader that stood
    still, and has not heard of the loss either: the leader counts it."""

    def cut(self, end: int) -> None:
        """Forgets batches that may be gone."""
        while self.entries and self.entries[-1].next > end:
            self.entries.pop()
        self.end = min(self.end, end)
        self.durable_end = min(self.durable_end, end)
        self.agreed = min(self.agreed, self.entries[-1].next if self.entries else self.start, end)


class PartitionHistory:
    def __init__(self, name: str, *, on_disk: bool) -> None:
        """`on_disk`: the topic has ack.durability=disk."""
        self.name = name
        self.on_disk = on_disk
        self.replicas: dict[int, Replica] = {}
        self.row: PartitionRow | None = None
        self.leadership = Leadership(-1, -1)
        """The latest leadership of the rows."""
        self.committed: list[Entry] = []
        self.committed_end = 0
        self.deleted_before = 0
        """The latest log start that a client was told of by DeleteRecords."""
        self.lost = False
        """True if committed records were lost by faults that no protocol survives."""
        self._leaders: dict[int, tuple[int, int]] = {}
        """The broker and its life that led in an epoch."""
        self._led_by_row: dict[int, int] = {}
        """The broker that the rows named as the leader of an epoch."""
        self._records: dict[tuple[int, int], Entry] = {}
        """Every batch that was ever in a log, by base offset and epoch."""
        self._sequences: dict[tuple[int, int], int] = {}

    def _broken(self, rule: int, reason: str) -> InvariantBroken:
        return InvariantBroken(f"rule {rule}: {self.name}: {reason}")

    def counted_end(self, replica: Replica) -> int:
        """The end of a replica as `ack.durability` counts."""
        return replica.durable_end if self.on_disk else replica.end

    # Rows

    def written(self, row: PartitionRow, *, fresh: bool) -> None:
        """Takes a new row. `fresh`: the partition did not exist before."""
        before, self.row = self.row, row
        if not fresh and before is not None and row.partition_epoch != before.partition_epoch + 1:
            raise self._broken(12, f"partition epoch {row.partition_epoch} follows {before.partition_epoch}: {row}")
        replicas, isr = set(row.replicas), set(row.isr)
        for moved_away in self.replicas.keys() - replicas:
            del self.replicas[moved_away]
        in_order = isr <= replicas and set(row.elr) <= replicas and not isr & set(row.elr)
        if not in_order or (row.leader != -1 and row.leader not in isr):
            raise self._broken(5, f"leader {row.leader}, ISR {row.isr}, ELR {row.elr}, replicas {row.replicas}")

    def led(self, leadership: Leadership) -> None:
        """Takes the leadership that follows from the row and the broker epochs, after each change of either."""
        if leadership.epoch < self.leadership.epoch:
            raise self._broken(1, f"leader epoch {leadership.epoch} follows {self.leadership.epoch}")
        if leadership.leader != -1:
            first = self._led_by_row.setdefault(leadership.epoch, leadership.leader)
            if first != leadership.leader:
                raise self._broken(1, f"epoch {leadership.epoch} has leaders {first} and {leadership.leader}")
        self.leadership = leadership

    def check_in_sync(self) -> None:
        """Checks that every replica that may be elected has every committed record: the ISR, and the ELR (rule 6)."""
        if self.row is None:
            return
        for member in (*self.row.isr, *self.row.elr):
            replica = self.replicas.get(member) or self.replicas.setdefault(member, Replica())
            if replica.excused:
                continue
            has = min(self.counted_end(replica), replica.agreed)
            if has < self.committed_end:
                raise self._broken(
                    6, f"broker {member} may be elected and has {has} of {self.committed_end}: {self.row}, {self!r}"
                )

    # Replicas

    def saw(self, broker: int, seen: Sighting, read: Read) -> None:
        """Takes the state of one replica."""
        replica = self.replicas.get(broker) or self.replicas.setdefault(broker, Replica())
        before = replica.seen
        if before is not None and before.log != seen.log:
            before = None
        self._check_ends(broker, before, seen)
        if before is not None and seen.high_watermark > before.high_watermark:
            # The high watermark of a log that was just opened comes from the disk: an earlier leader sent it.
            replica.watermark_epoch = seen.leader_epoch
        begins_anew = before is None or before.truncations != seen.truncations or seen.end < before.end
        if begins_anew or before is None or seen.start > before.end:
            self._take_all(broker, replica, before, seen, read(seen.start))
        elif seen.end > before.end:
            self._take(broker, replica.entries, read(before.end))
        # One event may take a new in-sync set by the old min.insync.replicas, and then the new min.insync.replicas.
        needed = (
            seen.min_insync_replicas if before is None else min(before.min_insync_replicas, seen.min_insync_replicas)
        )
        replica.seen = seen
        replica.start, replica.end, replica.durable_end = seen.start, seen.end, seen.durable_end
        self._agree(replica)
        if seen.leads:
            self._leads(broker, replica, seen, needed)

    def _check_ends(self, broker: int, before: Sighting | None, seen: Sighting) -> None:
        if not seen.start <= seen.last_stable_offset <= seen.high_watermark <= seen.end:
            raise self._broken(7, f"broker {broker}: start <= stable <= high watermark <= end does not hold: {seen}")
        if before is None:
            return
        same_epoch = before.leader_epoch == seen.leader_epoch and before.leads == seen.leads
        if same_epoch and seen.leads and seen.high_watermark < before.high_watermark:
            raise self._broken(
                7, f"broker {broker}: the high watermark fell from {before.high_watermark} to {seen.high_watermark}"
            )

    def _take_all(
        self, broker: int, replica: Replica, before: Sighting | None, seen: Sighting, entries: Sequence[Entry]
    ) -> None:
        """Takes a log that was opened, cut or begun anew."""
        old, replica.entries = replica.entries, []
        self._take(broker, replica.entries, entries)
        common = replica.start
        for one, other in zip(
            (each for each in old if each.next > seen.start),
            (each for each in entries if each.next > replica.start),
            strict=False,
        ):
            if one != other:
                break
            common = one.next
        known = 0 if before is None else min(before.high_watermark, before.end)
        if seen.start <= common < known and any(common < each.next and each.base < known for each in old):
            self._check_recorded(broker, replica, common)
        # After a loss a replica may know a high watermark that is void.
        visible = min(known, replica.agreed) if self.lost else known
        if seen.start <= common < visible and any(common < each.next and each.base < visible for each in old):
            raise self._broken(8, f"broker {broker} was cut at {common}, below its high watermark: {before}, {self!r}")
        replica.agreed = min(replica.agreed, common)

    def _check_recorded(self, broker: int, replica: Replica, common: int) -> None:
        """Checks a replica that dropped records below its high watermark: its row must note a leader that may lack
        them, in a later epoch than the one in which the replica learned of the high watermark (rule 14)."""
        lossy_epoch = 0 if self.row is None else self.row.lossy_epoch
        if lossy_epoch <= replica.watermark_epoch:
            raise self._broken(
                14,
                f"broker {broker} was cut at {common}, below its high watermark of epoch {replica.watermark_epoch}, "
                f"and the last recorded loss is of epoch {lossy_epoch}: {self.row}, {self!r}",
            )

    def _take(self, broker: int, known: list[Entry], entries: Sequence[Entry]) -> None:
        for entry in entries:
            if known and (entry.base != known[-1].next or entry.epoch < known[-1].epoch):
                raise self._broken(2, f"broker {broker}: {entry} follows {known[-1]}")
            first = self._records.setdefault((entry.base, entry.epoch), entry)
            if first != entry:
                raise self._broken(2, f"broker {broker} has {entry} where another has {first}")
            known.append(entry)

    def _agree(self, replica: Replica) -> None:
        """Moves `agreed` up to the end of the part in which the log equals the committed batches."""
        committed, entries = self.committed, replica.entries
        first = max(replica.start, committed[0].base) if committed else replica.start
        replica.agreed = max(replica.agreed, min(first, self.committed_end))
        while replica.agreed < self.committed_end:
            one, other = _covering(committed, replica.agreed), _covering(entries, replica.agreed)
            if one is None:
                # The committed records here are unknown: given up for lost, kept after all, and deleted by a client.
                replica.agreed = committed[bisect_right(committed, replica.agreed, key=lambda entry: entry.base)].base
                continue
            if one != other:
                return
            replica.agreed = one.next

    # Leaders

    def _leads(self, broker: int, replica: Replica, seen: Sighting, needed: int) -> None:
        leader = (broker, seen.life)
        epoch_begins = seen.leader_epoch not in self._leaders
        if self._leaders.setdefault(seen.leader_epoch, leader) != leader:
            raise self._broken(
                1,
                f"in epoch {seen.leader_epoch} broker {broker} leads in life {seen.life}, and "
                f"{self._leaders[seen.leader_epoch]} (broker, life) has led",
            )
        if self._led_by_row.get(seen.leader_epoch, broker) != broker:
            raise self._broken(1, f"broker {broker} leads in epoch {seen.leader_epoch}, which is another's: {self.row}")
        deposed = seen.leader_epoch < self.leadership.epoch
        has = min(self.committed_end, seen.high_watermark) if deposed else self.committed_end
        # A leader that has not heard yet that it is deposed may have records, and their high watermark, that were lost
        # since: its successor lost power alone, under ack.durability=os.
        if replica.agreed < has and not (deposed and self.lost):
            raise self._broken(
                4, f"broker {broker} leads in epoch {seen.leader_epoch} with {replica.agreed} of {has}: {self!r}"
            )
        if seen.start < self.deleted_before and not deposed and not self.lost:
            raise self._broken(
                13, f"broker {broker} leads from {seen.start} on, and records before {self.deleted_before} were deleted"
            )
        if seen.high_watermark > self.committed_end and not (deposed and self.lost):
            self._commit(broker, replica, seen, 0 if self.lost and epoch_begins else needed)

    def _commit(self, broker: int, replica: Replica, seen: Sighting, needed: int) -> None:
        """Takes a new high watermark, over at least this many replicas. After a loss a new leader may recall records
        that were given up for lost, alone."""
        place = bisect_right(replica.entries, self.committed_end, key=lambda entry: entry.base)
        if place and replica.entries[place - 1].next > self.committed_end:
            place -= 1
        for entry in replica.entries[place:]:
            if entry.next > seen.high_watermark:
                break
            self._check_sequence(entry, replica)
            self.committed.append(entry)
            self.committed_end = entry.next
        for each in self.replicas.values():
            self._agree(each)
        safe_on = [
            number
            for number, each in self.replicas.items()
            # The log of a broker that is no longer a replica may still exist.
            if self.row is None or number in self.row.replicas
            # A fetch of a replica may arrive after the replica has lost the records that the fetch counts.
            if each.excused
            or min(each.agreed, self.counted_end(each)) >= self.committed_end
            or (number in seen.isr and each.lost_end >= self.committed_end)
        ]
        if len(safe_on) < needed:
            raise self._broken(
                9,
                f"broker {broker} committed up to {self.committed_end} with {safe_on} and "
                f"min.insync.replicas={needed}: {self.row}, {self!r}",
            )

    def _check_sequence(self, entry: Entry, leader: Replica) -> None:
        if entry.producer is None:
            return
        expected = self._sequences.get(entry.producer)
        if expected is not None and entry.first_sequence != expected and not self._never_saw(leader, entry.producer):
            raise self._broken(
                11, f"producer {entry.producer} goes on with {entry.first_sequence} instead of {expected}: {entry}"
            )
        self._sequences[entry.producer] = (entry.last_sequence + 1) % SEQUENCES

    def _never_saw(self, leader: Replica, producer: tuple[int, int]) -> bool:
        """True if the leader's log began anew above all batches of a producer, which were deleted: the leader does not
        know the producer (docs/decisions/forgotten-producers.md)."""
        last = next((entry for entry in reversed(self.committed) if entry.producer == producer), None)
        return last is not None and leader.entries[0].base >= last.next

    def committed_at(self, base: int) -> Entry | None:
        """The committed batch with this base offset."""
        entry = _covering(self.committed, base)
        return None if entry is None or entry.base != base else entry

    # Faults that may take records

    def stopped_cleanly(self, broker: int) -> None:
        """Takes the mark of a clean stop: all of the replica's log is synced."""
        replica = self.replicas.get(broker)
        if replica is not None:
            replica.durable_end = replica.end

    def lost_power(self, broker: int) -> None:
        """Takes a power cut: unsynced batches of this replica may be gone."""
        replica = self.replicas.get(broker)
        if replica is not None:
            replica.cut(replica.durable_end)
            self._may_have_lost(replica)

    def lost_disk(self, broker: int) -> None:
        """Takes an empty disk in the place of the replica's."""
        replica = self.replicas.get(broker)
        if replica is not None:
            replica.lost_end = self.counted_end(replica)
            replica.entries.clear()
            replica.start = replica.end = replica.durable_end = replica.agreed = 0
            replica.excused = replica.emptied = True

    def _may_have_lost(self, replica: Replica) -> None:
        if self.on_disk:
            return
        replica.excused = True
        members = [self.replicas.get(each) for each in (*self.row.isr, *self.row.elr)] if self.row else []
        if members and all(each is not None and each.excused for each in members):
            # All possible leaders have lost power: the synced records of the next leader are all that is left. Replicas
            # with an empty disk leave the sets, and do not lead.
            left = [each.agreed for each in members if each is not None and not each.emptied]
            self._lose(min(left, default=0))

    @property
    def without_candidates(self) -> bool:
        """True if no possible leader is left: all lost their storage, or their power under ack.durability=os."""
        row = self.row
        return row is not None and row.leader == -1 and not row.isr and not row.elr

    def accept_loss(self) -> None:
        """Takes an operator's decision that any replica may lead, whatever it lacks."""
        self.lost = True
        self._lose(0)

    def _lose(self, end: int) -> None:
        if end >= self.committed_end:
            return
        self.lost = True
        while self.committed and self.committed[-1].next > end:
            self.committed.pop()
        self.committed_end = self.committed[-1].next if self.committed else 0
        self._sequences.clear()
        for replica in self.replicas.values():
            replica.agreed = min(replica.agreed, self.committed_end)

    def unfenced(self, broker: int) -> None:
        """Ends the excuse of a broker: the controller has seen its possible loss."""
        replica = self.replicas.get(broker)
        if replica is not None:
            replica.excused = replica.emptied = False

    # The end

    def unconverged(self) -> str:
        """Names a reason why the replicas are not all in sync and equal; empty if they are."""
        row = self.row
        assert row is not None
        if self.leadership.leader == -1 or set(row.isr) != set(row.replicas) or row.elr or row.adding or row.removing:
            return f"{self.name} does not recover: {row}, {self!r}"
        left = [self.replicas.get(broker, Replica()) for broker in row.replicas]
        if self.lost and len({(each.start, each.end) for each in left}) == 1 and left[0].start == left[0].end:
            # All remaining records after a loss have been deleted: the logs are empty at the same offset.
            return ""
        for broker in row.replicas:
            replica = self.replicas.get(broker, Replica())
            if replica.agreed < self.committed_end or replica.end != self.committed_end:
                return f"{self.name}: broker {broker} differs after all: {self!r}"
        return ""

    def __repr__(self) -> str:
        replicas = {
            broker: f"[{each.start}, {each.end}), durable {each.durable_end}, agrees to {each.agreed}"
            + (", excused" if each.excused else "")
            for broker, each in sorted(self.replicas.items())
        }
        return f"{self.name} is committed to {self.committed_end} under {self.leadership}, replicas {replicas}"


def _covering(entries: list[Entry], offset: int) -> Entry | None:
    place = bisect_right(entries, offset, key=lambda entry: entry.base) - 1
    if place < 0 or entries[place].next <= offset:
        return None
    return entries[place]
