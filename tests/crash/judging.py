"""Compares what a broker serves after a damage with what its clients were told: served unchanged, or reported.

Reads batch by batch and compares checksums, as the docs ask of readers. A report is a line of the broker's log that
names the partition and offsets, an error at the offset, or a checksum that is wrong.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.damage import Damage
from tests.crash.ledger import GROUP, NO_POSITION, ORDERS, PARTITIONS, PAYMENTS, TABLE, Ledger, Outcome
from tests.crash.start_after_damage import Started
from tests.deadline import eventually

from cordwood.client.answers import EARLIEST, LATEST, Isolation
from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition as Partition
from cordwood.records.batch import batches_in, crc_is_right
from cordwood.records.control import AbortedRecords
from cordwood.records.records import records_in

_DAMAGED = re.compile(r"(\S+)-(\d+): offsets (\d+) to (\d+) are damaged")
_CUT = re.compile(r"(\S+)-(\d+): cut from offset (\d+) to ")
_SET_ASIDE = re.compile(r"/([^/\s]+)-(\d+)\.\d+-stray is set aside")
_OUTSIDE_OF_CRC = 17
_STORE = "metadata.sqlite"
_WAL_ALONE_S = 8.0
"""The store's log is the only place of a change for up to 5 s, and for as long as it takes to write the witness."""


@dataclass
class Served:
    """One partition as a reader sees it."""

    records: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)
    """By offset: key and value."""
    refused: set[int] = field(default_factory=set)
    start: int = 0
    end: int = 0


def serve(cluster: Cluster, partition: Partition) -> Served:
    """Everything that can be read; at damage one offset further."""
    served = Served()
    served.start = offset = cluster.list_offsets({partition: EARLIEST})[partition].offset
    served.end = cluster.list_offsets({partition: LATEST})[partition].offset
    while offset < served.end:
        try:
            fetched = cluster.fetch(partition, offset, max_wait_ms=0)
        except ClientError:
            served.refused.add(offset)
            offset += 1
            continue
        position = offset
        for place, header in batches_in(fetched.records):
            if not crc_is_right(fetched.records, place, header.size):
                served.refused.add(position)
                position += 1
                break
            if not header.control:
                for record in records_in(fetched.records[place : place + header.size]):
                    served.records.setdefault(record.offset, (record.key, record.value or b""))
            position = header.next_offset
        # Behind the last batch there may be nothing but what compaction took.
        offset = position if position > offset else served.end
    return served


def read_committed(cluster: Cluster, partition: Partition) -> list[bytes]:
    """The values of committed transactions, as a reader sees them that drops what the broker says was aborted."""
    offset = cluster.list_offsets({partition: EARLIEST})[partition].offset
    # Markers are written a moment after the decision.
    eventually(lambda: _all_ended(cluster, partition), what="the end of all transactions")
    end = cluster.list_offsets({partition: LATEST})[partition].offset
    values = []
    while offset < end:
        fetched = cluster.fetch(partition, offset, max_wait_ms=0, isolation=Isolation.READ_COMMITTED)
        aborted = AbortedRecords(fetched.aborted)
        for place, header in batches_in(fetched.records):
            assert crc_is_right(fetched.records, place, header.size)
            batch = fetched.records[place : place + header.size]
            if not aborted.skips(header, batch) and not header.control:
                values += [record.value or b"" for record in records_in(batch)]
        assert fetched.next_offset > offset, f"{partition} does not go on at {offset}"
        offset = fetched.next_offset
    return values


def _all_ended(cluster: Cluster, partition: Partition) -> bool:
    stable = cluster.list_offsets({partition: LATEST}, Isolation.READ_COMMITTED)[partition].offset
    return stable == cluster.list_offsets({partition: LATEST})[partition].offset


