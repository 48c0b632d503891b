"""A cluster's metadata in memory, for tests of the planner and the image: plans are carried out one by one."""

import uuid
from collections.abc import Iterable

from cordwood.cluster.metadata.image import ClusterImage, ImageDelta, TopicImage
from cordwood.cluster.metadata.rows import BrokerRow, Endpoint, broker_epoch_key
from cordwood.cluster.metadata.versions import SUPPORTED
from cordwood.cluster.planner.registration import plan_registration
from cordwood.cluster.planner.store_transactions import Plan
from cordwood.cluster.planner.topics import NewTopic, TopicCreation, plan_create_topics
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.broker_settings import BrokerSettings


class Metadata:
    """A store and an image of it that is always up to date."""

    def __init__(self, **texts: str) -> None:
        """Settings by attribute name: `num_partitions="3"`."""
        self.settings = BrokerSettings.from_texts({name.replace("_", "."): text for name, text in texts.items()})
        self.store = MemoryStore()
        self.image = ClusterImage(1, self.settings)
        self.ids = (uuid.UUID(int=number) for number in range(1, 1_000_000))

    async def refresh(self) -> ImageDelta:
        """Whatever happened in the store since the last time."""
        revision = (await self.store.list("none")).revision
        if not self.image.revision:
            return self.image.load(await self.store.list(""))
        if revision == self.image.revision:
            return ImageDelta(revision)
        return self.image.apply((await anext(self.store.watch("", self.image.revision + 1))).events)

    async def register(self, *broker_ids: int) -> "Metadata":
        for broker_id in broker_ids:
            registration = BrokerRow(0, "incarnation", (Endpoint("PLAINTEXT", "host", 9092),), None, SUPPORTED)
            epoch = await self.store.get(broker_epoch_key(broker_id))
            await self.carry_out(plan_registration(broker_id, registration, epoch).plan)
        return self

    async def carry_out(self, plan: Plan | None) -> ImageDelta:
        assert plan is not None
        for transaction in plan.in_order():
            assert (await self.store.txn(*transaction)).succeeded
        return await self.refresh()

    def plan(self, *topics: NewTopic) -> dict[str, TopicCreation | ProtocolError]:
        return plan_create_topics(self.image, topics, self.ids.__next__)

    async def create(self, *topics: NewTopic, internal: bool = False) -> TopicImage:
        """The last of them."""
        outcomes = plan_create_topics(self.image, topics, self.ids.__next__, internal=internal)
        for outcome in outcomes.values():
            assert isinstance(outcome, TopicCreation), outcome
            await self.carry_out(outcome.plan)
        return self.image.topics[topics[-1].name]

    async def copy(self) -> ClusterImage:
        """What a broker that starts now would load."""
        image = ClusterImage(1, self.settings)
        image.load(await self.store.list(""))
        return image


def visible(image: ClusterImage) -> object:
    """All that others see of an image, to compare two."""
    return (
        image.revision,
        image.cluster_id,
        image.topics,
        image.topics_by_id,
        image.brokers,
        image.controller,
        image.storage_ids,
        image.members,
        image.evidence,
        image.broker_epochs,
        image.default_broker_config,
        image.broker_configs,
        image.config_mod_revisions,
        image.settings,
        image.partition_count,
        image.sorted_topics(),
        image.strays(),
        image.deleted_topics,
    )


def refusal(outcome: object) -> tuple[ErrorCode, str]:
    assert isinstance(outcome, ProtocolError), outcome
    return outcome.code, outcome.message


def only(outcomes: Iterable[object]) -> object:
    (outcome,) = outcomes
    return outcome
