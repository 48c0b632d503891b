"""The writer carries changes out over a real store, survives being interrupted anywhere, and knows when to stop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.unit.cluster.forgetful_store import Fate, ForgetfulStore
from tests.unit.cluster.metadata import refusal

from cordwood.cluster.authority import Fenced
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata.strays import Strays
from cordwood.cluster.metadata_writer import CreatedTopic, MetadataWriter
from cordwood.cluster.planner.configs import AlterOperation, ConfigChange, ConfigResource, ResourceType
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, PartitionAddition, TopicDeletion, TopicReference
from cordwood.cluster.stores.interface import (
    Compare,
    KeyValue,
    Listing,
    MetadataStore,
    Operation,
    OutcomeUnknown,
    Put,
    StoreClosed,
    StoreFailure,
    TxnResult,
    WatchStep,
)
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.sqlite import SqliteStore
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.model.settings.broker_settings import BrokerSettings

ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092)]
TOPIC = ConfigResource(ResourceType.TOPIC, "t")


class OpenStore(Protocol):
    def __call__(self, *, retained_revisions: int = ...) -> AbstractAsyncContextManager[MetadataStore]: ...


@pytest.fixture(params=["memory", "sqlite", "forgetful"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Every store, and one that leaves outcomes unknown."""

    @asynccontextmanager
    async def open_one(**options: Any) -> AsyncIterator[MetadataStore]:
        store: MetadataStore
        if request.param == "memory":
            store = MemoryStore(**options)
        elif request.param == "sqlite":
            store = await SqliteStore.open(str(tmp_path / "metadata.sqlite"), **options)
        else:
            store = ForgetfulStore(MemoryStore(**options), 1, 0.1, [Fate.HAPPENED, Fate.NEVER_HAPPENS])
        try:
            yield store
        finally:
            await store.close()

    return open_one


@asynccontextmanager
async def started(store: MetadataStore, **texts: str) -> AsyncIterator[MetadataWriter]:
    settings = BrokerSettings.from_texts({name.replace("_", "."): text for name, text in texts.items()})
    follower = ImageFollower(store, ClusterImage(settings.node_id, settings))
    writer = MetadataWriter(store, follower)
    await writer.start(ENDPOINTS)
    try:
        yield writer
    finally:
        await writer.stop()


async def test_a_new_store_becomes_a_cluster_of_one(open_store: OpenStore) -> None:
    async with open_store() as store, started(store, broker_rack="r1") as writer:
        image = writer.image
        assert len(image.cluster_id) == 22
        assert image.controller_id == 1
        broker = image.brokers[1]
        assert (broker.epoch, broker.endpoints, broker.rack) == (1, tuple(ENDPOINTS), "r1")
        assert writer.broker_epoch == 1


async def test_the_cluster_keeps_its_id_and_the_broker_gets_a_new_epoch_at_every_start(open_store: OpenStore) -> None:
    async with open_store() as store:
        async with started(store) as first:
            await first.create_topics([NewTopic("t", 2)])
        async with started(store) as second:
            assert second.image.cluster_id == first.image.cluster_id
            assert second.broker_epoch == 2
            image = second.image
            assert [image.leadership(each) for each in image.topics["t"].partitions] == [(1, 1), (1, 1)]
            assert second.image.brokers[1].incarnation != first.image.brokers[1].incarnation


