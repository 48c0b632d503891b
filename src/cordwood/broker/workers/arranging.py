"""Arranges a data directory for the brokers that are about to start on it: one alone, or several workers.

The plan is made from the metadata and the existing directories. The plan is durable (journal.py) before anything is
changed. Then new homes are made, destinations learn the offsets of the partitions that come, the directories are
renamed, the metadata names the new brokers, sources forget, homes that are no longer used are dissolved, and the plan
is removed. The caller holds the locks of the data directory and of all homes, and the metadata store.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.broker.workers.homes import Home, carry_findings, home_of, homes_on_disk
from cordwood.broker.workers.journal import Move, Moves, read_journal, write_journal
from cordwood.broker.workers.spreading import plan_moves
from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage, partition_row
from cordwood.cluster.metadata.rows import (
    CLUSTER_ID,
    TOPIC_NAMES,
    deleted_topic_key,
    encode_partition,
    member_key,
    partition_key,
    storage_key,
)
from cordwood.cluster.metadata.tombstones import moved_tombstone
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner.registration import plan_cluster_id
from cordwood.cluster.registration import new_cluster_id
from cordwood.cluster.stores.interface import MAX_OPERATIONS, Delete, MetadataStore, Put
from cordwood.log.directory.data_directory import LOCK_FILE, MOVES_FILE, WORKERS, DataDirectory, Lock, Lockable
from cordwood.log.directory.identity import PROPERTIES_FILE, Identity, claim_directory, read_identity
from cordwood.log.directory.misnamed import straighten_names
from cordwood.log.directory.strays import read_topic_id
from cordwood.log.files.durable_directories import make_directory_durably
from cordwood.log.upkeep.retention import CONDEMNED, condemned_part
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.filesystem import Filesystem, remove_if_there
from cordwood.segments.set_aside import set_aside_name, set_aside_part

logger = logging.getLogger("cordwood.broker")

_WORKERS_END_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.05

ROOT = ""
"""The data directory itself: the home of a broker that is alone."""


@dataclass(slots=True)
class Arranged:
    """The changes that were made: for a log line, and for tests."""

    moved: int = 0
    problems: list[str] = field(default_factory=list)


async def take_for_workers(
    logs: DataDirectory, store: MetadataStore, node_id: int, metadata_version: int = SUPPORTED.highest
) -> None:
    """Names the cluster of a new directory, and claims the directory for its first broker. Raises StorageFailure if
    another node owns it, or if it has metadata and no owner."""
    owner = logs.identity()
    if owner is None and not logs.arranged_for_workers and (await store.list(TOPIC_NAMES)).items:
        raise StorageFailure(
            f"{logs.path} has metadata, and no {PROPERTIES_FILE}: partitions that are elsewhere, as those of `cordwood "
            "cluster up`, would begin anew, empty. Give another --data-dir; if the file is lost, start `cordwood "
            "serve` once without --workers. Nothing was changed"
        )
    plan = plan_cluster_id(new_cluster_id(uuid.uuid4()), metadata_version)
    for transaction in plan.in_order():
        await store.txn(*transaction)
    named = await store.get(CLUSTER_ID)
    assert named is not None, "the transaction failed because the cluster has an id"
    storage_id = (owner.storage_id if owner is not None else "") or os.urandom(16).hex()
    claim_directory(logs.filesystem, logs.path, Identity(named.value.decode(), node_id, storage_id))


async def arrange_offline(
    logs: DataDirectory, store: MetadataStore, brokers: Sequence[int], settings: BrokerSettings, *, alone: bool
) -> None:
    """Arranges a directory whose lock and store the caller holds; waits for workers of a supervisor that was killed.

    Raises StorageFailure, with nothing changed."""
    locks = await _locked_homes(logs.filesystem, logs.path)
    try:
        done = await arrange(
            logs.filesystem, logs.path, store, brokers, settings, lambda: os.urandom(16).hex(), alone=alone
        )
    finally:
        for lock in locks:
            lock.release()
    for problem in done.problems:
        logger.warning("%s", problem)
    if done.moved:
        workers = "1 worker" if len(brokers) == 1 else f"{len(brokers)} workers"
        where = "one broker" if alone else workers
        logger.info("moved %d partitions, by rename: the directory is arranged for %s", done.moved, where)


async def _locked_homes(filesystem: Filesystem, root: str) -> list[Lock]:
    """Locks all homes. Workers end a moment after their supervisor. Raises StorageFailure."""
    locks: list[Lock] = []
    if not isinstance(filesystem, Lockable):
        return locks
    attempts = int(_WORKERS_END_WITHIN_S / _LOOK_EVERY_S)
    try:
        for home in homes_on_disk(filesystem, root).values():
            for attempt in range(attempts + 1):
                try:
                    locks.append(filesystem.lock(f"{root}/{home}/{LOCK_FILE}"))
                    break
                except StorageFailure:
                    if attempt == attempts:
                        raise
                    if attempt == 0:
                        logger.info("waiting for the worker of an earlier start that uses %s/%s", root, home)
                    await asyncio.sleep(_LOOK_EVERY_S)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    return locks


async def arrange(
    filesystem: Filesystem,
    root: str,
    store: MetadataStore,
    brokers: Sequence[int],
    settings: BrokerSettings,
    new_storage_id: Callable[[], str],
    *,
    alone: bool,
) -> Arranged:
    """Gives the brokers of this start their partitions. `alone`: the one broker keeps them in the directory itself.

    Finishes moves that an earlier start began. Raises StorageFailure if partitions would be lost, with nothing changed.
    """
    done = Arranged()
    begun = read_journal(filesystem, root)
    if begun is not None:
        await _carry_out(filesystem, root, store, begun)
    image = ClusterImage(brokers[0], settings)
    image.load(await store.list(""))
    if filesystem.exists(f"{root}/{WORKERS}") or not alone:
        arrangement = _Arrangement(filesystem, root, image, brokers, alone=alone)
        moves = arrangement.plan(new_storage_id)
        done.problems += arrangement.problems
        if moves.anything_to_do:
            write_journal(filesystem, root, moves)
            await _carry_out(filesystem, root, store, moves)
            done.moved = len(moves.moves)
    if image.storage_ids.keys() - set(brokers):
        await _forget_others(store, image, brokers)
    return done


async def _forget_others(store: MetadataStore, image: ClusterImage, brokers: Sequence[int]) -> None:
    """Forgets workers that no longer exist: they would be members of the cluster that are away for ever."""
    image.load(await store.list(""))
    placed = {broker for topic in image.sorted_topics() for each in topic.partitions for broker in each.replicas}
    gone = sorted(image.storage_ids.keys() - {*brokers, *placed})
    keys = [key for broker in gone for key in (storage_key(broker), member_key(broker))]
    for start in range(0, len(keys), MAX_OPERATIONS):
        await store.txn((), [Delete(key) for key in keys[start : start + MAX_OPERATIONS]])


class _Arrangement:
    """One plan: the present homes of partitions, and their new ones."""

    def __init__(
        self, filesystem: Filesystem, root: str, image: ClusterImage, brokers: Sequence[int], *, alone: bool
    ) -> None:
        self._filesystem = filesystem
        self._root = root
        self._image = image
        self._brokers = sorted(brokers)
        self.problems: list[str] = []
        self._used = homes_on_disk(filesystem, root)
        """The existing homes of workers."""
        self._by_workers = filesystem.exists(f"{root}/{WORKERS}")
        """True if workers used the directory last."""
        self._target = {broker: ROOT if alone else home_of(broker) for broker in self._brokers}
        self._homes: dict[str, Home] = {}

    def plan(self, new_storage_id: Callable[[], str]) -> Moves:
        """Makes the plan. Raises StorageFailure if partitions would be lost."""
        homes = [ROOT, *self._used.values()]
        for home in homes:
            path = self._path(home)
            self.problems += straighten_names(self._filesystem, path, self._filesystem.list_directories(path))
            self._homes[home] = Home(self._filesystem, path)
        found = self._locations()
        placed = {
            TopicPartition(topic.name, index): self._broker_of(topic, index, partition)
            for topic in self._image.sorted_topics()
            for index, partition in enumerate(topic.partitions)
        }
        before = {*self._used, *placed.values()} if self._by_workers else set()
        changed = self._target.keys() != before or not self._by_workers or ROOT in self._target.values()
        new_brokers = plan_moves(placed, self._brokers) if changed else {}
        at_home = {each: broker for each, broker in placed.items() if found.get(each) in (None, home_of(broker))}
        self._check_not_lost(at_home, new_brokers)
        moves: list[Move] = []
        rows: dict[str, str] = {}
        for topic in self._image.sorted_topics():
            for index, image in enumerate(topic.partitions):
                partition = TopicPartition(topic.name, index)
                broker = new_brokers.get(partition, placed[partition])
                source = found.get(partition, self._home(placed[partition]))
                destination = self._target[broker]
                if source != destination and source in self._homes:
                    moves.append(self._homes[source].move_of(partition, topic.topic_id, source, destination))
                if (row := self._row(topic, index, image, broker)) is not None:
                    rows[partition_key(topic.topic_id, index)] = row
        made = self._made(placed, new_storage_id)
        rows |= {storage_key(broker): storage_id for broker, storage_id in {**self._forgotten(), **made}.items()}
        rows |= self._tombstones()
        kept = set(self._target.values())
        dissolved = tuple(home for home in self._used.values() if home not in kept)
        first_home = self._target[self._brokers[0]]
        moves += self._unknown(found, moves, (ROOT, *dissolved) if first_home != ROOT else dissolved, first_home)
        return Moves(tuple(moves), rows, made, dissolved, first_home, self._clean(moves, made))

    # The present homes of partitions

    def _path(self, home: str) -> str:
        return f"{self._root}/{home}" if home else self._root

    def _home(self, broker: int) -> str:
        """The last home of a broker's partitions."""
        return home_of(broker) if self._by_workers else ROOT

    def _locations(self) -> dict[TopicPartition, str]:
        """The home that has the directory of each partition of the metadata. Raises StorageFailure if two have it."""
        found: dict[TopicPartition, str] = {}
        for name, home in self._homes.items():
            for partition in home.partitions():
                topic_id = read_topic_id(self._filesystem, f"{home.path}/{partition}")
                topic = self._image.topics.get(partition.topic)
                if topic is None or topic_id != topic.topic_id or partition.partition >= len(topic.partitions):
                    continue
                if partition in found:
                    raise StorageFailure(
                        f"{partition} is in two places: {self._path(found[partition])}/{partition} and "
                        f"{home.path}/{partition}. Move the copy away"
                    )
                found[partition] = name
        return found

    def _broker_of(self, topic: TopicImage, index: int, partition: PartitionImage) -> int:
        if len(partition.replicas) != 1:
            raise StorageFailure(
                f"partition {index} of {topic.name} has the replicas {list(partition.replicas)}: workers of one "
                "machine keep one replica of each partition. Nothing was changed"
            )
        if not partition.isr:
            raise StorageFailure(
                f"the only replica of partition {index} of {topic.name} lost its records, and nobody has accepted that "
                "yet. Start as before, and accept the loss or delete the topic. Nothing was changed"
            )
        return partition.replicas[0]

    def _check_not_lost(self, placed: Mapping[TopicPartition, int], new_brokers: Mapping[TopicPartition, int]) -> None:
        """Refuses to move partitions of a worker whose home is gone: they would begin anew, empty."""
        if not self._by_workers:
            return
        for partition, broker in placed.items():
            stays = new_brokers.get(partition, broker) == broker and self._target.get(broker) == home_of(broker)
            if not stays and (reason := self._lost(broker)) is not None:
                count = len(self._used) or 1
                raise StorageFailure(
                    f"the records of broker {broker} are gone, {partition} among them: {reason}. Put the directory "
                    f"back, or start with --workers {max(count, broker - self._brokers[0] + 1)} as before and accept "
                    "the loss. Nothing was changed"
                )

    def _lost(self, broker: int) -> str | None:
        path = self._path(home_of(broker))
        identity = read_identity(self._filesystem, path)
        if identity is None:
            return f"{path} is missing or was emptied"
        if identity[:2] != (self._image.cluster_id, broker):
            return f"{path} has the data of broker {identity.node_id} in cluster {identity.cluster_id}"
        if identity.storage_id != self._image.storage_ids.get(broker, identity.storage_id):
            return f"{path} is another directory than the one that broker {broker} used"
        return None

    # The changes

    def _row(self, topic: TopicImage, index: int, image: PartitionImage, broker: int) -> str | None:
        """The row of a partition that this broker leads from now on; None if the row says so already."""
        if (image.leader, image.replicas, image.isr) == (broker, (broker,), (broker,)):
            return None
        row = partition_row(image)._replace(
            leader=broker,
            leader_broker_epoch=self._image.broker_epochs.get(broker, 0),
            leader_epoch=self._image.leadership(image).epoch + 1,
            replicas=(broker,),
            isr=(broker,),
            elr=(),
            adding=(),
            removing=(),
            partition_epoch=image.partition_epoch + 1,
        )
        return encode_partition(row, self._image.metadata_version).decode()

    def _made(self, placed: Mapping[TopicPartition, int], new_storage_id: Callable[[], str]) -> dict[int, str]:
        """New homes. A home that is gone although partitions are placed there is not made: its broker has lost them,
        and the controller learns that from another storage id."""
        wanted = [broker for broker, home in self._target.items() if home not in (ROOT, *self._used.values())]
        had = set(placed.values()) if self._by_workers else set()
        return {broker: new_storage_id() for broker in wanted if broker not in had}

    def _forgotten(self) -> dict[int, str]:
        """Storage ids of homes that the metadata lacks, as after `cordwood recover metadata`."""
        ids = {}
        for broker, home in self._target.items():
            identity = read_identity(self._filesystem, self._path(home)) if home in self._used.values() else None
            if identity is not None and broker not in self._image.storage_ids:
                ids[broker] = identity.storage_id
        return ids

    def _tombstones(self) -> dict[str, str]:
        """Tombstones that name brokers whose directories move to the first broker."""
        first = self._brokers[0]
        rows = {}
        for topic_id, stone in sorted(self._image.deleted_topics.items()):
            if any(broker not in self._target for broker in stone.brokers):
                brokers = {broker if broker in self._target else first for broker in stone.brokers}
                rows[deleted_topic_key(topic_id)] = moved_tombstone(stone, brokers).decode()
        return rows

    def _unknown(
        self, found: Mapping[TopicPartition, str], moves: Sequence[Move], left: Sequence[str], first_home: str
    ) -> list[Move]:
        """Directories of partitions that the metadata does not know go to the first broker, which judges them. A
        directory whose name that broker uses stays: it is set aside if its home is dissolved."""
        unknown: list[Move] = []
        leaving = {(move.source, move.partition) for move in moves}
        taken = {move.partition for move in moves if move.destination == first_home}
        taken |= {each for each, home in found.items() if home == first_home}
        taken |= set(self._homes[first_home].partitions()) if first_home in self._homes else set()
        for home in left:
            for partition in self._homes[home].partitions():
                if found.get(partition) == home or (home, partition) in leaving or partition in taken:
                    continue
                taken.add(partition)
                topic_id = read_topic_id(self._filesystem, f"{self._path(home)}/{partition}") or TopicId(int=0)
                unknown.append(self._homes[home].move_of(partition, topic_id, home, first_home))
        return unknown

    def _clean(self, moves: Sequence[Move], made: Mapping[int, str]) -> tuple[str, ...]:
        """The homes that count as cleanly closed: all homes that their partitions come from were closed so, too."""
        new = {home_of(broker) for broker in made}
        clean = []
        for home in sorted(set(self._target.values())):
            sources = {move.source for move in moves if move.destination == home}
            own = home in new or (
                home in self._homes and (self._homes[home].clean or not self._homes[home].partitions())
            )
            if own and all(self._homes[source].clean for source in sources):
                clean.append(home)
        return tuple(clean)


