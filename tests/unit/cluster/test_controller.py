"""Three brokers on one store: one of them is the controller, and partitions have leaders whoever goes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.unit.cluster.forgetful_store import ForgetfulStore

from cordwood.cluster.controller import REBALANCE_S, SETTLED_MS
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata.rows import PARTITIONS, Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.accepted_losses import plan_beginning_anew
from cordwood.cluster.planner.isr import IsrChange, IsrOutcome, together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.reassignment import Move
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.registration import Standing
from cordwood.cluster.stores.interface import (
    Compare,
    Delete,
    MetadataStore,
    Operation,
    Put,
    StoreUnavailable,
    TxnResult,
)
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.broker_settings import BrokerSettings

SETTINGS = {"auto.leader.rebalance.enable": "false"}


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(retained_revisions=10_000)
        self.transactions = 0
        self.written: list[Put] = []
        self.deleted: list[str] = []

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        self.transactions += 1
        self.written += [operation for operation in operations if isinstance(operation, Put)]
        self.deleted += [operation.key for operation in operations if isinstance(operation, Delete)]
        return await super().txn(compares, operations)


class Cluster:
    def __init__(self, store: MemoryStore, connect: Callable[[int], MetadataStore] | None = None) -> None:
        self.store = store
        self._connect = connect or (lambda broker_id: store)
        self.running: dict[int, MetadataWriter] = {}
        self.settings = dict(SETTINGS)
        self.boot_ms = 0

    async def start(self, broker_id: int, storage_id: str = "", *, unclean: bool = False, ready: bool = True) -> None:
        store = self._connect(broker_id)
        image = ClusterImage(broker_id, BrokerSettings.from_texts({**self.settings, "node.id": str(broker_id)}))
        standing = Standing(storage_id or f"storage {broker_id}", unclean, clustered=True)
        writer = MetadataWriter(
            store, ImageFollower(store, image), lease_ms=60_000, standing=standing, boot_ms=lambda: self.boot_ms
        )
        await writer.start([Endpoint("PLAINTEXT", "host", 9092)])
        self.running[broker_id] = writer
        if ready:
            await writer.ready()

    async def kill(self, broker_id: int) -> None:
        """Ends a broker; its lease ends at once, so that no test waits for it."""
        await self.running.pop(broker_id).stop()

    async def stop(self) -> None:
        for broker_id in list(self.running):
            await self.kill(broker_id)

    @property
    def some(self) -> MetadataWriter:
        return next(iter(self.running.values()))

    async def until(self, holds: Callable[[ClusterImage], bool]) -> None:
        """Waits until the image of some broker is as it should be."""
        writer, event = self.some, asyncio.Event()

        def look(delta: ImageDelta) -> None:
            if holds(writer.image):
                event.set()

        writer.follower.watchers.append(look)
        if not holds(writer.image):
            await event.wait()
        writer.follower.watchers.remove(look)

    async def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        assignments = tuple(Assignment(number, brokers) for number, brokers in enumerate(replicas))
        texts = {key.replace("_", "."): text for key, text in configs.items()}
        outcome = (await self.some.create_topics([NewTopic(name, assignments=assignments, configs=texts)]))[name]
        assert not isinstance(outcome, ProtocolError), outcome.message

    def partition(self, name: str = "t", index: int = 0) -> PartitionImage:
        return self.some.image.topics[name].partitions[index]


@asynccontextmanager
async def cluster(*brokers: int, store: MemoryStore | None = None) -> AsyncIterator[Cluster]:
    running = Cluster(store or MemoryStore(retained_revisions=10_000))
    for broker in brokers:
        await running.start(broker)
    if brokers:
        await running.until(lambda image: all(image.brokers[broker].electable for broker in brokers))
    try:
        yield running
    finally:
        await running.stop()


async def test_the_first_broker_is_the_controller_and_lifts_the_fences_of_all() -> None:
    async with cluster(1, 2, 3) as three:
        image = three.some.image
        assert image.controller is not None
        assert (image.controller.broker_id, image.controller_id) == (1, 1)
        assert image.storage_ids == {1: "storage 1", 2: "storage 2", 3: "storage 3"}


async def test_a_broker_stays_fenced_until_it_answers_requests() -> None:
    async with cluster(1, 2) as two:
        await two.start(3, ready=False)
        await two.create("t", (1, 2))
        assert two.some.image.brokers[3].fenced
        with pytest.raises(AssertionError, match="are away, fenced or in controlled shutdown"):
            await two.create("u", (3,))
        assert await two.running[3].take_part(60)
        await two.until(lambda image: image.brokers[3].electable)


async def test_another_broker_becomes_the_controller_and_the_leader() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (1, 2, 3), (2, 3, 1))
        before = three.some.image.controller
        await three.kill(1)
        await three.until(lambda image: image.controller is not None and image.topics["t"].partitions[0].leader == 2)
        after = three.some.image.controller
        assert before is not None
        assert after is not None
        assert after.broker_id in (2, 3)
        assert after.create_revision > before.create_revision
        partition = three.partition()
        assert (partition.leader_epoch, partition.isr, partition.elr) == (1, (2, 3), ())
        assert three.partition(index=1).leader_epoch == 0
        assert three.partition(index=1).isr == (2, 3)


async def test_a_thousand_partitions_fail_over_in_few_transactions() -> None:
    store = CountingStore()
    async with cluster(1, 2, 3, store=store) as three:
        await three.create("t", *[(1, 2, 3)] * 1000)
        before = store.transactions
        await three.kill(1)
        await three.until(lambda image: all(partition.leader == 2 for partition in image.topics["t"].partitions))
        assert store.transactions - before <= 12


async def test_a_broker_that_restarted_is_followed_by_another_before_its_fence_is_lifted() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (3, 1, 2))
        old = three.running[3]
        await three.start(3)
        await three.until(lambda image: image.brokers[3].epoch == 2 and image.brokers[3].electable)
        await old.stop()
        partition = three.partition()
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 1, (3, 1, 2))


async def test_a_broker_with_another_disk_leaves_every_isr_before_its_fence_is_lifted() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (1, 2, 3))
        await three.create("lone", (3,))
        await three.kill(3)
        await three.start(3, "another disk")
        await three.until(lambda image: 3 in image.brokers and image.brokers[3].electable)
        assert three.some.image.storage_ids[3] == "another disk"
        assert three.partition().isr == (1, 2)
        lone = three.partition("lone")
        assert (lone.leader, lone.isr, lone.elr) == (-1, (), ())


async def test_an_operator_accepts_the_loss_of_the_last_replica() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("lone", (3,))
        with pytest.raises(ProtocolError) as refused:
            await three.some.accept_loss("lone", 0)
        assert refused.value.code is ErrorCode.ELECTION_NOT_NEEDED
        await three.kill(3)
        await three.until(lambda image: image.topics["lone"].partitions[0].leader == -1)
        with pytest.raises(ProtocolError) as refused:
            await three.some.accept_loss("lone", 0)
        assert refused.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        await three.start(3, "another disk")
        await three.until(lambda image: 3 in image.brokers and image.brokers[3].electable)
        epoch = three.partition("lone").leader_epoch
        assert await three.some.accept_loss("lone", 0) == 3
        lone = three.partition("lone")
        assert (lone.leader, lone.isr, lone.recovering, lone.leader_epoch) == (3, (3,), True, epoch + 1)
        assert lone.lossy_epoch == epoch + 1


async def test_a_loss_is_not_accepted_while_a_complete_replica_starts_and_is_none_once_it_is_live() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (2, 3))
        for broker in (3, 2):
            await three.kill(broker)
            await three.until(lambda image, broker=broker: broker not in image.brokers)  # type: ignore[misc]
        await three.until(lambda image: image.topics["t"].partitions[0].leader == -1)
        await three.start(3)
        await three.until(lambda image: 3 in image.brokers and image.brokers[3].electable)
        await three.start(2, ready=False)
        await three.until(lambda image: 2 in image.brokers)
        with pytest.raises(ProtocolError, match=r"Broker 2 has every acknowledged record .* is starting"):
            await three.some.accept_loss("t", 0)
        await three.running[2].ready()
        await three.until(lambda image: image.topics["t"].partitions[0].leader == 2)
        assert (three.partition().recovering, three.partition().lossy_epoch) == (False, 0)


async def test_a_partition_whose_replicas_are_all_away_begins_anew_on_another_broker() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("lone", (3,))

        async def refusal(broker_id: int) -> ErrorCode:
            refused = (await three.some.begin_anew([("lone", 0)], broker_id))["lone", 0]
            assert isinstance(refused, ProtocolError)
            return refused.code

        assert await refusal(2) is ErrorCode.ELECTION_NOT_NEEDED
        await three.kill(3)
        await three.until(lambda image: image.topics["lone"].partitions[0].leader == -1)
        assert await refusal(3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await refusal(9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        epoch = three.partition("lone").leader_epoch
        assert await three.some.begin_anew([("lone", 0)], 2) == {("lone", 0): 2}
        anew = three.partition("lone")
        assert (anew.leader, anew.replicas, anew.isr, anew.recovering) == (2, (2,), (2,), False)
        assert anew.leader_epoch == anew.lossy_epoch == epoch + 1
        await three.start(3)
        await three.until(lambda image: 3 in image.brokers and image.brokers[3].electable)
        assert three.partition("lone") == anew, "the old replica leads no more"


async def test_a_partition_does_not_begin_anew_while_a_replica_is_registered() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (2, 3))
        for broker in (3, 2):
            await three.kill(broker)
            await three.until(lambda image, broker=broker: broker not in image.brokers)  # type: ignore[misc]
        await three.until(lambda image: image.topics["t"].partitions[0].leader == -1)
        plan = plan_beginning_anew(three.some.image, "t", 0, 1)
        await three.start(3, ready=False)
        await three.until(lambda image: 3 in image.brokers)
        outcomes = await three.some.begin_anew([("t", 0)], 1)
        assert "Broker 3 has a replica" in str(outcomes["t", 0])
        assert not (await three.store.txn(*together([plan.write]))).succeeded, "broker 3 registered meanwhile"


async def test_a_loss_is_accepted_with_the_replica_that_the_operator_names() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (1, 2, 3))
        for broker in (3, 2):
            await three.kill(broker)
            await three.until(lambda image, broker=broker: broker not in image.brokers)  # type: ignore[misc]
        await three.start(2)
        await three.start(3)
        await three.until(lambda image: all(b in image.brokers and image.brokers[b].electable for b in (2, 3)))
        await three.kill(1)
        await three.until(lambda image: image.topics["t"].partitions[0].leader == -1)
        assert three.partition().isr == (1,)
        assert await three.some.accept_losses([("t", 0)], 3) == {("t", 0): 3}
        lossy = three.partition()
        assert (lossy.leader, lossy.isr, lossy.recovering, lossy.lossy_epoch) == (3, (3,), True, lossy.leader_epoch)
        await three.kill(3)
        await three.start(3)
        await three.until(lambda image: image.topics["t"].partitions[0].leader_epoch > lossy.leader_epoch)
        assert three.partition().lossy_epoch == lossy.lossy_epoch


async def test_preferred_leaders_are_elected_where_they_are_in_sync_and_refusals_say_why() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", *[(3, 1, 2)] * 300, (1, 2, 3))
        await three.start(3)
        await three.until(lambda image: image.brokers[3].epoch == 2 and image.brokers[3].electable)
        assert {three.partition(index=index).leader for index in range(301)} == {1}
        names = [("t", index) for index in range(302)]
        outcomes = await three.some.elect_preferred(names)
        assert [outcomes["t", index] for index in range(300)] == [3] * 300
        refused = [outcomes["t", index] for index in (300, 301)]
        codes = [each.code for each in refused if isinstance(each, ProtocolError)]
        assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert {three.partition(index=index).leader for index in range(300)} == {3}
        assert three.partition().isr == (3, 1, 2)
        await three.kill(3)
        await three.until(lambda image: image.topics["t"].partitions[0].leader == 1)
        refusal = (await three.some.elect_preferred([("t", 0)]))["t", 0]
        assert isinstance(refusal, ProtocolError)
        assert refusal.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def test_the_last_in_sync_replica_leads_again_when_it_is_back() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (2, 3))
        for broker in (3, 2):
            await three.kill(broker)
            await three.until(lambda image, broker=broker: broker not in image.brokers)  # type: ignore[misc]
        await three.until(lambda image: image.topics["t"].partitions[0].leader == -1)
        assert three.partition().isr == (2,)
        await three.start(3)
        await three.until(lambda image: 3 in image.brokers and image.brokers[3].electable)
        assert three.partition().leader == -1
        await three.start(2)
        await three.until(lambda image: image.topics["t"].partitions[0].leader == 2)


async def test_an_unclean_election_happens_only_where_the_topic_says_so() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("careful", (2, 3))
        await three.create("careless", (2, 3), unclean_leader_election_enable="true")
        await three.kill(3)
        await three.until(lambda image: all(3 not in topic.partitions[0].isr for topic in image.topics.values()))
        await three.kill(2)
        await three.until(lambda image: all(topic.partitions[0].leader == -1 for topic in image.topics.values()))
        await three.start(3)
        await three.until(lambda image: image.topics["careless"].partitions[0].leader == 3)
        careless = three.partition("careless")
        assert (careless.isr, careless.elr, careless.recovering) == ((3,), (), True)
        assert careless.lossy_epoch == careless.leader_epoch
        assert three.partition("careful").leader == -1


async def test_a_broker_that_drains_gives_its_leaderships_away_and_leaves_in_sync_sets() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (3, 1, 2), (1, 2, 3))
        await three.create("lone", (3,))
        assert await three.running[3].drain(60)
        image = three.running[3].image
        assert [(each.leader, each.isr) for each in image.topics["t"].partitions] == [(1, (1, 2)), (1, (1, 2))]
        assert image.topics["lone"].partitions[0].leader == 3


async def test_a_draining_controller_moves_its_own_leaderships() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (1, 2, 3))
        assert await three.running[1].drain(60)
        assert three.running[1].image.topics["t"].partitions[0].leader == 2


async def test_preferred_leaders_lead_again_once_they_are_in_sync() -> None:
    running = Cluster(MemoryStore(retained_revisions=10_000))
    running.settings = {}
    for broker in (1, 2):
        await running.start(broker)
    await running.until(lambda image: all(image.brokers[broker].electable for broker in (1, 2)))
    await running.create("t", (2, 1))
    old = running.running[2]
    await running.start(2)
    await running.until(lambda image: image.topics["t"].partitions[0].leader == 1)
    await asyncio.sleep(2 * REBALANCE_S)
    assert running.partition().leader == 1, "clients of broker 2 may still wait before they connect to it again"
    running.boot_ms += SETTLED_MS
    await running.until(lambda image: image.topics["t"].partitions[0].leader == 2)
    assert running.partition().leader_epoch == 2
    await old.stop()
    await running.stop()


async def test_of_replicas_in_sync_one_leads_that_has_not_come_back_a_moment_ago() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (1, 2, 3))
        three.boot_ms += SETTLED_MS
        former = three.running[2]
        await three.start(2)
        await three.until(lambda image: image.brokers[2].epoch == 2 and image.brokers[2].electable)
        assert three.partition().isr == (1, 2, 3)
        await three.kill(1)
        await three.until(lambda image: image.topics["t"].partitions[0].leader not in (1, -1))
        assert three.partition().leader == 3
        await former.stop()


async def test_a_controller_at_rest_writes_nothing() -> None:
    store = CountingStore()
    async with cluster(1, 2, 3, store=store) as three:
        await three.create("t", (1, 2, 3))
        before = store.transactions
        await store.txn((), [Put("configs/brokers/default", b"{}")])
        await three.until(lambda image: "configs/brokers/default" in image.config_mod_revisions)
        for _ in range(50):
            await asyncio.sleep(0)
        assert store.transactions == before + 1


async def test_partitions_get_leaders_before_others_lose_a_follower() -> None:
    store = CountingStore()
    async with cluster(1, 2, 3, store=store) as three:
        await three.create("a", *[(1, 3, 2)] * 100)
        await three.create("b", *[(3, 1, 2)] * 100)
        store.written.clear()
        await three.kill(3)
        await three.until(
            lambda image: all(3 not in each.isr for name in "ab" for each in image.topics[name].partitions)
        )
        topics = [put.key.split("/")[1] for put in store.written if put.key.startswith("partitions/")]
        assert topics == [str(three.some.image.topics[name].topic_id) for name in "ba" for _ in range(100)]


class OverloadedStore(CountingStore):
    """Fails transactions of partitions for a while."""

    failing = 0

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        """Of the transactions of partitions that succeeded."""

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        partitions = [each for each in operations if isinstance(each, Put) and each.key.startswith(PARTITIONS)]
        if partitions and self.failing:
            self.failing -= 1
            raise StoreUnavailable("too slow")
        if partitions:
            self.sizes.append(len(partitions))
        return await super().txn(compares, operations)


async def test_a_store_that_is_too_slow_gets_no_smaller_and_more_transactions() -> None:
    store = OverloadedStore()
    async with cluster(1, 2, 3, store=store) as three:
        await three.create("t", *[(3, 1, 2)] * 100)
        store.sizes.clear()
        store.failing = 5
        await three.kill(3)
        await three.until(lambda image: all(each.leader == 1 for each in image.topics["t"].partitions))
        assert store.sizes == [100]


async def test_transactions_that_fail_together_are_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    store = OverloadedStore()
    async with cluster(1, 2, 3, store=store) as three:
        await three.create("t", *[(3, 1, 2)] * 1000)
        store.failing = 9
        await three.kill(3)
        await three.until(lambda image: all(each.leader == 1 for each in image.topics["t"].partitions))
    lines = [each.getMessage() for each in caplog.records if "could not write" in each.getMessage()]
    assert lines == ["the controller could not write 1000 partitions: too slow"]


class LookedAt(dict[str, TopicImage]):
    """The topics of an image. Notes which of them are looked at."""

    def __init__(self, topics: dict[str, TopicImage]) -> None:
        super().__init__(topics)
        self.names: set[str] = set()

    def get(self, name: str, default: object = None) -> TopicImage | None:  # type: ignore[override]
        self.names.add(name)
        return super().get(name)

    def __getitem__(self, name: str) -> TopicImage:
        self.names.add(name)
        return super().__getitem__(name)


async def test_a_change_of_one_topic_has_the_controller_look_at_that_topic_alone() -> None:
    running = Cluster(MemoryStore(retained_revisions=10_000))
    running.settings = {}
    for broker in (1, 2, 3):
        await running.start(broker)
    await running.until(lambda image: all(image.brokers[broker].electable for broker in (1, 2, 3)))
    for number in range(20):
        await running.create(f"other-{number}", (1, 2, 3))
    await running.create("t", (1, 2, 3), (2, 3, 1))
    for _ in range(50):
        await asyncio.sleep(0)
    controller, leader = running.running[1].image, running.running[2]
    topics = controller.topics = LookedAt(controller.topics)
    before = running.partition("t", 1)
    topic_id = controller.topics_by_id[leader.image.topics["t"].topic_id].topic_id
    change = IsrChange(topic_id, 1, before.leader_epoch, before.partition_epoch, before.mod_revision, (2, 3), {})
    assert await leader.change_isr([change]) == {(topic_id, 1): IsrOutcome.APPLIED}
    await running.until(lambda image: image.topics["t"].partitions[1].isr == (2, 3))
    for _ in range(50):
        await asyncio.sleep(0)
    assert topics.names == {"t"}
    moves = [Move("t", 1, (3, 1))]
    topics.names.clear()
    assert await running.running[1].reassign(moves) == {("t", 1): None}
    await running.until(lambda image: image.topics["t"].partitions[1].removing == (2,))
    for _ in range(50):
        await asyncio.sleep(0)
    assert topics.names == {"t"}
    await running.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_partitions_have_leaders_whatever_the_store_tells(seed: int) -> None:
    store = MemoryStore(retained_revisions=100_000)
    three = Cluster(store, lambda broker_id: ForgetfulStore(store, 3 * seed + broker_id, 0.3))
    for broker in (1, 2, 3):
        await three.start(broker)
    await three.until(lambda image: all(image.brokers[broker].electable for broker in (1, 2, 3)))
    other = Cluster(store)
    other.running = {2: three.running[2]}
    await other.create("t", *[(1, 2, 3)] * 30)
    await three.kill(1)
    await other.until(lambda image: all(partition.leader == 2 for partition in image.topics["t"].partitions))
    assert {partition.leader_epoch for partition in other.some.image.topics["t"].partitions} == {1}
    await three.stop()
