"""A data directory that is arranged for one broker, for several workers, and back: nothing is lost at any point."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from tests.moments import at
from tests.unit.cluster.metadata import Metadata
from tests.unit.log.log_making import NOW_MS, append, values

from cordwood.broker.workers.arranging import arrange, take_for_workers
from cordwood.broker.workers.homes import home_of
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.partitions import partition_row
from cordwood.cluster.metadata.rows import (
    decode_partition,
    deleted_topic_key,
    encode_partition,
    partition_key,
    storage_key,
)
from cordwood.cluster.metadata.tombstones import Tombstone, moved_tombstone
from cordwood.cluster.planner.registration import plan_cluster_id
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.log.directory.data_directory import CLEAN_SHUTDOWN_FILE, MOVES_FILE, DataDirectory
from cordwood.log.directory.identity import Identity, read_identity
from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.topic_settings import TopicSettings

ROOT = "/data"
CLUSTER = "a-cluster-of-one-disk"
RECORDS = {
    TopicPartition("orders", 0): [b"a", b"b"],
    TopicPartition("orders", 1): [b"c"],
    TopicPartition("orders", 2): [b"d", b"e", b"f"],
    TopicPartition("__consumer_offsets", 0): [b"position"],
}
"""Partition 3 of orders is empty, and has no directory."""


class Died(Exception):
    """The process was killed."""


class Dying:
    """A filesystem, or a store, whose process is killed before its n-th change."""

    CHANGES = ("rename", "remove", "remove_tree", "replace", "make_directory", "sync_directory", "txn")

    def __init__(self, inner: Any, life: list[int]) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        if name in self.CHANGES:
            if not self._life[0]:
                raise Died(name)
            self._life[0] -= 1
        return getattr(self._inner, name)


class Machine:
    """A disk and its metadata, at first as a broker left them that was alone."""

    def __init__(self) -> None:
        self.disk = CrashingFilesystem()
        self.metadata = Metadata()
        self._ids = iter(range(1000))

    @classmethod
    async def with_records(cls, *, clean: bool = True) -> "Machine":
        machine = cls()
        await machine.metadata.carry_out(plan_cluster_id(CLUSTER, 1))
        await machine.metadata.register(1)
        await machine.metadata.create(NewTopic("orders", 4, 1))
        await machine.metadata.create(NewTopic("__consumer_offsets", 1, 1), internal=True)
        machine.write(ROOT, Identity(CLUSTER, 1, "first"), RECORDS, clean=clean)
        return machine

    def write(
        self, path: str, identity: Identity, records: Mapping[TopicPartition, list[bytes]], *, clean: bool = True
    ) -> None:
        directory = self.opened(path, identity)
        for partition, batches in records.items():
            log = self.log(directory, partition)
            for value in batches:
                append(log, value)
            ticket = log.begin_flush()
            assert ticket is not None
            ticket.sync()
            ticket.finish()
            directory.note_durable([ticket])
        directory.close(clean=clean)

    def opened(self, path: str, identity: Identity | None = None) -> DataDirectory:
        directory = DataDirectory(self.disk, path)
        directory.open(identity)
        return directory

    def log(self, directory: DataDirectory, partition: TopicPartition) -> Any:
        topic_id = self.metadata.image.topics[partition.topic].topic_id
        return directory.open_log(partition, topic_id, TopicSettings(), at(NOW_MS))

    async def arrange(self, *brokers: int, alone: bool = False, changes: int = 10**9) -> int:
        life = [changes]
        await arrange(
            Dying(self.disk, life),
            ROOT,
            Dying(self.metadata.store, life),
            brokers,
            self.metadata.settings,
            lambda: f"storage-{next(self._ids)}",
            alone=alone,
        )
        return changes - life[0]

    async def image(self) -> ClusterImage:
        return await self.metadata.copy()

    async def check(self, *brokers: int, alone: bool = False) -> None:
        """Each partition is in the home of its leader, with its records, and nowhere else."""
        image = await self.image()
        directories = {broker: ROOT if alone else f"{ROOT}/{home_of(broker)}" for broker in brokers}
        assert set(map(int, self.disk.list_directories(f"{ROOT}/workers"))) == (set() if alone else set(brokers))
        found: dict[TopicPartition, list[bytes]] = {}
        for broker, path in directories.items():
            directory = self.opened(path)
            assert directory.problems == []
            for partition in directory.on_disk.topic_ids():
                row = image.topics[partition.topic].partitions[partition.partition]
                assert (row.leader, row.replicas, row.isr) == (broker, (broker,), (broker,))
                assert partition not in found
                log = self.log(directory, partition)
                assert log.reports.damage == []
                found[partition] = values(log)
            directory.close()
        assert found == RECORDS
        if not alone:
            assert [name for name in self.disk.list_directories(ROOT) if name != "workers"] == []
            for broker, path in directories.items():
                identity = read_identity(self.disk, path)
                assert identity is not None
                assert identity[:2] == (CLUSTER, broker)
                assert image.storage_ids[broker] == identity.storage_id
        assert not self.disk.exists(f"{ROOT}/{MOVES_FILE}")
        assert image.storage_ids.keys() <= set(brokers), "workers that are no more are no members"


async def test_partitions_go_to_workers_and_come_back() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2, 3)
    await machine.check(1, 2, 3)
    await machine.arrange(1, 2)
    await machine.check(1, 2)
    assert DataDirectory(machine.disk, ROOT).arranged_for_workers
    await machine.arrange(1, alone=True)
    await machine.check(1, alone=True)
    assert not DataDirectory(machine.disk, ROOT).arranged_for_workers


async def test_the_same_workers_move_nothing() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    assert await machine.arrange(1, 2) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [((), (1, 2, 3)), ((1, 2, 3), (1, 2)), ((1, 2), (1, 2, 3, 4)), ((1, 2, 3), ())]
)
async def test_a_kill_before_any_change_loses_nothing(
    before: tuple[int, ...], after: tuple[int, ...], clean: bool
) -> None:
    """The next start may be of another kind: with the same workers, with others, or alone."""
    killed = 0
    for changes in range(1000):
        machine = await Machine.with_records(clean=clean)
        if before:
            await machine.arrange(*before)
        try:
            await machine.arrange(*(after or (1,)), alone=not after, changes=changes)
        except Died:
            killed += 1
        else:
            break
        following: tuple[int, ...] = (after, (1, 2, 3, 4, 5), ())[changes % 3]
        await machine.arrange(*(following or (1,)), alone=not following)
        await machine.check(*(following or (1,)), alone=not following)
    assert killed > 10


async def test_a_second_kill_while_moves_are_finished_loses_nothing() -> None:
    for first in range(0, 60, 11):
        for second in range(1, 60, 7):
            machine = await Machine.with_records()
            for changes in (first, second):
                try:
                    await machine.arrange(1, 2, 3, changes=changes)
                except Died:
                    continue
            await machine.arrange(1, 2)
            await machine.check(1, 2)


async def test_homes_are_clean_only_if_all_their_partitions_were_closed_cleanly() -> None:
    machine = await Machine.with_records(clean=False)
    await machine.arrange(1, 2)
    assert not machine.disk.exists(f"{ROOT}/workers/1/{CLEAN_SHUTDOWN_FILE}")
    assert not machine.disk.exists(f"{ROOT}/workers/2/{CLEAN_SHUTDOWN_FILE}")
    await machine.check(1, 2)
    # The check closed both cleanly.
    await machine.arrange(1, alone=True)
    assert machine.disk.exists(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")


async def test_a_log_that_lost_its_end_is_noticed_in_its_new_home() -> None:
    machine = await Machine.with_records(clean=False)
    path = f"{ROOT}/orders-2/00000000000000000000.log"
    size = len(machine.disk.read_bytes(path))
    machine.disk.cut(path, size * 2 // 3)
    await machine.arrange(1, 2)
    image = await machine.image()
    broker = image.topics["orders"].partitions[2].leader
    directory = machine.opened(f"{ROOT}/{home_of(broker)}")
    log = machine.log(directory, TopicPartition("orders", 2))
    assert [(damage.first_offset, damage.end_offset) for damage in log.reports.damage] == [(2, 3)]


async def test_leader_epochs_rise_with_each_move() -> None:
    machine = await Machine.with_records()
    before = await machine.image()
    await machine.arrange(1, 2)
    after = await machine.image()
    for old, new in zip(before.topics["orders"].partitions, after.topics["orders"].partitions, strict=True):
        risen = after.leadership(new).epoch - before.leadership(old).epoch
        assert risen == (new.leader != old.leader)


async def test_a_partition_that_lost_its_leader_has_one_when_its_broker_is_alone() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    topic_id = machine.metadata.image.topics["orders"].topic_id
    for index in range(4):
        key = partition_key(topic_id, index)
        item = await machine.metadata.store.get(key)
        assert item is not None
        row = decode_partition(item.value)._replace(leader=-1, leader_broker_epoch=0)
        await machine.metadata.store.txn((), [Put(key, encode_partition(row))])
    await machine.arrange(1, alone=True)
    await machine.check(1, alone=True)


async def test_partitions_of_a_worker_whose_home_is_gone_are_not_moved() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    machine.disk.remove_tree(f"{ROOT}/workers/2")
    with pytest.raises(StorageFailure, match=r"the records of broker 2 are gone.*--workers 2"):
        await machine.arrange(1, alone=True)
    # With the same workers the controller learns of the loss: the new home has another storage id.
    assert await machine.arrange(1, 2) == 0
    assert not machine.disk.exists(f"{ROOT}/workers/2")


async def test_a_home_that_was_exchanged_is_not_moved() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    await machine.metadata.store.txn((), [Put(storage_key(2), b"another")])
    with pytest.raises(StorageFailure, match="is another directory than the one that broker 2 used"):
        await machine.arrange(1)


async def test_a_partition_in_two_places_is_refused() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    machine.write(ROOT, Identity(CLUSTER, 1, "first"), RECORDS)
    with pytest.raises(StorageFailure, match="is in two places"):
        await machine.arrange(1, 2, 3)


async def test_directories_that_are_no_partitions_of_the_metadata_outlive_their_worker() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    for name in ("orders-0.0-stray", "gone-0.0-delete", "somebody", "unknown-7"):
        machine.disk.make_directory(f"{ROOT}/workers/2/{name}")
    machine.disk.make_directory(f"{ROOT}/orders-0.0-stray")
    await machine.arrange(1)
    assert machine.disk.list_directories(ROOT) == ["orders-0.0-stray", "orders-0.1-stray", "somebody", "workers"]
    assert {"unknown-7", "gone-0.0-delete"} <= set(machine.disk.list_directories(f"{ROOT}/workers/1"))


async def test_storage_ids_that_the_metadata_lost_are_written_again() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    await machine.metadata.store.txn((), [Delete(storage_key(1)), Delete(storage_key(2))])
    await machine.arrange(1, 2)
    await machine.check(1, 2)


async def test_rows_that_name_the_first_worker_for_all_partitions_are_believed_and_directories_follow() -> None:
    """As after `cordwood recover metadata`, which does not know who had a partition."""
    machine = await Machine.with_records()
    before = await machine.image()
    await machine.arrange(1, 2)
    rows = [
        Put(partition_key(topic.topic_id, index), encode_partition(partition_row(partition)))
        for topic in before.sorted_topics()
        for index, partition in enumerate(topic.partitions)
    ]
    await machine.metadata.store.txn((), rows)
    await machine.arrange(1, 2)
    await machine.check(1, 2)


async def test_a_tombstone_names_the_broker_that_gets_the_directories_of_a_deleted_topic() -> None:
    machine = await Machine.with_records()
    await machine.arrange(1, 2)
    topic_id = uuid.UUID(int=77)
    key = deleted_topic_key(topic_id)
    await machine.metadata.store.txn((), [Put(key, moved_tombstone(Tombstone("gone", ()), (2,)))])
    machine.disk.make_directory(f"{ROOT}/workers/2/gone-0")
    machine.disk.replace(f"{ROOT}/workers/2/gone-0/partition.metadata", b"version: 0\n")
    await machine.arrange(1)
    assert (await machine.image()).deleted_topics[topic_id].brokers == (1,)
    assert machine.disk.exists(f"{ROOT}/workers/1/gone-0/partition.metadata")


async def test_metadata_without_an_owner_is_not_taken_for_workers() -> None:
    """The directory of `cordwood cluster up` has the metadata of partitions that are elsewhere."""
    machine = await Machine.with_records()
    machine.disk.remove(f"{ROOT}/meta.properties")
    with pytest.raises(StorageFailure, match=r"has metadata, and no meta\.properties"):
        await take_for_workers(DataDirectory(machine.disk, ROOT), machine.metadata.store, 1)


async def test_a_new_directory_gets_a_cluster_and_an_owner_which_stay() -> None:
    machine = Machine()
    directory = DataDirectory(machine.disk, ROOT)
    directory.take()
    await take_for_workers(directory, machine.metadata.store, 1)
    owner = directory.identity()
    await take_for_workers(directory, machine.metadata.store, 1)
    assert directory.identity() == owner
    with pytest.raises(StorageFailure, match="has the data of node 1"):
        await take_for_workers(directory, machine.metadata.store, 2)
