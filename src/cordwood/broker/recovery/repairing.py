"""Repairs a metadata store: takes the newest whole state, and later rows from its witness.

Copies of the damaged files are durable before any file is changed. The repaired store is made beside the damaged one,
as a draft, and replaces it in one step. The witness is replaced last: a process that is killed at any moment leaves a
store that a start refuses, or a complete one, and the command can be given again.
"""

import asyncio
import os
from typing import Any

from cordwood.broker.recovery.lost_topics import last_epoch
from cordwood.broker.recovery.offline import taken
from cordwood.broker.recovery.restoring import carry_out
from cordwood.broker.storage.storage import METADATA_FILE, refuse_part_of_cluster
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import (
    BROKER_CONFIGS,
    BROKER_EPOCHS,
    CLUSTER_ID,
    DELETED_TOPICS,
    METADATA_VERSION,
    PRODUCER_ID_BLOCK,
    TOPIC_CONFIGS,
    TOPIC_NAMES,
    TOPICS,
    broker_epoch_key,
    decode_overrides,
    decode_topic,
)
from cordwood.cluster.planner.put_back import LostTopic, plan_put_back
from cordwood.cluster.stores.integrity import best_image
from cordwood.cluster.stores.interface import MetadataStore, Put
from cordwood.cluster.stores.opening_checks import check_present, check_store
from cordwood.cluster.stores.owner_only import keep_to_owner
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.cluster.stores.wal import DamagedStore
from cordwood.cluster.stores.witness import Witness, read_witness, witness_path
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.identity import WITNESS_FILE, Identity
from cordwood.log.inspection.directory import homes_of_workers, read_data_directory
from cordwood.model.errors import ProtocolError
from cordwood.model.identifiers import TopicId
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.segments.filesystem import Filesystem

DAMAGED = "-damaged"
DRAFT = ".draft"
_COUNTERS = {BROKER_EPOCHS: 10, PRODUCER_ID_BLOCK: 100_000}
"""Counters that must never go back, and how far each skips ahead: the witness may be a moment older than the store."""
_COPIED = (METADATA_VERSION, BROKER_CONFIGS, DELETED_TOPICS)


def damage_in(directory: str) -> str | None:
    """The damage of the store of a stopped broker without a cluster; None: it is whole. Raises Failure."""
    with taken(directory) as held:
        refuse_part_of_cluster(held)
        return damage_of(held.path)


def repair_metadata(directory: str) -> dict[str, Any]:
    """Repairs the store of a stopped broker without a cluster, as `repair` does. Raises Failure."""
    with taken(directory) as held:
        refuse_part_of_cluster(held)
        return asyncio.run(repair(held.filesystem, held.path))


async def repair(filesystem: Filesystem, path: str) -> dict[str, Any]:
    """Repairs the store, and returns the findings. A whole store is not changed."""
    store_path = f"{path}/{METADATA_FILE}"
    damage = damage_of(path)
    if damage is None:
        return {"damage": None, "revision": None, "topics": [], "kept": []}
    identity = DataDirectory(filesystem, path).identity()
    assert identity is not None
    witness = read_witness(store_path) or Witness(0, {})
    kept = _keep(filesystem, path, (store_path, f"{store_path}-wal", witness_path(store_path)))
    best = best_image(store_path)
    draft = f"{store_path}{DRAFT}"
    _remove(filesystem, draft, f"{draft}-wal", witness_path(draft))
    if best is not None:
        filesystem.replace(draft, best[0])
    store = await SqliteStore.open(draft)
    try:
        topics = await _add(store, witness, identity, path)
    finally:
        await store.close()
    _take_its_place(filesystem, path, store_path, draft)
    for home in homes_of_workers(path):
        # A worker would refuse metadata that went back. The operator of this command accepts that.
        _remove(filesystem, f"{home}/{WITNESS_FILE}")
    return {"damage": damage, "revision": None if best is None else best[1].revision, "topics": topics, "kept": kept}


def damage_of(path: str) -> str | None:
    """The damage of the store; None for a whole one. Only for a directory that a broker has used."""
    store_path = f"{path}/{METADATA_FILE}"
    try:
        check_present(store_path)
        check_store(store_path)
    except DamagedStore as found:
        return str(found.__cause__ or found).partition(". Nothing was changed")[0]
    return None


