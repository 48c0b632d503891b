"""Releases share a store: rows keep what only newer ones know, and a release that cannot read them does not start."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import pytest
from tests.unit.cluster.metadata import Metadata

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.image import ClusterImage
from cordwood.cluster.metadata_version import SUPPORTED, UnsupportedMetadata, VersionRange
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.put_back import LostTopic, plan_put_back
from cordwood.cluster.planner.sweep import partition_groups, sweep_partitions
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, plan_create_partitions
from cordwood.cluster.rows import (
    Endpoint,
    decode_broker,
    decode_partition,
    decode_topic,
    encode_broker,
    encode_partition,
    encode_topic,
)
from cordwood.cluster.stores.interface import Delete, MetadataStore, Put
from cordwood.model.broker_settings import BrokerSettings

ENDPOINTS = [Endpoint("PLAINTEXT", "host", 9092)]


class OpenStore(Protocol):
    def __call__(self) -> AbstractAsyncContextManager[MetadataStore]: ...


def new_writer(store: MetadataStore, versions: VersionRange = SUPPORTED, node_id: int = 1) -> MetadataWriter:
    image = ClusterImage(node_id, BrokerSettings.from_texts({"node.id": str(node_id)}))
    return MetadataWriter(store, ImageFollower(store, image), metadata_versions=versions)


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
                await store.txn((), [Put("metadata_version", b"2")])
            return item

        store.get = finalise_meanwhile  # type: ignore[method-assign]
        with pytest.raises(UnsupportedMetadata):
            await new_writer(store).start(ENDPOINTS)
        assert await get("brokers/1") is None


async def test_an_image_forgets_a_version_that_is_gone() -> None:
    metadata = await Metadata().register(1)
    await metadata.store.txn((), [Put("metadata_version", b"3")])
    await metadata.refresh()
    assert metadata.image.metadata_version == 3
    await metadata.store.txn((), [Delete("metadata_version")])
    await metadata.refresh()
    assert metadata.image.metadata_version == (await metadata.copy()).metadata_version == 1
