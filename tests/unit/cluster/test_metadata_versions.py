"""Releases share a store: rows keep what only newer ones know, and a release that cannot read them does not start."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import pytest
from tests.unit.cluster.metadata import Metadata

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import (
    DamagedMetadata,
    Endpoint,
    PartitionRow,
    decode_broker,
    decode_partition,
    decode_topic,
    encode_broker,
    encode_partition,
    encode_topic,
)
from cordwood.cluster.metadata.versions import (
    FIRST_VERSION,
    SHORT_PARTITION_ROWS,
    SUPPORTED,
    UnsupportedMetadata,
    VersionRange,
)
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.put_back import LostTopic, plan_put_back
from cordwood.cluster.planner.sweep import partition_groups, sweep_partitions
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, plan_create_partitions
from cordwood.cluster.stores.interface import Delete, MetadataStore, Put
from cordwood.model.settings.broker_settings import BrokerSettings

ENDPOINTS = [Endpoint("PLAINTEXT", "host", 9092)]
BEYOND = SUPPORTED.highest + 1
"""The version of a release that does not exist yet."""


class OpenStore(Protocol):
    def __call__(self) -> AbstractAsyncContextManager[MetadataStore]: ...


def new_writer(store: MetadataStore, versions: VersionRange = SUPPORTED, node_id: int = 1) -> MetadataWriter:
    image = ClusterImage(node_id, BrokerSettings.from_texts({"node.id": str(node_id)}), versions)
    return MetadataWriter(store, ImageFollower(store, image))


async def value(store: MetadataStore, key: str) -> bytes | None:
    item = await store.get(key)
    return None if item is None else item.value


def with_news(row: bytes) -> tuple[bytes, dict[str, Any]]:
    """The row as a newer release writes it."""
    fields = json.loads(row) | {"tier": {"bucket": "b", "parts": [1, 2]}, "weight": 3}
    return json.dumps(fields).encode(), fields


async def test_rows_keep_fields_that_they_do_not_know() -> None:
    metadata = await Metadata().register(1)
    topic = await metadata.create(NewTopic("t", 1))
    rewritten: dict[str, Callable[[bytes], bytes]] = {
        "brokers/1": lambda row: encode_broker(decode_broker("a broker", row)),
        f"topics/{topic.topic_id}": lambda row: encode_topic(decode_topic("a topic", row)),
        f"partitions/{topic.topic_id}/0": lambda row: encode_partition(decode_partition(row)),
    }
    for key, read_and_write in rewritten.items():
        row = await value(metadata.store, key)
        assert row is not None
        assert read_and_write(row) == row
        newer, fields = with_news(row)
        assert json.loads(read_and_write(newer)) == fields


async def test_a_topic_that_grows_or_is_swept_keeps_unknown_fields() -> None:
    metadata = await Metadata().register(1)
    key = f"topics/{(await metadata.create(NewTopic('t', 1))).topic_id}"
    row = await value(metadata.store, key)
    assert row is not None
    newer, fields = with_news(row)
    await metadata.store.txn((), [Put(key, newer)])
    await metadata.refresh()
    addition = plan_create_partitions(metadata.image, [MorePartitions("t", 300)])["t"]
    assert isinstance(addition, PartitionAddition)
    await metadata.store.txn(*addition.plan.preparations[0])
    await metadata.refresh()
    (stray,) = metadata.image.strays().partitions
    for group in partition_groups(stray):
        await metadata.store.txn(*sweep_partitions(stray, group, metadata.image.topics["t"].mod_revision))
        await metadata.refresh()
    assert json.loads(await value(metadata.store, key) or b"") == fields
    addition = plan_create_partitions(metadata.image, [MorePartitions("t", 3)])["t"]
    assert isinstance(addition, PartitionAddition)
    await metadata.carry_out(addition.plan)
    assert json.loads(await value(metadata.store, key) or b"") == fields | {"partition_count": 3}
    lost = LostTopic("t", metadata.image.topics["t"].topic_id, 5)
    await metadata.carry_out(plan_put_back(metadata.image, lost))
    assert json.loads(await value(metadata.store, key) or b"") == fields | {"partition_count": 5}


async def test_a_new_cluster_has_the_newest_version_and_brokers_register_their_range(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = new_writer(store, VersionRange(2, 4))
        await writer.start(ENDPOINTS)
        assert await value(store, "metadata_version") == b"4"
        assert writer.image.metadata_version == 4
        assert writer.image.brokers[1].metadata_versions == VersionRange(2, 4)
        await writer.stop()


async def test_a_store_without_a_version_gets_the_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.txn((), [Put("cluster_id", b"older")])
        writer = new_writer(store, VersionRange(1, 4))
        await writer.start(ENDPOINTS)
        assert await value(store, "metadata_version") == b"1"
        assert writer.image.cluster_id == "older"
        await writer.stop()


@pytest.mark.parametrize(
    ("finalised", "cure"), [(b"1", "start the releases in between first"), (b"5", "start a newer release of Cordwood")]
)
async def test_a_broker_that_does_not_support_the_version_refuses_to_start(
    open_store: OpenStore, finalised: bytes, cure: str
) -> None:
    async with open_store() as store:
        await store.txn((), [Put("cluster_id", b"c"), Put("metadata_version", finalised)])
        before = await store.list("")
        with pytest.raises(UnsupportedMetadata, match=f"version {finalised.decode()}, .* versions 2 to 4: {cure}"):
            await new_writer(store, VersionRange(2, 4)).start(ENDPOINTS)
        assert await store.list("") == before


async def test_a_version_that_is_finalised_while_a_broker_registers_is_noticed(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.txn((), [Put("cluster_id", b"c"), Put("metadata_version", b"1")])
        get = store.get

        async def finalise_meanwhile(key: str) -> Any:
            item = await get(key)
            if key == "broker_epoch/1":
                await store.txn((), [Put("metadata_version", b"%d" % BEYOND)])
            return item

        store.get = finalise_meanwhile  # type: ignore[method-assign]
        with pytest.raises(UnsupportedMetadata):
            await new_writer(store).start(ENDPOINTS)
        assert await get("brokers/1") is None


async def test_an_image_forgets_a_version_that_is_gone() -> None:
    metadata = await Metadata().register(1)
    await metadata.store.txn((), [Put("metadata_version", b"2")])
    await metadata.refresh()
    assert metadata.image.metadata_version == 2
    await metadata.store.txn((), [Delete("metadata_version")])
    await metadata.refresh()
    assert metadata.image.metadata_version == (await metadata.copy()).metadata_version == 1


@pytest.mark.parametrize("version", range(SUPPORTED.lowest, SUPPORTED.highest + 1))
@pytest.mark.parametrize(
    "row",
    [
        PartitionRow(1, 1, 0, (1,), (1,)),
        PartitionRow(-1, 0, 7, (1, 2, 3), (), (2,), (4,), (3,), 9, True, 6, ((2, "a1"),), 5, (("tier", [1]),)),
    ],
)
def test_a_partition_reads_as_it_was_written_in_every_version(row: PartitionRow, version: int) -> None:
    assert decode_partition(encode_partition(row, version)) == row


async def test_a_cluster_writes_short_rows_once_their_version_is_final() -> None:
    metadata = await Metadata().register(1)
    assert metadata.image.metadata_version == FIRST_VERSION
    long = await value(metadata.store, f"partitions/{(await metadata.create(NewTopic('a', 1))).topic_id}/0")
    await metadata.store.txn((), [Put("metadata_version", b"%d" % SHORT_PARTITION_ROWS)])
    await metadata.refresh()
    short = await value(metadata.store, f"partitions/{(await metadata.create(NewTopic('b', 1))).topic_id}/0")
    assert long is not None
    assert short is not None
    assert decode_partition(long) == decode_partition(short)
    later = {"lossy_epoch", "former_storage", "accepted_epoch"}
    assert json.loads(long).keys() == set(PartitionRow._fields) - {"unknown"} - later
    assert json.loads(short).keys() == {"leader", "leader_broker_epoch", "leader_epoch", "replicas", "isr"}


async def test_a_broker_that_runs_refuses_a_version_that_it_does_not_support(open_store: OpenStore) -> None:
    async with open_store() as store:
        writer = new_writer(store)
        await writer.start(ENDPOINTS)
        # The row is as a later release may write it: it must not be looked at.
        await store.txn((), [Put("metadata_version", b"%d" % BEYOND)])
        await store.txn((), [Put("brokers/7", b"in another format")])
        with pytest.raises(UnsupportedMetadata, match=f"version {BEYOND}, .*start a newer release"):
            await writer.follower.stopped
        await writer.stop()


async def test_a_store_of_a_later_version_is_refused_before_its_rows_are_read() -> None:
    metadata = Metadata()
    await metadata.store.txn((), [Put("metadata_version", b"%d" % BEYOND), Put("brokers/7", b"in another format")])
    with pytest.raises(UnsupportedMetadata):
        await metadata.copy()


async def test_a_version_that_is_no_number_is_damage() -> None:
    metadata = await Metadata().register(1)
    await metadata.store.txn((), [Put("metadata_version", b"two")])
    for look in (metadata.copy, metadata.refresh):
        with pytest.raises(DamagedMetadata, match="metadata_version does not hold a number: b'two'"):
            await look()


async def test_a_broker_told_to_stay_at_a_version_begins_a_cluster_with_it_and_refuses_a_later_one() -> None:
    metadata = Metadata(metadata_version_max="1")
    writer = MetadataWriter(metadata.store, ImageFollower(metadata.store, metadata.image))
    await writer.start(ENDPOINTS)
    assert await value(metadata.store, "metadata_version") == b"1"
    assert metadata.image.brokers[1].metadata_versions == VersionRange(1, 1)
    await writer.stop()
    await metadata.store.txn((), [Put("metadata_version", b"2")])
    image = ClusterImage(1, metadata.settings)
    with pytest.raises(UnsupportedMetadata, match=r"only version 1: take the setting metadata\.version\.max away"):
        await MetadataWriter(metadata.store, ImageFollower(metadata.store, image)).start(ENDPOINTS)
    with pytest.raises(UnsupportedMetadata, match=r"metadata\.version\.max is 77, and this release supports"):
        Metadata(metadata_version_max="77")
