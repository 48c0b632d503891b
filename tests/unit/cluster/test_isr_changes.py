"""Leaders change in-sync sets: by compare-and-set, with the eligible leader replicas kept beside them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.unit.cluster.forgetful_store import Fate, ForgetfulStore

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.configs import AlterOperation, ConfigChange, ConfigResource, ResourceType
from cordwood.cluster.planner.isr import GuardedPut, IsrChange, IsrOutcome, batches
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import KeyValue, Put, StoreUnavailable, has_mod_revision, has_value
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings


@asynccontextmanager
async def brokers(store: MemoryStore, *, first: ForgetfulStore | None = None) -> AsyncIterator[list[MetadataWriter]]:
    """Three brokers that share the store; broker 1 may reach it by a connection of its own."""
    async with AsyncExitStack() as stack:
        writers = []
        for node_id in (1, 2, 3):
            reached = first if node_id == 1 and first is not None else store
            image = ClusterImage(node_id, BrokerSettings.from_texts({"node.id": str(node_id)}))
            writer = MetadataWriter(reached, ImageFollower(reached, image))
            await writer.start([Endpoint("PLAINTEXT", "host", 9092)])
            stack.push_async_callback(writer.stop)
            writers.append(writer)
        for writer in writers:
            await writer.follower.reach((await store.list("none")).revision)
        yield writers


async def topic(writer: MetadataWriter, partitions: int = 1, min_insync: int = 1) -> TopicImage:
    """A topic that broker 1 leads."""
    assignments = tuple(Assignment(number, (1, 2, 3)) for number in range(partitions))
    configs = {"min.insync.replicas": str(min_insync)}
    await writer.create_topics([NewTopic("t", assignments=assignments, configs=configs)])
    return writer.image.topics["t"]


def change(writer: MetadataWriter, isr: tuple[int, ...], partition: int = 0) -> IsrChange:
    found = writer.image.topics["t"]
    seen = found.partitions[partition]
    epochs = {broker: writer.image.broker_epochs[broker] for broker in isr}
    leader_epoch = writer.image.leadership(seen).epoch
    return IsrChange(
        found.topic_id, partition, leader_epoch, seen.partition_epoch, seen.mod_revision, isr, broker_epochs=epochs
    )


async def changed(writer: MetadataWriter, isr: tuple[int, ...]) -> tuple[IsrOutcome, tuple[int, ...], tuple[int, ...]]:
    (outcome,) = (await writer.change_isr([change(writer, isr)])).values()
    partition = writer.image.topics["t"].partitions[0]
    return outcome, partition.isr, partition.elr


async def test_a_leader_shrinks_and_expands_its_isr() -> None:
    async with brokers(MemoryStore()) as (writer, *_):
        before = (await topic(writer)).partitions[0]
        assert await changed(writer, (1, 3)) == (IsrOutcome.APPLIED, (1, 3), ())
        assert await changed(writer, (3, 2, 1)) == (IsrOutcome.APPLIED, (1, 2, 3), ())
        after = writer.image.topics["t"].partitions[0]
        assert (after.partition_epoch, after.leader_epoch) == (before.partition_epoch + 2, before.leader_epoch)


async def test_replicas_that_leave_an_isr_below_its_minimum_stay_eligible() -> None:
    async with brokers(MemoryStore()) as (writer, *_):
        await topic(writer, min_insync=2)
        assert await changed(writer, (1, 2)) == (IsrOutcome.APPLIED, (1, 2), ())
        assert await changed(writer, (1,)) == (IsrOutcome.APPLIED, (1,), (2,))
        assert await changed(writer, (1, 3)) == (IsrOutcome.APPLIED, (1, 3), ())


async def test_a_replica_whose_log_is_gone_is_not_eligible() -> None:
    async with brokers(MemoryStore()) as (one, *_):
        await topic(one, min_insync=3)
        gone = change(one, (1, 2))._replace(lost=frozenset({3}))
        assert list((await one.change_isr([gone])).values()) == [IsrOutcome.APPLIED]
        partition = one.image.topics["t"].partitions[0]
        assert (partition.isr, partition.elr) == ((1, 2), ())


async def test_an_isr_below_its_minimum_keeps_its_eligible_replicas_when_it_shrinks_again() -> None:
    async with brokers(MemoryStore()) as (writer, *_):
        await topic(writer, min_insync=3)
        assert await changed(writer, (1, 2)) == (IsrOutcome.APPLIED, (1, 2), (3,))
        assert await changed(writer, (1,)) == (IsrOutcome.APPLIED, (1,), (2, 3))
        assert await changed(writer, (1, 3)) == (IsrOutcome.APPLIED, (1, 3), (2,))


async def test_a_leader_empties_the_elr_after_the_minimum_was_lowered() -> None:
    async with brokers(MemoryStore()) as (writer, *_):
        await topic(writer, min_insync=2)
        await changed(writer, (1,))
        lowered = ConfigChange("min.insync.replicas", AlterOperation.SET, "1")
        await writer.incremental_alter_configs([(ConfigResource(ResourceType.TOPIC, "t"), [lowered])])
        assert writer.image.topics["t"].partitions[0].elr == (2, 3)
        assert await changed(writer, (1,)) == (IsrOutcome.APPLIED, (1,), ())
        assert await changed(writer, (1,)) == (IsrOutcome.REFUSED, (1,), ())


async def test_a_change_that_another_write_has_overtaken_is_refused() -> None:
    store = MemoryStore()
    async with brokers(store) as (writer, *_):
        await topic(writer)
        stale = change(writer, (1, 2))
        assert await changed(writer, (1, 3)) == (IsrOutcome.APPLIED, (1, 3), ())
        assert list((await writer.change_isr([stale])).values()) == [IsrOutcome.REFUSED]
        key = f"partitions/{writer.image.topics['t'].topic_id}/0"
        item = await store.get(key)
        assert item is not None
        unseen = change(writer, (1,))
        await store.txn((), [Put(key, item.value.replace(b'"recovering":false', b'"recovering":true'))])
        assert list((await writer.change_isr([unseen])).values()) == [IsrOutcome.REFUSED]


async def test_only_the_leader_changes_the_isr() -> None:
    async with brokers(MemoryStore()) as (writer, other, _):
        await topic(writer)
        await other.follower.reach(writer.image.revision)
        assert await changed(other, (1, 2)) == (IsrOutcome.REFUSED, (1, 2, 3), ())


async def test_a_replica_that_registered_again_is_not_added_by_its_old_epoch() -> None:
    store = MemoryStore()
    async with brokers(store) as (writer, *_):
        await topic(writer)
        await changed(writer, (1, 3))
        caught_up = change(writer, (1, 2, 3))
        await store.txn((), [Put("broker_epoch/2", b"2")])
        assert list((await writer.change_isr([caught_up])).values()) == [IsrOutcome.REFUSED]
        assert writer.image.topics["t"].partitions[0].isr == (1, 3)


async def test_one_stale_change_of_many_holds_up_no_other() -> None:
    async with brokers(MemoryStore()) as (writer, *_):
        await topic(writer, partitions=300)
        changes = [change(writer, (1, 2), number) for number in range(300)]
        await writer.change_isr([change(writer, (1, 3), 77)])
        changes[77] = changes[77]._replace(mod_revision=writer.image.topics["t"].partitions[77].mod_revision)
        outcomes = await writer.change_isr(changes)
        topic_id = changes[0].topic_id
        assert [number for (_, number), outcome in outcomes.items() if outcome is IsrOutcome.REFUSED] == [77]
        assert outcomes[topic_id, 299] is IsrOutcome.APPLIED
        assert {partition.isr for partition in writer.image.topics["t"].partitions} == {(1, 2), (1, 3)}


def test_batches_keep_to_the_limit_of_comparisons() -> None:
    def write(number: int, added: int) -> GuardedPut:
        epochs = tuple(has_value(f"broker_epoch/{broker}", b"1") for broker in range(added))
        return GuardedPut(Put(str(number), b""), (has_mod_revision(str(number), 1), *epochs))

    groups = list(batches([write(number, number % 40) for number in range(1000)]))
    assert [each for group in groups for each in group] == [write(number, number % 40) for number in range(1000)]
    for group in groups:
        assert len({compare for each in group for compare in each.compares}) <= 126


@pytest.mark.parametrize("seed", range(15))
async def test_every_outcome_is_true_whatever_the_store_tells(seed: int) -> None:
    store = MemoryStore(retained_revisions=10_000)
    forgetful = ForgetfulStore(store, seed, 0.4)
    async with brokers(store, first=forgetful) as (writer, other, _):
        await topic(other, partitions=20, min_insync=2)
        await writer.follower.reach(other.image.revision)
        for isr in ((1, 2), (1,), (1, 2, 3)):
            before = writer.image.topics["t"].partitions
            outcomes = await writer.change_isr([change(writer, isr, number) for number in range(20)])
            await other.follower.reach((await store.list("none")).revision)
            after = other.image.topics["t"].partitions
            for (_, number), outcome in outcomes.items():
                assert outcome is IsrOutcome.APPLIED
                assert after[number].isr == isr
                assert after[number].partition_epoch == before[number].partition_epoch + 1
    assert forgetful.unknown


async def test_a_store_that_cannot_be_read_leaves_the_outcome_unknown() -> None:
    class Unreadable(ForgetfulStore):
        readable = True

        async def get(self, key: str) -> KeyValue | None:
            if not self.readable:
                raise StoreUnavailable("gone")
            return await super().get(key)

    store = MemoryStore()
    connection = Unreadable(store, 1, 0.0, [Fate.NEVER_HAPPENS])
    async with brokers(store, first=connection) as (writer, *_):
        await topic(writer)
        wanted = change(writer, (1, 2))
        connection._share, connection.readable = 1.0, False
        assert list((await writer.change_isr([wanted])).values()) == [IsrOutcome.UNKNOWN]
        connection._share, connection.readable = 0.0, True
        assert list((await writer.change_isr([wanted])).values()) == [IsrOutcome.APPLIED]
        await asyncio.sleep(0)
        assert writer.image.topics["t"].partitions[0].isr == (1, 2)
