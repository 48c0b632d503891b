"""The controller's planner, interrupted anywhere: a leader has every committed record, and plans come to an end."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.cluster.metadata import Metadata

from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.metadata.rows import BrokerRow, Endpoint, LogEnd, broker_epoch_key, broker_key, damaged_name
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner import failover
from cordwood.cluster.planner.failover import plan_topic, preferred_elections, ready_to_serve
from cordwood.cluster.planner.isr import GuardedPut, IsrChange, plan_isr_change, together
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.registration import (
    Condition,
    condition_of,
    plan_lift,
    plan_own_row,
    plan_registration,
)
from cordwood.cluster.planner.survivors import STARTS_WITHIN_MS
from cordwood.cluster.planner.topics import NewTopic
from cordwood.cluster.stores.interface import Delete, present

BROKERS = (1, 2, 3)
MOST_ROUNDS = 60


@dataclass
class Data:
    """The records of one partition: how far each replica has them, and how far they are committed."""

    committed: int = 0
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 0))
    leaders: dict[int, int] = field(default_factory=dict)
    """Who led, by epoch."""


class Cluster:
    """Brokers as rows, records as numbers, and the planner between them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.metadata = Metadata()
        self.storage = {broker: f"{broker}.0" for broker in BROKERS}
        self.data = {"disk": Data(), "os": Data()}
        self.registrations = 0
        self.asked_for_ms = 0
        self.lost_at_once: set[str] = set()
        """Topics of which all replicas may have lost records: the rest is an operator's affair."""

    @property
    def topics(self) -> list[TopicImage]:
        return self.metadata.image.sorted_topics()

    async def start(self) -> None:
        await self.metadata.register(*BROKERS)
        for broker in BROKERS:
            await self.register(broker)
            await self.say(broker, draining=False)
        await self.controller_works()
        for name in self.data:
            chosen = tuple(self.chance.sample(BROKERS, self.chance.choice([1, 2, 3, 3])))
            configs = {"ack.durability": name, "min.insync.replicas": str(self.chance.randint(1, len(chosen)))}
            await self.metadata.create(NewTopic(name, assignments=(Assignment(0, chosen),), configs=configs))
        self.check()

    async def write(self, write: GuardedPut) -> bool:
        before = {topic.name: topic.partitions[0] for topic in self.topics}
        succeeded = (await self.metadata.store.txn(*together([write]))).succeeded
        await self.metadata.refresh()
        for topic in self.topics:
            self._check_write(topic, before[topic.name])
        return succeeded

    def _check_write(self, topic: TopicImage, before: PartitionImage) -> None:
        after, data = topic.partitions[0], self.data[topic.name]
        if after == before:
            return
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader or after.leader_broker_epoch != before.leader_broker_epoch:
            assert after.leader_epoch > before.leader_epoch
        self.check()
        if after.leader >= 0 and after.leader_epoch != before.leader_epoch and topic.name not in self.lost_at_once:
            assert data.ends[after.leader] >= data.committed, (topic.name, before, after, data)
        if after.leader >= 0 and before.seeks_longest_log and after.lossy_epoch == before.lossy_epoch:
            brokers = self.metadata.image.brokers
            told = {
                broker: brokers[broker].log_end(topic.topic_id, 0, before.leader_epoch)
                for broker in before.replicas
                if broker in brokers and brokers[broker].electable
            }
            if None not in told.values():
                assert data.ends[after.leader] == max(data.ends[broker] for broker in told), (before, after, data)

    def check(self) -> None:
        image = self.metadata.image
        for topic in self.topics:
            partition, data = topic.partitions[0], self.data[topic.name]
            assert set(partition.isr) <= set(partition.replicas)
            assert not set(partition.isr) & set(partition.elr)
            assert partition.leader == -1 or partition.leader in partition.isr
            leader, epoch = image.leadership(partition)
            if leader >= 0:
                assert data.leaders.setdefault(epoch, leader) == leader

    # What happens to brokers

    async def register(self, broker: int) -> None:
        """A registration: after a kill, an unclean restart of the machine, or with an emptied disk."""
        fate = self.chance.choice(["killed", "killed", "unclean", "emptied"]) if self.topics else "killed"
        if fate == "emptied":
            self.registrations += 1
            self.storage[broker] = f"{broker}.{self.registrations}"
        registered = self.metadata.image.brokers.get(broker)
        pending = registered is not None and registered.fenced
        for topic in self.topics:
            data, partition = self.data[topic.name], topic.partitions[0]
            candidates = {*partition.isr, *partition.elr}
            if fate == "emptied" or (fate == "unclean" and topic.name == "os"):
                lost = 0 if fate == "emptied" else self.chance.randint(0, data.ends[broker])
                data.ends[broker] = min(data.ends[broker], lost)
                if fate == "unclean" and candidates:
                    # Nobody else may have more: then this replica leads with what it has.
                    best = max(data.ends[each] for each in candidates)
                    if best < data.committed or pending or len(candidates) == 1:
                        self.lost_at_once.add(topic.name)
                    self.lost_at_once |= self._others_lost(topic, broker)
        if pending and fate != "emptied" and fate != "unclean":
            # What an earlier, unseen registration lost is lost: only the last one is told.
            fate = "unclean"
        registration = BrokerRow(
            0,
            "incarnation",
            (Endpoint("PLAINTEXT", "host", 9092),),
            None,
            SUPPORTED,
            storage_id=self.storage[broker],
            unclean=fate == "unclean",
            fenced=True,
        )
        epoch = await self.metadata.store.get(broker_epoch_key(broker))
        await self.metadata.carry_out(plan_registration(broker, registration, epoch).plan)

    def _others_lost(self, topic: TopicImage, broker: int) -> set[str]:
        partition, data = topic.partitions[0], self.data[topic.name]
        others = [each for each in (*partition.isr, *partition.elr) if each != broker]
        return {topic.name} if all(data.ends[each] < data.committed for each in others) else set()

    async def say(self, broker: int, *, draining: bool = False, disk_full: bool = False) -> None:
        item = await self.metadata.store.get(broker_key(broker))
        if item is not None:
            await self.metadata.store.txn(*plan_own_row(item, Condition(draining=draining, disk_full=disk_full)))
            await self.metadata.refresh()

    async def lose(self, broker: int) -> None:
        await self.metadata.store.txn((present(broker_key(broker)),), [Delete(broker_key(broker))])
        await self.metadata.refresh()

    # What leaders do

    async def leaders_work(self) -> None:
        image = self.metadata.image
        for topic in self.topics:
            partition, data = topic.partitions[0], self.data[topic.name]
            leader, epoch = image.leadership(partition)
            if leader < 0 or leader not in image.brokers or image.brokers[leader].fenced:
                continue
            data.ends[leader] += 1
            present_members = all(member in image.brokers for member in partition.isr)
            if present_members:
                for member in partition.isr:
                    data.ends[member] = data.ends[leader]
                if len(partition.isr) >= topic.settings.min_insync_replicas and not partition.elr:
                    data.committed = max(data.committed, data.ends[leader])
            members = [each for each in partition.replicas if each == leader or self.chance.random() < 0.6]
            await self.change_isr(topic, leader, epoch, tuple(members))

    async def change_isr(self, topic: TopicImage, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
        image, partition = self.metadata.image, topic.partitions[0]
        epochs = {each: image.broker_epochs[each] for each in isr}
        change = IsrChange(topic.topic_id, 0, epoch, partition.partition_epoch, partition.mod_revision, isr, epochs)
        image.node_id = leader
        write = plan_isr_change(image, image.broker_epochs[leader], change)
        image.node_id = 1
        if write is not None:
            data = self.data[topic.name]
            for added in set(isr) - set(partition.isr):
                data.ends[added] = data.ends[leader]
            assert await self.write(write)

    # What the controller does

    async def controller_works(self, rounds: int = MOST_ROUNDS) -> bool:
        """Carries out the plans, each write on its own, for some rounds. True if nothing was left to do."""
        image = self.metadata.image
        for _ in range(rounds):
            steps = [plan_topic(image, topic, asked_for_ms={0: self.asked_for_ms}) for topic in self.topics]
            writes = [write for step in steps for write in step.writes]
            self.asked_for_ms = 0
            if writes:
                await self.write(self.chance.choice(writes))
                continue
            if any(step.asked for step in steps):
                if self.chance.random() < 0.5:
                    self.asked_for_ms = STARTS_WITHIN_MS
                else:
                    await self.tell_ends()
                continue
            ready = ready_to_serve(image, {broker for step in steps for broker in step.holds_up})
            if not ready:
                return True
            first = next(iter(ready))
            item = await self.metadata.store.get(broker_key(first))
            assert item is not None
            await self.metadata.store.txn(*plan_lift(item, first, present(item.key)))
            await self.metadata.refresh()
            self.check()
        return False

    async def tell_ends(self) -> None:
        """One of the brokers says where its logs end."""
        broker = self.chance.choice(sorted(self.metadata.image.brokers))
        item = await self.metadata.store.get(broker_key(broker))
        assert item is not None
        told = [
            LogEnd(
                damaged_name(topic.topic_id, 0),
                topic.partitions[0].leader_epoch,
                0,
                self.data[topic.name].ends[broker],
                0,
            )
            for topic in self.topics
            if topic.partitions[0].seeks_longest_log
        ]
        condition = condition_of(self.metadata.image.brokers[broker])._replace(log_ends=tuple(sorted(told)))
        await self.metadata.store.txn(*plan_own_row(item, condition))
        await self.metadata.refresh()

    async def elects_preferred(self) -> None:
        if not any(plan_topic(self.metadata.image, topic).writes for topic in self.topics):
            for write in preferred_elections(self.metadata.image, self.topics):
                await self.write(write)
                break

    async def step(self, name: str) -> None:
        broker = self.chance.choice(BROKERS)
        match name:
            case "register":
                await self.register(broker)
            case "ready":
                await self.say(broker)
            case "full":
                await self.say(broker, disk_full=True)
            case "drain":
                await self.say(broker, draining=True)
            case "lose":
                await self.lose(broker)
            case "lead":
                await self.leaders_work()
            case "control":
                await self.controller_works(1)
            case "preferred":
                await self.elects_preferred()
        self.check()


KINDS = ["register", "ready", "drain", "full", "lose", "lead", "lead", "control", "control", "control", "preferred"]
STEPS = st.lists(st.sampled_from(KINDS), max_size=40)


async def play(steps: list[str], seed: int) -> None:
    cluster = Cluster(seed)
    await cluster.start()
    for step in steps:
        await cluster.step(step)
    assert await cluster.controller_works(), "the plans do not come to an end"
    for broker in BROKERS:
        if broker not in cluster.metadata.image.brokers:
            await cluster.register(broker)
        await cluster.say(broker)
    assert await cluster.controller_works(), "the plans do not come to an end"
    image = cluster.metadata.image
    assert all(broker.electable for broker in image.brokers.values())
    for topic in cluster.topics:
        partition = topic.partitions[0]
        assert image.leadership(partition).leader >= 0 or not partition.isr


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_a_leader_has_every_committed_record_and_plans_come_to_an_end(steps: list[str], seed: int) -> None:
    asyncio.run(play(steps, seed))


# Who guards the guards


def finds_a_fault() -> bool:
    chance = random.Random(1)
    for seed in range(400):
        try:
            asyncio.run(play(chance.choices(KINDS, k=40), seed))
        except AssertionError:
            return True
    return False


def test_replicas_on_emptied_disks_that_are_elected_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "unworthy_of", lambda *_: frozenset())
    assert finds_a_fault()


def test_any_live_replica_that_is_elected_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybody(image, topic, partition, unworthy, recent):  # type: ignore[no-untyped-def]
        live = [broker for broker in partition.replicas if failover.is_electable(image, broker)]
        return live[0] if live else None

    monkeypatch.setattr(failover, "_elect", anybody)
    assert finds_a_fault()
