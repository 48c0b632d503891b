"""An etcd that others write to as well: its revision moves without a change below the cluster's prefix."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.etcd.members import EtcdCluster

from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import CreatedTopic, MetadataWriter
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
from cordwood.cluster.stores.interface import Put, absent
from cordwood.model.settings.broker_settings import BrokerSettings

SOON_S = 20
"""Far more than a wait takes on a busy machine. A cluster that is stuck never comes to the end of its wait."""


@asynccontextmanager
async def opened(etcd: EtcdCluster, cluster: str) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdOptions(etcd.endpoints, cluster, deadline_ms=30_000, attempt_ms=30_000))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def broker(etcd: EtcdCluster, cluster: str, broker_id: int) -> AsyncIterator[MetadataWriter]:
    """The writer of a broker, with a connection of its own."""
    async with opened(etcd, cluster) as store:
        image = ClusterImage(broker_id, BrokerSettings.from_texts({}))
        writer = MetadataWriter(store, ImageFollower(store, image), lease_ms=60_000)
        await writer.start([Endpoint("PLAINTEXT", f"host{broker_id}", 9092)])
        try:
            yield writer
        finally:
            await writer.stop()


async def test_a_watch_comes_to_the_revision_of_a_comparison_that_failed(one_etcd: EtcdCluster) -> None:
    name = uuid.uuid4().hex
    async with opened(one_etcd, name) as store, opened(one_etcd, f"{name}-tenant") as tenant:
        first = (await store.txn((), [Put("a", b"1")])).revision
        watch = store.watch("", first)
        assert (await anext(watch)).revision == first
        foreign = (await tenant.txn((), [Put("a", b"1")])).revision
        failed = await store.txn([absent("a")], [Put("a", b"2")])
        assert not failed.succeeded
        assert failed.revision == foreign
        async with asyncio.timeout(SOON_S):
            step = await anext(watch)
        assert step.revision >= foreign
        assert not step.events
        last = (await store.txn((), [Put("a", b"3")])).revision
        async with asyncio.timeout(SOON_S):
            step = await anext(watch)
        assert [(event.value, event.mod_revision) for event in step.events] == [(b"3", last)]


async def test_a_broker_that_loses_a_race_goes_on_though_another_tenant_wrote_last(one_etcd: EtcdCluster) -> None:
    name = uuid.uuid4().hex
    async with (
        broker(one_etcd, name, 1) as one,
        broker(one_etcd, name, 2) as two,
        opened(one_etcd, f"{name}-tenant") as tenant,
    ):
        transact = two._authority.transact

        async def overtaken(transaction):  # type: ignore[no-untyped-def]
            """Another broker creates the topic first, and the other tenant writes before this broker compares."""
            two._authority.transact = transact  # type: ignore[method-assign]
            await one.create_topics([NewTopic("t")])
            await two.follower.reach(one.image.revision)
            await tenant.txn((), [Put("foreign", b"")])
            return await transact(transaction)

        two._authority.transact = overtaken  # type: ignore[method-assign]
        async with asyncio.timeout(SOON_S):
            outcomes = await two.create_topics([NewTopic("t"), NewTopic("u")])
        assert [isinstance(outcome, CreatedTopic) for outcome in outcomes.values()] == [False, True]


async def test_brokers_come_to_the_revision_that_a_new_one_names_in_its_requests(one_etcd: EtcdCluster) -> None:
    name = uuid.uuid4().hex
    async with broker(one_etcd, name, 1) as one, opened(one_etcd, f"{name}-tenant") as tenant:
        await one.create_topics([NewTopic("t")])
        for _ in range(3):
            await tenant.txn((), [Put("foreign", b"")])
        async with opened(one_etcd, name) as store:
            new = ImageFollower(store, ClusterImage(2, BrokerSettings.from_texts({})))
            await new.load()
            assert new.changed_revision == one.image.revision < new.image.revision
