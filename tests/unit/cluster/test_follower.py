"""The follower of the image over a store whose watches break: no change is lost, and none is seen twice."""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from simulation.world.clock import Clock
from simulation.world.turn_loop import TurnLoop
from tests.unit.cluster.forgetful_store import ForgetfulStore
from tests.unit.cluster.metadata import visible

from cordwood.cluster.follower import BACK_OFF, LONGEST_REACH_S, ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.topics import MorePartitions, NewTopic, TopicReference
from cordwood.cluster.stores.interface import (
    Delete,
    Listing,
    MetadataStore,
    Put,
    StoreUnavailable,
    StoreWentBack,
    WatchStep,
)
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.settings.broker_settings import BrokerSettings

SETTINGS = BrokerSettings.from_texts({})


class BreakingStore(ForgetfulStore):
    """A connection whose watches and listings break, by seed; `down` breaks all of them."""

    def __init__(self, store: MetadataStore, seed: int = 0, share_broken: float = 0.0) -> None:
        super().__init__(store, seed, 0.0)
        self.chance = random.Random(seed)
        self.share_broken = share_broken
        self.down = False
        self.attempts: list[int] = []
        self.clock = Clock()

    def _break(self) -> None:
        if self.down or self.chance.random() < self.share_broken:
            raise StoreUnavailable("the connection to the metadata store broke")

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        self._break()
        return await super().list(prefix, revision)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        self._break()
        async for step in super().watch(prefix, from_revision):
            self._break()
            yield step
            self._break()


