"""Checks the replicas of all partitions after every step: the nodes' logs, and the rows in the metadata store.

After a step of a machine only those of its replicas are looked at whose ends moved. Every commit of the store is looked
at once. `PartitionHistory` judges.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from cordwood.cluster.metadata.partitions import Leadership
from cordwood.cluster.metadata.rows import (
    BROKER_EPOCHS,
    BROKERS,
    EVIDENCE,
    PARTITIONS,
    TOPIC_CONFIGS,
    TOPICS,
    PartitionRow,
    decode_broker,
    decode_overrides,
    decode_partition,
    decode_topic,
)
from cordwood.cluster.stores.interface import Event
from cordwood.log.log import Log
from cordwood.model.identifiers import TopicId
from cordwood.node.partitions.partition import Partition
from cordwood.records.batch import CONTROL_BIT, BatchHeader
from simulation.checkers.content import read_batches
from simulation.checkers.replica_history import Entry, PartitionHistory, Replica, Sighting
from simulation.world.broken import InvariantBroken
from simulation.world.machine import Machine
from simulation.world.world import World

Key = tuple[TopicId, int]


class ReplicasChecker:
    def __init__(self, world: World) -> None:
        self._world = world
        self._store = world.store
        self._revision = world.store._feed.revision
        self._broker_epochs: dict[int, int] = {}
        self._counts: dict[str, int] = {}
        """Partition counts by topic id as text."""
        self._names: dict[str, str] = {}
        self._on_disk: dict[str, bool] = {}
        self._rows: dict[str, dict[int, PartitionRow]] = {}
        self.histories: dict[Key, PartitionHistory] = {}
        self._lost_in: dict[int, int] = {}
        """The broker epoch in which a broker last lost its power or its disk."""
        self._led_from: dict[Key, dict[int, dict[int, int]]] = {}
        """The time at which a broker first led in an epoch, by the boot clock of each broker."""
        self._seen: dict[int, tuple[object, ...]] = {}
        """The last sighting of a log, by the log's number."""
        self._logs: dict[int, int] = {}
        """Numbers of logs by identity; `_kept` keeps the logs alive, so that no identity is used again."""
        self._kept: list[Log] = []
        self.rotten_until: Callable[[int, Key], int] = lambda broker, key: 0
        """The end of the part of a broker's replica in which bytes may be flipped. All of it was committed before."""
        self.looks = 0
        self.evidence = 0
        """The number of times that a broker wrote that connections to another were refused."""

    # After a step

    def look(self, machine: Machine) -> None:
        """Looks at the store, and at the replicas of one machine."""
        if self._store._feed.revision != self._revision:
            self._look_at_store()
        if machine.life is None:
            return
        self.looks += 1
        broker, life = machine.broker_id, machine.lives
        fails = bool(machine.disk.failing)
        with machine.disk.sound():
            for partition in machine.node.hosted:
                # The first use of a log reads its files, and a failing disk refuses that to the broker.
                if (log := partition.opened) is not None and (log.replayed.ready or not fails):
                    self._look_at(broker, life, partition, log)

    def _look_at(self, broker: int, life: int, partition: Partition, log: Log) -> None:
        if partition.settings.compacted:
            return  # compacted by each broker for itself
        number = self._logs.get(id(log))
        if number is None:
            number = self._logs[id(log)] = len(self._logs)
            self._kept.append(log)
        leading, offsets = partition.role.leading, log.offsets
        # The last stable offset moves with the high watermark or the end.
        moving = (
            partition.role.leader_epoch if leading is None else leading.leader_epoch,
            partition.role.leads and leading is not None,
            offsets.start,
            offsets.end,
            offsets.durable_end,
            partition.high_watermark,
            offsets.truncations,
            partition.settings.min_insync_replicas,
        )
        if self._seen.get(number) == moving:
            return
        key = (partition.topic_id, partition.name.partition)
        history = self.histories.get(key)
        if history is None:
            return  # deleted
        self._seen[number] = moving
        seen = Sighting(
            life,
            number,
            partition.role.leads and leading is not None,
            partition.role.leader_epoch if leading is None else leading.leader_epoch,
            offsets.start,
            offsets.end,
            offsets.durable_end,
            partition.high_watermark,
            partition.last_stable_offset,
            offsets.truncations,
            partition.settings.min_insync_replicas,
            frozenset(partition.image.isr),
        )
        if seen.leads and seen.leader_epoch not in (led_from := self._led_from.setdefault(key, {})):
            led_from[seen.leader_epoch] = {each.broker_id: each.clock.boot_ms for each in self._world.machines}
        if seen.leads and log.replayed.latest_epoch < seen.leader_epoch:
            raise InvariantBroken(
                f"rule 1: broker {broker} leads {partition.name} before it recorded its epoch: {seen}"
            )
        history.saw(broker, seen, lambda offset: self._entries(broker, key, log, offset))
        history.check_in_sync()

    def _entries(self, broker: int, key: Key, log: Log, offset: int) -> Sequence[Entry]:
        """The batches of a log from an offset on. A part with flipped bytes counts as the committed batches."""
        sound_from = max(offset, self.rotten_until(broker, key))
        committed = self.histories[key].committed if sound_from > offset else ()
        rotten = [each for each in committed if each.next > offset and each.base < sound_from]
        return rotten + [_entry(header, batch) for header, batch in read_batches(log, sound_from)]

    # The store

    def _look_at_store(self) -> None:
        commits = self._store._feed.since(self._revision + 1)
        if commits is None:
            raise InvariantBroken(f"the store forgot revision {self._revision + 1} before the checker saw it")
        for commit in commits:
            self._take_commit(commit.events)
        self._revision = self._store._feed.revision

    def _take_commit(self, events: Iterable[Event]) -> None:
        """Takes all changes of one revision: counts and settings before the rows that depend on them."""
        events = list(events)
        counts = dict(self._counts)
        touched: dict[Key, bool] = {}
        unfenced: dict[int, int] = {}
        registered = False
        for event in events:
            kind, rest = event.key.split("/", 1) if "/" in event.key else (event.key, "")
            if kind + "/" == BROKER_EPOCHS and event.value is not None:
                self._broker_epochs[int(rest)] = int(event.value)
                registered = True
            elif kind + "/" == BROKERS and event.value is not None:
                registered_row = decode_broker(event.key, event.value)
                if not registered_row.fenced:
                    unfenced[int(rest)] = registered_row.epoch
            elif kind + "/" == TOPICS:
                self._take_topic(rest, event)
            elif kind + "/" == EVIDENCE and event.value is not None:
                self._take_evidence(rest)
        for event in events:
            if event.key.startswith(TOPIC_CONFIGS) and event.value is not None:
                overrides = decode_overrides(event.key, event.value)
                self._on_disk[event.key[len(TOPIC_CONFIGS) :]] = overrides.get("ack.durability", "disk") == "disk"
        for event in events:
            if event.key.startswith(PARTITIONS):
                topic, _, number = event.key[len(PARTITIONS) :].partition("/")
                if event.value is None:
                    self._rows.get(topic, {}).pop(int(number), None)
                else:
                    self._rows.setdefault(topic, {})[int(number)] = decode_partition(event.value)
                    if int(number) < counts.get(topic, 0):
                        touched[TopicId(topic), int(number)] = False
        for topic, count in self._counts.items():
            # Partitions exist once the topic's count includes them.
            for added in range(counts.get(topic, 0), count):
                touched[TopicId(topic), added] = True
        for key, fresh in touched.items():
            self._take_row(key, fresh)
        for key in self.histories if registered else touched:
            history, row = self.histories.get(key), self._row(key)
            if history is not None and row is not None:
                history.led(self._leadership(row))
                history.check_in_sync()
        for broker, epoch in unfenced.items():
            # The fence of a registration from before the loss may be lifted after it.
            if epoch > self._lost_in.get(broker, -1):
                for history in self.histories.values():
                    history.unfenced(broker)
                    history.check_in_sync()

    def _take_evidence(self, rest: str) -> None:
        """Checks that a registration is suspected only if its process is gone."""
        broker, epoch, observer = (int(each) for each in rest.split("/"))
        self.evidence += 1
        life = self._world.machine_of(broker).life
        if life is not None and life.serving.broker_epoch == epoch:
            raise InvariantBroken(f"broker {observer} has evidence against broker {broker}, which lives, in {epoch}")

    def _take_topic(self, topic: str, event: Event) -> None:
        if event.value is None:
            for number in range(self._counts.pop(topic, 0)):
                self.histories.pop((TopicId(topic), number), None)
        else:
            row = decode_topic(event.key, event.value)
            self._counts[topic], self._names[topic] = row.partition_count, row.name

    def _row(self, key: Key) -> PartitionRow | None:
        return self._rows.get(str(key[0]), {}).get(key[1])

    def _take_row(self, key: Key, fresh: bool) -> None:
        row, topic = self._row(key), str(key[0])
        if row is None:
            return  # the topic is being deleted
        history = self.histories.get(key)
        if history is None:
            name = f"{self._names[topic]}-{key[1]}"
            history = self.histories[key] = PartitionHistory(name, on_disk=self._on_disk.get(topic, True))
        history.written(row, fresh=fresh)

    def _leadership(self, row: PartitionRow) -> Leadership:
        """The leader by this row: `ClusterImage.leadership`, written a second time as a check."""
        registrations = self._broker_epochs.get(row.leader, row.leader_broker_epoch) - row.leader_broker_epoch
        if registrations and len(row.replicas) > 1:
            return Leadership(-1, row.leader_epoch)
        return Leadership(row.leader, row.leader_epoch + registrations)

    def succeeded_for_ms(self, key: Key, leader_epoch: int, machine: Machine) -> int:
        """The time for which a later leader than that of this epoch has led, by the boot clock of a machine."""
        led_from = self._led_from.get(key, {})
        since_ms = [clocks[machine.broker_id] for epoch, clocks in led_from.items() if epoch > leader_epoch]
        return machine.clock.boot_ms - min(since_ms, default=machine.clock.boot_ms)

    # Faults

    def lost_power(self, machine: Machine) -> list[Key]:
        """Takes a power cut of a machine; returns the partitions that lost committed records by it."""
        broker = machine.broker_id
        if machine.stopped_cleanly:
            # The process synced all logs before it left the mark.
            for history in self.histories.values():
                history.stopped_cleanly(broker)
            return []
        self._lost(broker)
        ends = {key: history.committed_end for key, history in self.histories.items()}
        for history in self.histories.values():
            history.lost_power(broker)
        return [key for key, history in self.histories.items() if history.committed_end < ends[key]]

    def _lost(self, broker: int) -> None:
        if self._store._feed.revision != self._revision:
            self._look_at_store()
        self._lost_in[broker] = self._broker_epochs.get(broker, -1)

    def lost_disk(self, broker: int) -> None:
        self._lost(broker)
        for history in self.histories.values():
            history.lost_disk(broker)

    def can_do_without(self, broker: int) -> bool:
        """True if for each partition of this broker another in-sync replica has all committed records on its disk."""
        if self._store._feed.revision != self._revision:
            self._look_at_store()
        return all(
            history.row is None or broker not in history.row.replicas or self.has_sound_copy(key, broker)
            for key, history in self.histories.items()
        )

    def has_sound_copy(self, key: Key, but: int, log_start: int | None = None) -> bool:
        """True if an in-sync replica besides this broker's has all committed records on its disk, all sound.
        `log_start`: from this offset on; None: from its own log start on."""
        history = self.histories[key]
        assert history.row is not None
        # The history of a compacted partition has no committed batches: only its in-sync set is known.
        for broker in history.row.isr:
            replica = history.replicas.setdefault(broker, Replica())
            has = min(replica.agreed, history.counted_end(replica))
            begins = log_start is None or replica.start <= log_start
            whole = not replica.excused and begins and has >= history.committed_end
            if broker != but and whole and not self.rotten_until(broker, key):
                return True
        return False

    # The end

    def unconverged(self) -> str:
        """Names a partition whose replicas are not all in sync and equal; empty if there is none."""
        for machine in self._world.machines:
            self.look(machine)
        return next((text for history in self.histories.values() if (text := history.unconverged())), "")

    @property
    def committed_batches(self) -> int:
        return sum(len(history.committed) for history in self.histories.values())


def digest(batch: bytes) -> bytes:
    return hashlib.blake2b(batch, digest_size=8).digest()


def _entry(header: BatchHeader, batch: bytes) -> Entry:
    producer = (header.producer_id, header.producer_epoch)
    idempotent = header.producer_id >= 0 and not header.attributes & CONTROL_BIT
    return Entry(
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        digest(batch),
        producer if idempotent else None,
        header.base_sequence,
        header.last_sequence,
    )