async def _carry_out(filesystem: Filesystem, root: str, store: MetadataStore, moves: Moves) -> None:
    """Does all steps, or does them again."""
    cluster_id = await store.get(CLUSTER_ID)
    assert cluster_id is not None, "moves are planned of metadata with a cluster id"

    def path_of(home: str) -> str:
        return f"{root}/{home}" if home else root

    for broker, storage_id in moves.made.items():
        path = path_of(home_of(broker))
        make_directory_durably(filesystem, path, begun=True)
        claim_directory(filesystem, path, Identity(cluster_id.value.decode(), broker, storage_id))
    arriving: dict[str, list[Move]] = {}
    leaving: dict[str, list[Move]] = {}
    for move in moves.moves:
        arriving.setdefault(move.destination, []).append(move)
        leaving.setdefault(move.source, []).append(move)
    for home, coming in sorted(arriving.items()):
        destination = Home(filesystem, path_of(home))
        if home not in moves.clean:
            destination.mark(clean=False)
        destination.take_in(coming)
        for source in sorted({move.source for move in coming}):
            if filesystem.exists(path_of(source)):
                parts = [move.partition for move in coming if move.source == source]
                carry_findings(Home(filesystem, path_of(source)), destination, parts)
    for move in moves.moves:
        _rename(filesystem, f"{path_of(move.source)}/{move.partition}", f"{path_of(move.destination)}/{move.partition}")
    # A new name is durable before the old one is gone.
    for home in (*sorted(arriving), *sorted(leaving.keys() - arriving.keys())):
        if filesystem.exists(path_of(home)):
            filesystem.sync_directory(path_of(home))
    puts = [Put(key, value.encode()) for key, value in sorted(moves.rows.items())]
    for start in range(0, len(puts), MAX_OPERATIONS):
        await store.txn((), puts[start : start + MAX_OPERATIONS])
    for home, going in sorted(leaving.items()):
        if home not in moves.dissolved:
            Home(filesystem, path_of(home)).forget(going)
    for home in moves.dissolved:
        if filesystem.exists(path_of(home)):
            _dissolve(filesystem, root, path_of(home), path_of(moves.first_home))
    for home in moves.clean:
        Home(filesystem, path_of(home)).mark(clean=True)
    workers = f"{root}/{WORKERS}"
    if moves.first_home == ROOT and not filesystem.list(workers):
        filesystem.remove_tree(workers)
    filesystem.sync_directory(root)
    remove_if_there(filesystem, f"{root}/{MOVES_FILE}")
    filesystem.sync_directory(root)