class Stage:
    """A follower on a virtual clock, and a writer with a connection of its own that never breaks."""

    def __init__(self, store: MemoryStore, seed: int = 0, share_broken: float = 0.0) -> None:
        self.clock = Clock()
        self.loop = TurnLoop(self.clock)
        self.store = store
        self.connection = BreakingStore(store, seed)
        self.deltas: list[ImageDelta] = []
        self.run(self._start())
        self.connection.share_broken = share_broken

    async def _start(self) -> None:
        image = ClusterImage(1, SETTINGS)
        self.writer = MetadataWriter(self.store, ImageFollower(self.store, image), lease_ms=10**9)
        await self.writer.start([Endpoint("PLAINTEXT", "host", 9092)])
        self.follower = ImageFollower(
            self.connection,
            ClusterImage(2, SETTINGS),
            on_change=self.deltas.append,
            boot_ms=lambda: self.clock.boot_ms,
        )
        await self.follower.load()
        self.follower.follow()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = self.loop.create_task(coroutine)
        self.loop.run_until_idle()
        return task.result()

    def pass_time(self, ms: int) -> None:
        end_ms = self.clock.boot_ms + ms
        while (deadline_ms := self.loop.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.clock.advance(max(0, deadline_ms - self.clock.boot_ms))
            self.loop.run_until_idle()
        self.clock.advance(end_ms - self.clock.boot_ms)

    def check(self) -> None:
        """The image is the store's, and the deltas tell each topic's changes once."""
        listed = ClusterImage(2, SETTINGS)
        listed.load(self.run(self.store.list("")))
        assert visible(self.follower.image) == visible(listed)
        assert not self.follower.stopped.done()
        topics: dict[str, int] = {}
        for delta in self.deltas:
            for deleted in delta.deleted:
                del topics[deleted.name]
            for created in delta.created:
                assert created.name not in topics
                topics[created.name] = len(created.partitions)
            for change in delta.changed:
                assert topics[change.before.name] == len(change.before.partitions)
                topics[change.after.name] = len(change.after.partitions)
        assert topics == {name: len(topic.partitions) for name, topic in listed.topics.items()}


@pytest.mark.parametrize("retained_revisions", [1, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_watches_that_break_lose_nothing_and_repeat_nothing(seed: int, retained_revisions: int) -> None:
    stage = Stage(MemoryStore(retained_revisions=retained_revisions), seed, share_broken=0.4)
    chance = random.Random(seed)
    for number in range(30):
        topics = sorted(stage.writer.image.topics)
        dice = chance.random()
        if not topics or dice < 0.5:
            stage.run(stage.writer.create_topics([NewTopic(f"t{number}", 2)]))
        elif dice < 0.75:
            stage.run(stage.writer.delete_topics([TopicReference(chance.choice(topics))]))
        else:
            name = chance.choice(topics)
            count = len(stage.writer.image.topics[name].partitions) + 1
            stage.run(stage.writer.create_partitions([MorePartitions(name, count)]))
        stage.pass_time(chance.choice([0, 0, 60, 700]))
    stage.connection.share_broken = 0.0
    stage.pass_time(2 * BACK_OFF.longest_ms)
    stage.check()


def test_a_store_that_is_away_is_asked_at_growing_intervals_up_to_a_bound() -> None:
    stage = Stage(MemoryStore())
    asked_at_ms: list[int] = []
    list_once = stage.connection.list

    async def noted(prefix: str, revision: int = 0) -> Listing:
        asked_at_ms.append(stage.clock.boot_ms)
        return await list_once(prefix, revision)

    stage.connection.list = noted  # type: ignore[method-assign]
    stage.connection.down = True
    stage.run(stage.writer.create_topics([NewTopic("t")]))
    stage.pass_time(60_000)
    pauses_ms = [after - before for before, after in zip([0, *asked_at_ms], asked_at_ms, strict=False)]
    assert pauses_ms[:3] == [BACK_OFF.first_ms, 2 * BACK_OFF.first_ms, 4 * BACK_OFF.first_ms]
    assert set(pauses_ms[8:]) == {BACK_OFF.longest_ms}
    stage.connection.down = False
    stage.pass_time(BACK_OFF.longest_ms)
    stage.check()
    stage.pass_time(3 * BACK_OFF.longest_ms)
    stage.connection.down = True
    stage.run(stage.writer.create_topics([NewTopic("u")]))
    stage.connection.down = False
    stage.pass_time(BACK_OFF.first_ms)
    stage.check()


def test_a_wait_for_a_revision_that_never_comes_ends() -> None:
    stage = Stage(MemoryStore())
    waiting = stage.loop.create_task(stage.follower.reach(stage.follower.image.revision + 1))
    stage.loop.run_until_idle()
    stage.pass_time(LONGEST_REACH_S * 1000 - 1)
    assert not waiting.done()
    stage.pass_time(1)
    with pytest.raises(StoreUnavailable, match="has not come to revision"):
        waiting.result()


def test_an_image_moves_with_the_store_though_other_users_made_the_change() -> None:
    class SharedStore(ForgetfulStore):
        async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
            yield WatchStep(from_revision + 7, ())
            await asyncio.Event().wait()

    async def reach() -> None:
        follower = ImageFollower(
            SharedStore(stage.store, 0, 0.0), ClusterImage(3, SETTINGS), on_change=stage.deltas.append
        )
        await follower.load()
        follower.follow()
        changed, revision = follower.image.revision, follower.image.revision + 8
        await follower.reach(revision)
        assert follower.image.revision == stage.deltas[-1].revision == revision
        assert follower.changed_revision == changed, "the revision that other brokers come to as well"
        await follower.stop()

    stage = Stage(MemoryStore())
    stage.run(reach())


@pytest.mark.parametrize("retained_revisions", [1, 1000])
def test_a_store_that_went_back_is_refused_with_words(retained_revisions: int) -> None:
    stage = Stage(MemoryStore(retained_revisions=retained_revisions))
    revision = stage.follower.image.revision
    older = MemoryStore(retained_revisions=retained_revisions)
    stage.run(older.txn((), [Put("cluster_id", b"the same")]))
    stage.connection.down = True
    stage.run(stage.writer.create_topics([NewTopic("t")]))
    stage.connection._store = older
    stage.connection.down = False
    stage.pass_time(BACK_OFF.first_ms)
    refusal = stage.follower.stopped.exception()
    assert isinstance(refusal, StoreWentBack)
    assert f"went back from revision {revision} to 2" in str(refusal)


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_store_that_went_back_and_was_written_since_is_refused(change: str) -> None:
    stage = Stage(MemoryStore(retained_revisions=1000))
    stage.run(stage.store.txn((), [Put("evidence/9/9/9", b"1")]))
    if change == "delete":
        stage.run(stage.store.txn((), [Delete("evidence/9/9/9")]))
    revision = stage.follower.image.revision
    older = MemoryStore(retained_revisions=1000)
    for number in range(revision + 5):
        stage.run(older.txn((), [Put("cluster_id", b"%d" % number)]))
    stage.connection.down = True
    stage.run(stage.writer.create_topics([NewTopic("t")]))
    stage.connection._store = older
    stage.connection.down = False
    stage.pass_time(BACK_OFF.first_ms)
    refusal = stage.follower.stopped.exception()
    assert isinstance(refusal, StoreWentBack)
    assert f"went back from revision {revision} to {revision - 1}" in str(refusal)


def test_a_listing_older_than_the_image_is_refused() -> None:
    image = ClusterImage(1, SETTINGS)
    image.load(Listing(7, []))
    with pytest.raises(StoreWentBack, match="from revision 7 to 6"):
        image.load(Listing(6, []))