class Judge:
    """Judges one start. `problems` is what no report explains."""

    def __init__(
        self, broker: Started, ledger: Ledger, damage: Damage, pristine: Path, said: str, killed_s: float
    ) -> None:
        self._broker = broker
        self._ledger = ledger
        self._damage = damage
        self._pristine = pristine
        self._said = said
        self._killed_s = killed_s
        self.problems: list[str] = []

    def judge(self) -> list[str]:
        settings = ClientSettings(self._broker.bootstrap, retry_timeout_ms=3000)
        with Cluster(settings) as cluster:
            self._judge_topics(cluster)
            for topic, count in PARTITIONS.items():
                for index in range(count):
                    self._judge_partition(cluster, Partition(topic, index))
            said = self._said + self._broker.output()
            if not self._reported(said, PAYMENTS, "__transaction_state"):
                self._judge_transactions(cluster)
            if not self._reported(said, "__consumer_offsets"):
                self._judge_position(cluster)
        if not self._broker.alive:
            self.problems.append("the broker ended")
        return self.problems

    def _reported(self, said: str, *topics: str) -> bool:
        names = {match[1] for pattern in (_DAMAGED, _CUT, _SET_ASIDE) for match in pattern.finditer(said)}
        return bool(names & set(topics))

    def _judge_topics(self, cluster: Cluster) -> None:
        there = cluster.topics()
        for name, wanted in self._ledger.topics.items():
            age_s = self._killed_s - self._ledger.told_s[name]
            if self._damage.file.name.startswith(_STORE) and age_s < _WAL_ALONE_S:
                continue
            if wanted and name not in there and f"{name}-0" not in self._said + self._broker.output():
                self.problems.append(f"topic {name} is gone without a word")
            if not wanted and name in there:
                self.problems.append(f"topic {name}, which was deleted, is back")

    def _judge_partition(self, cluster: Cluster, partition: Partition) -> None:
        acked = self._ledger.acked[partition.topic, partition.partition]
        try:
            served = serve(cluster, partition)
        except (ClientError, KeyError) as failure:
            if acked and not self._lost(self._said + self._broker.output(), partition, 0):
                self.problems.append(f"{partition} cannot be read: {failure!r}")
            return
        said = self._said + self._broker.output()
        for offset, value in acked.items():
            if offset in served.records:
                if served.records[offset][1] != value and not self._base_offset_flipped(partition):
                    found = served.records[offset][1][:40]
                    self.problems.append(f"{partition} has {found!r} at offset {offset}, not {value[:40]!r}")
            elif offset not in served.refused and not self._may_be_compacted(partition, offset, served):
                self._missing(said, partition, offset, served)
        values = Counter(value for _, value in served.records.values())
        strange = [value for value in values if value not in self._ledger.sent]
        twice = [value for value, count in values.items() if count > 1]
        if strange:
            self.problems.append(f"{partition} has {strange[0][:40]!r}, which nobody sent")
        if twice and not self._base_offset_flipped(partition):
            self.problems.append(f"{partition} has {twice[0][:40]!r} and {len(twice) - 1} others twice")

    def _missing(self, said: str, partition: Partition, offset: int, served: Served) -> None:
        if self._lost(said, partition, offset) or self._base_offset_flipped(partition):
            return
        self.problems.append(f"{partition} has nothing at offset {offset} (serves {served.start} to {served.end})")

    def _may_be_compacted(self, partition: Partition, offset: int, served: Served) -> bool:
        if partition.topic != TABLE:
            return False
        latest = [key for key, last in self._ledger.last_of_key.items() if last == offset]
        if not latest:
            return True
        return any(key == latest[0] and later > offset for later, (key, _) in served.records.items())

    def _lost(self, said: str, partition: Partition, offset: int) -> bool:
        for match in _DAMAGED.finditer(said):
            if (match[1], int(match[2])) == partition and int(match[3]) <= offset <= int(match[4]):
                return True
        for match in _CUT.finditer(said):
            if (match[1], int(match[2])) == partition and int(match[3]) <= offset:
                return True
        return any((match[1], int(match[2])) == partition for match in _SET_ASIDE.finditer(said))

    def _is_damaged_log(self, partition: Partition) -> bool:
        return self._damage.file.parent.name == str(partition) and self._damage.file.suffix == ".log"

    def _base_offset_flipped(self, partition: Partition) -> bool:
        """The offset of a batch is outside of its checksum: readers believe it until the scrub has passed."""
        if not self._is_damaged_log(partition) or self._damage.kind != "flip":
            return False
        place = int(self._damage.detail.split("byte ")[1].split()[0])
        data = (self._pristine / self._damage.file).read_bytes()
        return any(start <= place < start + _OUTSIDE_OF_CRC for start, _ in batches_in(data))

    def _judge_transactions(self, cluster: Cluster) -> None:
        partitions = [Partition(PAYMENTS, index) for index in range(PARTITIONS[PAYMENTS])]
        seen = Counter(value for partition in partitions for value in read_committed(cluster, partition))
        for name, outcome in self._ledger.transactions.items():
            counts = [seen[value] for value in self._ledger.written[name]]
            wrong = {
                Outcome.COMMITTED: counts != [1, 1, 1],
                Outcome.ABORTED: counts != [0, 0, 0],
                Outcome.IN_DOUBT: counts not in ([0, 0, 0], [1, 1, 1]),
            }[outcome]
            if wrong:
                self.problems.append(f"transaction {name} is {outcome.value}, its records are seen {counts} times")

    def _judge_position(self, cluster: Cluster) -> None:
        found = cluster.committed(GROUP).get(Partition(ORDERS, 0), NO_POSITION)
        if found not in self._ledger.positions:
            self.problems.append(f"the group's position is {found}, not one of {self._ledger.positions}")