def _rename(filesystem: Filesystem, source: str, destination: str) -> None:
    """Renames a partition's directory. An unknown directory that has its new name makes way."""
    if not filesystem.exists(source):
        return
    if filesystem.exists(destination):
        parent, _, name = destination.rpartition("/")
        filesystem.rename(destination, _free_name(filesystem, parent, name, set_aside_name))
    filesystem.rename(source, destination)


def _dissolve(filesystem: Filesystem, root: str, home: str, first_home: str) -> None:
    """Moves the remaining content of a home elsewhere, and removes the home. Directories that are being deleted go to a
    broker that finishes the deletion; all others go to the data directory."""
    for name in filesystem.list_directories(home):
        if (part := condemned_part(name)) is not None:
            made = _free_name(filesystem, first_home, part, lambda part, number: f"{part}.{number}{CONDEMNED}")
        elif (part := set_aside_part(name)) is not None or (part := _partition_part(name)) is not None:
            made = _free_name(filesystem, root, part, set_aside_name)
        else:
            made = _free_name(filesystem, root, name, lambda name, number: f"{name}.{number}" if number else name)
        filesystem.rename(f"{home}/{name}", made)
    filesystem.sync_directory(first_home)
    filesystem.sync_directory(root)
    filesystem.remove_tree(home)
    filesystem.sync_directory(f"{root}/{WORKERS}")


def _partition_part(name: str) -> str | None:
    try:
        return str(TopicPartition.parse(name))
    except ValueError:
        return None


def _free_name(filesystem: Filesystem, parent: str, part: str, name_of: Callable[[str, int], str]) -> str:
    number = 0
    while filesystem.exists(path := f"{parent}/{name_of(part, number)}"):
        number += 1
    return path