async def test_a_created_topic_is_in_the_image_when_its_creation_returns(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        deltas: list[ImageDelta] = []
        writer.follower.on_change = deltas.append
        outcomes = await writer.create_topics(
            [NewTopic("big", 1000, configs={"retention.ms": "5"}), NewTopic("bad name"), NewTopic("small")]
        )
        assert list(outcomes) == ["big", "bad name", "small"]
        created = outcomes["big"]
        assert isinstance(created, CreatedTopic)
        topic = writer.image.topics["big"]
        assert (created.topic_id, created.partition_count, created.replication_factor) == (topic.topic_id, 1000, 1)
        assert created.overrides["retention.ms"] == "5"
        assert len(topic.partitions) == 1000
        assert refusal(outcomes["bad name"])[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert sorted(created.name for delta in deltas for created in delta.created) == ["big", "small"]


async def test_validating_only_says_what_would_happen_and_does_nothing(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        await writer.create_topics([NewTopic("t")])
        before = await store.list("")
        created = (await writer.create_topics([NewTopic("u", 3)], validate_only=True))["u"]
        assert isinstance(created, CreatedTopic)
        assert created.partition_count == 3
        grown = (await writer.create_partitions([MorePartitions("t", 3)], validate_only=True))["t"]
        assert isinstance(grown, PartitionAddition)
        change = ConfigChange("retention.ms", AlterOperation.SET, "x")
        altered = (await writer.incremental_alter_configs([(TOPIC, [change])], validate_only=True))[TOPIC]
        assert refusal(altered)[0] is ErrorCode.INVALID_CONFIG
        assert await store.list("") == before


async def test_topics_grow_change_and_go(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        await writer.create_topics([NewTopic("t")])
        await writer.create_partitions([MorePartitions("t", 400)])
        assert len(writer.image.topics["t"].partitions) == 400
        await writer.incremental_alter_configs([(TOPIC, [ConfigChange("retention.ms", 0, "5")])])
        assert writer.image.topics["t"].settings.retention_ms == 5
        await writer.replace_configs([(TOPIC, [("segment.bytes", "5000")])])
        assert writer.image.topics["t"].overrides == {"segment.bytes": "5000"}
        outcome = (await writer.delete_topics([TopicReference("t")]))[TopicReference("t")]
        assert isinstance(outcome, TopicDeletion)
        assert writer.image.topics == {}
        assert (await store.list("partitions/")).items == []


async def test_many_requests_at_once_are_all_carried_out(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        outcomes = await asyncio.gather(
            *(writer.create_topics([NewTopic(f"t{number % 20}", 2)]) for number in range(40))
        )
        created = [name for outcome in outcomes for name, each in outcome.items() if isinstance(each, CreatedTopic)]
        refused = [refusal(each)[0] for outcome in outcomes for each in outcome.values() if isinstance(each, Exception)]
        assert sorted(created) == sorted(writer.image.topics)
        assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS] * 20


async def test_the_brokers_own_topic_is_created_once_by_whoever_needs_it_first(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        topics = await asyncio.gather(*(writer.ensure_internal_topic(CONSUMER_OFFSETS_TOPIC) for _ in range(5)))
        assert {topic.topic_id for topic in topics} == {writer.image.topics[CONSUMER_OFFSETS_TOPIC].topic_id}
        assert topics[0].internal


async def test_the_brokers_own_topic_grows_with_the_cluster(open_store: OpenStore) -> None:
    async with open_store() as store, started(store, offsets_topic_replication_factor="3") as writer:
        await writer.ensure_internal_topic(CONSUMER_OFFSETS_TOPIC)
        assert {each.replicas for each in writer.image.topics[CONSUMER_OFFSETS_TOPIC].partitions} == {(1,)}
        async with started(store, node_id="2"), started(store, node_id="3") as last:
            await writer.follower.reach(last.image.revision)
            await writer.grow_internal_topics()
            grown = writer.image.topics[CONSUMER_OFFSETS_TOPIC].partitions
            assert {frozenset(each.replicas) for each in grown} == {frozenset({1, 2, 3})}


async def test_no_producer_id_is_ever_given_twice(open_store: OpenStore) -> None:
    async with open_store() as store:
        blocks: list[range] = []
        for _ in range(2):
            async with started(store) as writer:
                blocks += await asyncio.gather(*(writer.allocate_producer_ids(0) for _ in range(5)))
        assert len({producer_id for block in blocks for producer_id in block}) == 10_000
        assert {len(block) for block in blocks} == {1000}


async def test_two_brokers_that_create_the_same_topic_at_once_create_it_once(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as one, started(store, node_id="2") as other:
        outcomes = await asyncio.gather(
            one.create_topics([NewTopic("t", 500)]), other.create_topics([NewTopic("t", 300)])
        )
        created = [each for outcome in outcomes for each in outcome.values() if isinstance(each, CreatedTopic)]
        refused = [refusal(each)[0] for outcome in outcomes for each in outcome.values() if isinstance(each, Exception)]
        assert len(created) == 1
        assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS]
        await one.follower.reach(other.image.revision)
        await other.follower.reach(one.image.revision)
        assert one.image.topics == other.image.topics
        assert len((await store.list("partitions/")).items) == created[0].partition_count
        assert one.image.strays() == other.image.strays() == Strays()


async def test_two_brokers_that_grow_the_same_topic_at_once_leave_whole_partitions(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as one, started(store, node_id="2") as other:
        await one.create_topics([NewTopic("t", 1)])
        await other.follower.reach(one.image.revision)
        await asyncio.gather(
            one.create_partitions([MorePartitions("t", 400)]), other.create_partitions([MorePartitions("t", 300)])
        )
        await one.follower.reach((await store.list("none")).revision)
        count = len(one.image.topics["t"].partitions)
        assert count in (300, 400)
        assert len((await store.list("partitions/")).items) == count


async def test_two_brokers_that_change_different_settings_of_a_topic_at_once_both_change_them(
    open_store: OpenStore,
) -> None:
    async with open_store() as store, started(store) as one, started(store, node_id="2") as other:
        await one.create_topics([NewTopic("t")])
        await other.follower.reach(one.image.revision)
        await asyncio.gather(
            one.incremental_alter_configs([(TOPIC, [ConfigChange("retention.ms", AlterOperation.SET, "5")])]),
            other.incremental_alter_configs([(TOPIC, [ConfigChange("segment.ms", AlterOperation.SET, "6")])]),
        )
        await one.follower.reach(other.image.revision)
        assert one.image.topics["t"].overrides == {"retention.ms": "5", "segment.ms": "6"}


async def test_a_broker_that_was_registered_again_elsewhere_may_not_write_any_more(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as old, started(store):
        with pytest.raises(Fenced):
            await old.create_topics([NewTopic("t")])
        with pytest.raises(Fenced):
            await old.allocate_producer_ids(0)
        assert (await store.list("topic")).items == []


async def test_an_image_that_fell_behind_a_compaction_is_listed_again(open_store: OpenStore) -> None:
    async with open_store(retained_revisions=1) as store, started(store) as writer:
        puts = (store.txn((), [Put("cluster_id", b"%d" % number)]) for number in range(50))
        await asyncio.gather(*puts, return_exceptions=True)
        outcomes = await writer.create_topics([NewTopic(f"t{number}") for number in range(50)])
        assert all(isinstance(outcome, CreatedTopic) for outcome in outcomes.values())
        assert len(writer.image.topics) == 50
        cluster_id = await store.get("cluster_id")
        assert cluster_id is not None
        assert writer.image.cluster_id == cluster_id.value.decode()


async def test_a_store_that_fails_stops_the_writer_and_says_why(open_store: OpenStore) -> None:
    async with open_store() as store, started(store) as writer:
        await store.close()
        with pytest.raises(StoreClosed):
            await writer.follower.stopped
        with pytest.raises(StoreFailure):
            await writer.create_topics([NewTopic("t")])


async def test_a_writer_that_is_stopped_ends_quietly(open_store: OpenStore) -> None:
    async with open_store() as store:
        async with started(store) as writer:
            pass
        assert writer.follower.stopped.done()
        await writer.follower.stopped
        with pytest.raises(StoreFailure):
            await writer.follower.reach(writer.image.revision + 1)


class InterruptedStore:
    """A real store whose power fails at one transaction: before it is written, or after it but before the answer."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.left = -1
        """Transactions until the power fails; -1: it does not."""
        self.written_at_failure = False

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        if self.left > 0:
            self.left -= 1
        elif self.left == 0:
            if self.written_at_failure:
                self.written_at_failure = False
                await self._store.txn(compares, operations)
            raise OutcomeUnknown("the power failed")
        return await self._store.txn(compares, operations)

    async def grant(self, ttl_ms: int) -> int:
        return await self._store.grant(ttl_ms)

    async def renew(self, lease: int) -> None:
        await self._store.renew(lease)

    async def revoke(self, lease: int) -> None:
        await self._store.revoke(lease)

    async def get(self, key: str) -> KeyValue | None:
        self._check_power()
        return await self._store.get(key)

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        self._check_power()
        return await self._store.list(prefix, revision)

    def _check_power(self) -> None:
        if self.left == 0:
            raise StoreFailure("the power failed")

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        return self._store.watch(prefix, from_revision)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        await self._store.close()


async def interrupted_everywhere(
    change: Callable[[MetadataWriter], Awaitable[object]], outcome: Callable[[MetadataWriter], object]
) -> list[object]:
    """What a restarted broker sees after the change was interrupted at its first, second, ... transaction."""
    seen = []
    for after in (False, True):
        left = 0
        while True:
            store = InterruptedStore(MemoryStore(retained_revisions=10_000))
            async with started(store) as writer:
                await writer.create_topics([NewTopic("before", 3)])
                store.left, store.written_at_failure = left, after
                try:
                    await change(writer)
                    whole = True
                except StoreFailure:
                    whole = False
                store.left = -1
            async with started(store) as restarted:
                seen.append(outcome(restarted))
                revision = (await store.list("")).revision
                await restarted.follower.reach(revision)
                assert restarted.image.strays() == Strays()
                assert len((await store.list("partitions/")).items) == restarted.image.partition_count
            if whole:
                break
            left += 1
        assert left > 0, "the change was never interrupted"
    return seen


async def test_a_creation_interrupted_anywhere_leaves_no_topic_or_the_whole_topic() -> None:
    def outcome(writer: MetadataWriter) -> int:
        topic = writer.image.topics.get("t")
        return 0 if topic is None else len(topic.partitions)

    seen = await interrupted_everywhere(lambda writer: writer.create_topics([NewTopic("t", 700)]), outcome)
    assert set(seen) == {0, 700}


async def test_an_addition_interrupted_anywhere_leaves_the_old_partitions_or_all_new_ones() -> None:
    seen = await interrupted_everywhere(
        lambda writer: writer.create_partitions([MorePartitions("before", 700)]),
        lambda writer: len(writer.image.topics["before"].partitions),
    )
    assert set(seen) == {3, 700}


async def test_a_deletion_interrupted_anywhere_leaves_the_whole_topic_or_nothing() -> None:
    def outcome(writer: MetadataWriter) -> int:
        topic = writer.image.topics.get("before")
        return 0 if topic is None else len(topic.partitions)

    seen = await interrupted_everywhere(lambda writer: writer.delete_topics([TopicReference("before")]), outcome)
    assert set(seen) == {0, 3}


async def test_several_topics_of_one_request_interrupted_anywhere_are_whole_each() -> None:
    seen = await interrupted_everywhere(
        lambda writer: writer.create_topics([NewTopic("a", 200), NewTopic("b", 2), NewTopic("c", 300)]),
        lambda writer: tuple(len(topic.partitions) for topic in writer.image.sorted_topics() if topic.name != "before"),
    )
    assert all(isinstance(each, tuple) and set(each) <= {200, 2, 300} for each in seen)
    assert (200, 2, 300) in seen
