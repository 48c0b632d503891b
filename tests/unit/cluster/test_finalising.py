"""A metadata version is finalised when all brokers support it, and never left for a lower one."""

import pytest
from tests.unit.cluster.metadata import Metadata
from tests.unit.cluster.test_controller import Cluster, cluster

from cordwood.cluster.metadata.rows import (
    BrokerRow,
    Endpoint,
    broker_epoch_key,
    broker_key,
    decode_broker,
    encode_broker,
    topic_name_key,
)
from cordwood.cluster.metadata.versions import ONLY_FIRST
from cordwood.cluster.planner.finalising import plan_finalising
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.registration import plan_registration
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, Put
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import ErrorCode, ProtocolError


async def old_cluster(*brokers: int) -> Metadata:
    """A cluster at version 1 whose brokers support version 2."""
    metadata = Metadata()
    await metadata.store.txn((), [Put("metadata_version", b"1")])
    return await metadata.register(*brokers)


async def register_older(metadata: Metadata, broker_id: int) -> None:
    registration = BrokerRow(0, "older", (Endpoint("PLAINTEXT", "host", 9092),), None, ONLY_FIRST)
    epoch = await metadata.store.get(broker_epoch_key(broker_id))
    await metadata.carry_out(plan_registration(broker_id, registration, epoch).plan)


def refused(metadata: Metadata, version: int) -> tuple[ErrorCode, str]:
    with pytest.raises(ProtocolError) as refusal:
        plan_finalising(metadata.image, version)
    return refusal.value.code, refusal.value.message or ""


async def test_a_version_that_all_support_is_finalised_once() -> None:
    metadata = await old_cluster(1, 2, 3)
    plan = plan_finalising(metadata.image, 2)
    assert plan is not None
    assert (await metadata.store.txn(*plan.commit)).succeeded
    await metadata.refresh()
    assert metadata.image.metadata_version == 2
    assert plan_finalising(metadata.image, 2) is None
    assert not (await metadata.store.txn(*plan.commit)).succeeded, "another version may have been finalised since"


async def test_a_version_is_refused_while_a_broker_does_not_support_it() -> None:
    metadata = await old_cluster(1, 2, 3)
    await register_older(metadata, 2)
    code, message = refused(metadata, 2)
    assert code == ErrorCode.FEATURE_UPDATE_FAILED
    assert "not supported by broker 2 (only version 1): start these with Cordwood 0.1.0 or later first" in message
    code, message = refused(metadata, 77)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 1 supports versions 1 to 3 of the metadata, not 77" in message


async def test_a_version_is_refused_while_a_broker_with_replicas_is_away() -> None:
    metadata = await old_cluster(1, 2, 3)
    await metadata.create(NewTopic("t", assignments=(Assignment(0, (1, 2)),)))
    await metadata.create(NewTopic("u", assignments=(Assignment(0, (3,)),)))
    await metadata.store.txn((), [Delete(broker_key(2)), Delete(broker_key(3))])
    await metadata.refresh()
    assert refused(metadata, 2)[1].startswith("Brokers 2, 3 are away and have replicas: start them with")
    await metadata.store.txn((), [Delete(topic_name_key("u"))])
    await metadata.refresh()
    code, message = refused(metadata, 2)
    assert code == ErrorCode.FEATURE_UPDATE_FAILED
    assert message.startswith("Broker 2 is away and has replicas: start it with Cordwood 0.1.0 or later, or move its")
    await metadata.register(2)
    assert plan_finalising(metadata.image, 2) is not None, "broker 3 has no replicas"


async def test_a_finalised_version_is_not_left_for_a_lower_one() -> None:
    metadata = await old_cluster(1)
    await metadata.store.txn((), [Put("metadata_version", b"2")])
    await metadata.refresh()
    code, message = refused(metadata, 1)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert "2 is final: the metadata has rows that brokers of version 1 cannot read" in message


async def test_a_broker_that_comes_back_as_an_older_release_meanwhile_prevents_the_finalisation() -> None:
    metadata = await old_cluster(1, 2)
    plan = plan_finalising(metadata.image, 2)
    assert plan is not None
    await register_older(metadata, 2)
    assert not (await metadata.store.txn(*plan.commit)).succeeded


async def at_version_one() -> MemoryStore:
    store = MemoryStore(retained_revisions=10_000)
    await store.txn((), [Put("cluster_id", b"c"), Put("metadata_version", b"1")])
    return store


async def test_all_brokers_of_a_cluster_see_the_finalised_version() -> None:
    async with cluster(1, 2, 3, store=await at_version_one()) as three:
        assert {writer.image.metadata_version for writer in three.running.values()} == {1}
        await three.running[2].finalise_metadata_version(2, validate_only=True)
        assert three.running[2].image.metadata_version == 1
        await three.running[2].finalise_metadata_version(2)
        assert three.running[2].image.metadata_version == 2
        await three.until(lambda image: image.metadata_version == 2)


async def test_a_broker_of_an_older_release_that_came_in_between_stays_fenced() -> None:
    async with cluster(1, 2, store=await at_version_one()) as two:
        await two.start(3, ready=False)
        await _as_older(two, 3)
        await two.store.txn((), [Put("metadata_version", b"2")])
        await two.running[3].ready()
        await two.create("t", (1, 2))
        await two.until(lambda image: not image.brokers[3].starting)
        # The controller looks at everything when a broker registers: another one's fence is lifted, this one's not.
        await two.start(4)
        await two.until(lambda image: 4 in image.brokers and image.brokers[4].electable)
        assert two.some.image.brokers[3].fenced


async def _as_older(running: Cluster, broker_id: int) -> None:
    """Makes the registration of a broker one of an older release."""
    item = await running.store.get(broker_key(broker_id))
    assert item is not None
    row = decode_broker(item.key, item.value)._replace(metadata_versions=ONLY_FIRST)
    await running.store.txn((), [Put(item.key, encode_broker(row), item.lease)])