def _take_its_place(filesystem: Filesystem, path: str, store_path: str, draft: str) -> None:
    """Replaces the store by the draft. The old witness stays to the end: it makes a start refuse a partial store."""
    assert not filesystem.exists(f"{draft}-wal"), "SQLite left transactions outside of the file"
    filesystem.rename(draft, store_path)
    filesystem.sync_directory(path)
    _remove(filesystem, f"{store_path}-wal")
    filesystem.sync_directory(path)
    if filesystem.exists(witness_path(draft)):
        filesystem.rename(witness_path(draft), witness_path(store_path))
    else:
        # A full disk had no room for the new witness. The next start writes one.
        _remove(filesystem, witness_path(store_path))
    filesystem.sync_directory(path)


def _remove(filesystem: Filesystem, *paths: str) -> None:
    for each in paths:
        if filesystem.exists(each):
            filesystem.remove(each)


def _keep(filesystem: Filesystem, path: str, files: tuple[str, ...]) -> list[str]:
    """Copies these files under unused names, and returns the names."""
    number = 0
    while any(filesystem.exists(f"{file}.{number}{DAMAGED}") for file in files):
        number += 1
    kept = []
    for file in files:
        if filesystem.exists(file):
            copy = f"{file}.{number}{DAMAGED}"
            filesystem.replace(copy, filesystem.read_bytes(file))
            keep_to_owner(copy)
            kept.append(os.path.relpath(copy, path))
    return kept


async def _add(store: MetadataStore, witness: Witness, identity: Identity, path: str) -> list[str]:
    """Adds the rows that the store lacks, from the cluster's identity and the witness. Returns the restored topics."""
    keys = {key: value for key, value in witness.keys.items() if key.startswith(_COPIED)}
    keys[CLUSTER_ID] = identity.cluster_id.encode()
    for prefix, skip in _COUNTERS.items():
        for key in (*(key for key in witness.keys if key.startswith(prefix)), broker_epoch_key(identity.node_id)):
            if key.startswith(prefix):
                there = await store.get(key)
                known = max(int(witness.keys.get(key, 0)), 0 if there is None else int(there.value))
                await store.txn((), (Put(key, b"%d" % (known + skip)),))
    for key, value in sorted(keys.items()):
        if await store.get(key) is None:
            await store.txn((), (Put(key, value),))
    image = ClusterImage(identity.node_id, BrokerSettings.from_texts({"node.id": str(identity.node_id)}))
    image.load(await store.list(""))
    epochs: dict[str, dict[int, int]] = {}
    # Workers find partitions in whichever home they are: the rows may name the first worker for all of them.
    homes = homes_of_workers(path) or [path]
    for read in (read for home in homes for read in read_data_directory(home).partitions):
        epochs.setdefault(read.partition.topic, {})[read.partition.partition] = last_epoch(read)
    added = []
    for name, topic_id in _topics(witness):
        lost = _lost(witness, name, topic_id, epochs.get(name, {}))
        if lost is None or topic_id in image.deleted_topics:
            continue
        try:
            plan = plan_put_back(image, lost)
        except ProtocolError:
            # Another topic has the name. The next start sets these directories aside, to be put back under a new name.
            continue
        if plan is not None:
            await carry_out(store, plan)
            image.load(await store.list(""))
            added.append(name)
    return added


def _topics(witness: Witness) -> list[tuple[str, TopicId]]:
    names = sorted(key for key in witness.keys if key.startswith(TOPIC_NAMES))
    return [(key.removeprefix(TOPIC_NAMES), TopicId(witness.keys[key].decode())) for key in names]


def _lost(witness: Witness, name: str, topic_id: TopicId, epochs: dict[int, int]) -> LostTopic | None:
    row_key, config_key = f"{TOPICS}{topic_id}", f"{TOPIC_CONFIGS}{topic_id}"
    if row_key not in witness.keys:
        return None
    overrides = decode_overrides(config_key, witness.keys[config_key]) if config_key in witness.keys else {}
    return LostTopic(name, topic_id, decode_topic(row_key, witness.keys[row_key]).partition_count, epochs, overrides)
