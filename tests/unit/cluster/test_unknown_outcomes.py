"""A writer whose store does not tell the outcomes of transactions: each change happens once, and is known to have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.cluster.forgetful_store import Fate, ForgetfulStore

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata.strays import Strays
from cordwood.cluster.metadata_writer import CreatedTopic, MetadataWriter
from cordwood.cluster.planner.configs import (
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    ResourceType,
)
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, TopicDeletion, TopicReference
from cordwood.cluster.stores.interface import KeyValue, Listing, OutcomeUnknown, Put, StoreFailure
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.broker_settings import BrokerSettings

SEEDS = range(15)


@asynccontextmanager
async def started(store: ForgetfulStore | MemoryStore, node_id: int = 1) -> AsyncIterator[MetadataWriter]:
    image = ClusterImage(node_id, BrokerSettings.from_texts({"node.id": str(node_id)}))
    writer = MetadataWriter(store, ImageFollower(store, image))
    await writer.start([Endpoint("PLAINTEXT", "host", 9092)])
    try:
        yield writer
    finally:
        await writer.stop()


def new_store() -> MemoryStore:
    return MemoryStore(retained_revisions=10_000)


async def listed(store: MemoryStore) -> ClusterImage:
    image = ClusterImage(1, BrokerSettings.from_texts({}))
    image.load(await store.list(""))
    return image


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_topic_is_created_once_and_is_whole(seed: int) -> None:
    store = new_store()
    one, two = (ForgetfulStore(store, 2 * seed + number, 0.2) for number in range(2))
    async with started(one, 1) as first, started(two, 2) as second:
        wanted = [NewTopic(f"t{number}", 150 if number % 3 == 0 else 2) for number in range(9)]
        outcomes = await asyncio.gather(*(each.create_topics(wanted) for each in (first, second)))
        image = await listed(store)
        for topic in wanted:
            both = [each[topic.name] for each in outcomes]
            created = [each for each in both if isinstance(each, CreatedTopic)]
            refused = {each.code for each in both if isinstance(each, ProtocolError)}
            assert refused <= {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT}
            assert len(created) <= 1
            for each in created:
                assert image.topics[topic.name].topic_id == each.topic_id
            if not created:
                assert ErrorCode.REQUEST_TIMED_OUT in refused
    assert one.unknown + two.unknown > 0
    async with started(store):
        image = await listed(store)
        assert image.strays() == Strays()
        assert all(len(image.topics[each.name].partitions) == each.partition_count for each in wanted)


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_block_of_producer_ids_is_given_out_twice(seed: int) -> None:
    store = new_store()
    async with (
        started(ForgetfulStore(store, 2 * seed, 0.4), 1) as first,
        started(ForgetfulStore(store, 2 * seed + 1, 0.4), 2) as second,
    ):
        blocks = await asyncio.gather(*(each.allocate_producer_ids(0) for each in (first, second) for _ in range(10)))
    assert len({block.start for block in blocks}) == 20


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_topic_that_grows_changes_and_goes_does_each_once(seed: int) -> None:
    store = new_store()
    forgetful = ForgetfulStore(store, seed, 0.15)
    topic = ConfigResource(ResourceType.TOPIC, "t")
    async with started(store, 2) as other, started(forgetful) as writer:
        await other.create_topics([NewTopic("t", 2)])
        await writer.follower.reach(other.image.revision)
        grown = (await writer.create_partitions([MorePartitions("t", 300)]))["t"]
        image = await listed(store)
        if isinstance(grown, PartitionAddition):
            assert len(image.topics["t"].partitions) == 300
        change = ConfigChange("retention.ms", AlterOperation.SET, "5")
        altered = (await writer.incremental_alter_configs([(topic, [change])]))[topic]
        if isinstance(altered, ConfigAlteration):
            assert (await listed(store)).topics["t"].overrides == {"retention.ms": "5"}
        deleted = (await writer.delete_topics([TopicReference("t")]))[TopicReference("t")]
        image = await listed(store)
        if isinstance(deleted, TopicDeletion):
            assert image.topics == {}
            assert [each.name for each in image.deleted_topics.values()] == ["t"]
    async with started(store):
        assert (await listed(store)).strays() == Strays()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_lone_broker_forgets_a_deletion_whatever_the_store_tells(seed: int) -> None:
    store = new_store()
    async with started(store) as writer:
        await writer.create_topics([NewTopic("t", 2)])
        await writer.delete_topics([TopicReference("t")])
    async with started(ForgetfulStore(store, seed, 0.4)) as writer:
        await writer.forget_deletions(list(writer.image.deleted_topics))
        assert (await listed(store)).deleted_topics == {}


async def test_a_deletion_that_happened_does_not_delete_a_later_topic_of_the_name() -> None:
    class RecreatingStore(ForgetfulStore):
        """Another broker creates the topic anew before the keys are read again."""

        armed = False

        async def list(self, prefix: str, revision: int = 0) -> Listing:
            if self.armed:
                self.armed = False
                await other.follower.reach((await store.list("none")).revision)
                created = (await other.create_topics([NewTopic("t", 3)]))["t"]
                assert isinstance(created, CreatedTopic)
            return await super().list(prefix, revision)

    store = new_store()
    forgetful = RecreatingStore(store, 0, 0.0, [Fate.HAPPENED])
    async with started(store, 2) as other, started(forgetful) as writer:
        await other.create_topics([NewTopic("t")])
        await writer.follower.reach(other.image.revision)
        forgetful.armed, forgetful._share = True, 1.0
        deleted = (await writer.delete_topics([TopicReference("t")]))[TopicReference("t")]
        assert isinstance(deleted, TopicDeletion)
        assert len((await listed(store)).topics["t"].partitions) == 3


async def test_an_outcome_that_cannot_be_read_is_told_as_unknown() -> None:
    class BlindStore(ForgetfulStore):
        async def list(self, prefix: str, revision: int = 0) -> Listing:
            if self._share == 1.0:
                raise StoreFailure("no route to the store")
            return await super().list(prefix, revision)

    forgetful = BlindStore(new_store(), 0, 0.0)
    async with started(forgetful) as writer:
        forgetful._share = 1.0
        with pytest.raises(OutcomeUnknown, match="no route to the store"):
            await writer.create_topics([NewTopic("t")])


async def at_version_one() -> MemoryStore:
    store = new_store()
    await store.txn((), [Put("cluster_id", b"c"), Put("metadata_version", b"1")])
    return store


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_version_is_finalised_and_known_to_be(seed: int) -> None:
    forgetful = ForgetfulStore(await at_version_one(), seed, 0.0)
    async with started(forgetful) as writer:
        forgetful._share = 0.5
        await writer.finalise_metadata_version(2)
        assert writer.image.metadata_version == 2


async def test_nobody_is_told_that_a_version_is_not_final_if_nobody_knows() -> None:
    class BlindStore(ForgetfulStore):
        async def list(self, prefix: str, revision: int = 0) -> Listing:
            self._look()
            return await super().list(prefix, revision)

        async def get(self, key: str) -> KeyValue | None:
            self._look()
            return await super().get(key)

        def _look(self) -> None:
            if self.unknown:
                raise StoreFailure("no route to the store")

    store = await at_version_one()
    forgetful = BlindStore(store, 0, 0.0, [Fate.HAPPENED])
    async with started(forgetful) as writer:
        forgetful._share = 1.0
        with pytest.raises(OutcomeUnknown, match="no route to the store"):
            await writer.finalise_metadata_version(2)
        assert (await listed(store)).metadata_version == 2
