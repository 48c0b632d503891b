"""Brokers as the metadata store sees them: registration, lease, watch, controller, evidence and in-sync sets.

A simulated broker runs the real `MetadataWriter` with a connection of its own. It has no logs and no wire. What follows
from them is played: a follower that takes part is caught up at once, and refused connections are told to the survivors.

Brokers of one process share one image, or 100 of them would need as many times the memory of one. Each still has a
watch of its own, whose responses are dropped undecoded.
"""

import asyncio
import time
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from benchmarks.scale.counting import CountingStore, Counts
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.rows import Endpoint
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.planner.isr import IsrChange
from cordwood.cluster.registration import Standing
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.model.settings.broker_settings import BrokerSettings

CAUGHT_UP_EVERY_S = 0.2
"""How often leaders look for followers that have caught up."""


class Place(NamedTuple):
    """The etcd and the part of it that the brokers use, and how many of them form a rack."""

    endpoints: tuple[str, ...]
    cluster: str
    nodes_per_rack: int
    partitions_max: int
    lease_ms: int

    def settings(self, broker_id: int) -> BrokerSettings:
        texts = {
            "node.id": str(broker_id),
            "broker.rack": f"rack-{(broker_id - 1) // self.nodes_per_rack}",
            "partitions.max": str(self.partitions_max),
            "broker.lease.ms": str(self.lease_ms),
        }
        return BrokerSettings.from_texts(texts)


class TimedFollower(ImageFollower):
    """Tells how long the listing of the store and the building of the image took."""

    listed_s = built_s = 0.0

    async def load(self) -> None:
        began_s = time.perf_counter()
        listing = await self._store.list("")
        listed_at_s = time.perf_counter()
        self._load(listing)
        self.listed_s, self.built_s = listed_at_s - began_s, time.perf_counter() - listed_at_s


class _View:
    """The shared image with the node id of one of its brokers."""

    def __init__(self, shared: ClusterImage, node_id: int) -> None:
        self._shared = shared
        self.node_id = node_id
        self.static_settings = shared.static_settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)


class SharingFollower(ImageFollower):
    """Follows the image of another follower, and has a watch of its own for the traffic."""

    def __init__(self, store: CountingStore, place: Place, broker_id: int, shared: ImageFollower) -> None:
        view = _View(shared.image, broker_id)
        view.static_settings = place.settings(broker_id)
        super().__init__(store, cast("ClusterImage", view))
        self._own = store
        self._shared = shared
        self._watching: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """The shared image is there; it has to show this broker's registration."""
        await self._shared.reach((await self._store.list("cluster_id")).revision)

    def follow(self) -> None:
        self._shared.watchers.append(self._told)
        self._watching = asyncio.create_task(self._watch())

    def _told(self, delta: ImageDelta) -> None:
        for watcher in tuple(self.watchers):
            watcher(delta)

    async def _watch(self) -> None:
        while True:
            with suppress(StoreFailure):
                await self._own.take_in(self.image.revision + 1)
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        with suppress(ValueError):
            self._shared.watchers.remove(self._told)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def reach(self, revision: int) -> None:
        await self._shared.reach(revision)


class SimulatedBroker:
    def __init__(self, broker_id: int, store: CountingStore, follower: ImageFollower) -> None:
        self.broker_id = broker_id
        self._store = store
        self._follower = follower
        image = follower.image
        standing = Standing(f"storage {broker_id}", clustered=True)
        lease_ms = image.static_settings.broker_lease_ms
        self.writer = MetadataWriter(store, follower, lease_ms=lease_ms, standing=standing)

    async def start(self) -> None:
        await self.writer.start([Endpoint("PLAINTEXT", f"broker-{self.broker_id}.example.org", 9092)])
        await self.writer.ready()

    async def stop(self) -> None:
        """A clean stop: others lead first."""
        await self.writer.drain(60)
        await self.writer.stop()
        await self._store.close()

    async def die(self) -> None:
        """Without a word to the store: its lease runs out, unless others have seen it die."""
        controller, evidence, renewing = self.writer.controller, self.writer.evidence, self.writer.registration.renewing
        assert controller is not None
        assert evidence is not None
        assert renewing is not None
        renewing.cancel()
        await controller.stop()
        await evidence.stop()
        await self._follower.stop()
        await self._store.close()

    def saw_refused(self, others: Iterable[int]) -> None:
        """Connections to these brokers were refused."""
        assert self.writer.evidence is not None
        for other in others:
            epoch = self.writer.image.registered_epoch(other)
            if epoch >= 0:
                self.writer.evidence.refused(other, epoch)


def isr_change(
    image: ClusterImage, name: str, index: int, isr: tuple[int, ...], added: dict[int, int] | None = None
) -> IsrChange:
    topic = image.topics[name]
    partition = topic.partitions[index]
    epoch = image.leadership(partition).epoch
    return IsrChange(topic.topic_id, index, epoch, partition.partition_epoch, partition.mod_revision, isr, added or {})


class _Lacking:
    """Partitions that lack replicas in their in-sync sets, kept up by the changes of an image."""

    def __init__(self, follower: ImageFollower) -> None:
        self._image = follower.image
        self._indexes: dict[str, set[int]] = {}
        follower.watchers.append(self._changed)

    def _changed(self, delta: ImageDelta) -> None:
        for before, after in ((change.before.partitions, change.after) for change in delta.changed):
            for index, partition in enumerate(after.partitions):
                if index < len(before) and partition is before[index]:
                    continue
                if len(partition.isr) < len(partition.replicas):
                    self._indexes.setdefault(after.name, set()).add(index)
                elif after.name in self._indexes:
                    self._indexes[after.name].discard(index)

    def to_add(self, leaders: Container[int]) -> dict[int, list[IsrChange]]:
        """The followers that take part and are not in sync, of the partitions that these brokers lead."""
        image = self._image
        electable = {broker_id: broker.epoch for broker_id, broker in image.brokers.items() if broker.electable}
        changes: dict[int, list[IsrChange]] = {}
        for name, indexes in self._indexes.items():
            for index in indexes:
                partition = image.topics[name].partitions[index]
                leader = image.leadership(partition).leader
                if leader not in leaders:
                    continue
                isr = tuple(broker for broker in partition.replicas if broker in partition.isr or broker in electable)
                added = {broker: electable[broker] for broker in isr if broker not in partition.isr}
                if added:
                    changes.setdefault(leader, []).append(isr_change(image, name, index, isr, added))
        return changes


class Brokers:
    """The brokers of one process: one with an image of its own, or many that share one."""

    def __init__(self, place: Place, counts: Counts) -> None:
        self._place = place
        self._counts = counts
        self.running: dict[int, SimulatedBroker] = {}
        self.follower: TimedFollower | None = None
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        assert self.follower is not None
        return self.follower.image

    async def start_alone(self, broker_id: int) -> None:
        """A broker with an image of its own."""
        store = await self._connect()
        self.follower = TimedFollower(store, ClusterImage(broker_id, self._place.settings(broker_id)))
        await self._start(SimulatedBroker(broker_id, store, self.follower))
        self._catching_up = asyncio.create_task(self._add_followers(_Lacking(self.follower)))

    async def start_together(self, broker_ids: Sequence[int]) -> None:
        """Brokers that share an image."""
        if self.follower is None:
            self.follower = TimedFollower(await self._connect(), ClusterImage(0, self._place.settings(0)))
            await self.follower.load()
            self.follower.follow()
            self._catching_up = asyncio.create_task(self._add_followers(_Lacking(self.follower)))
        await asyncio.gather(*map(self._start_shared, broker_ids))

    async def _start_shared(self, broker_id: int) -> None:
        assert self.follower is not None
        store = await self._connect()
        follower = SharingFollower(store, self._place, broker_id, self.follower)
        await self._start(SimulatedBroker(broker_id, store, follower))

    async def _start(self, broker: SimulatedBroker) -> None:
        self.running[broker.broker_id] = broker
        await broker.start()

    async def _add_followers(self, lacking: _Lacking) -> None:
        """Puts followers that take part into the in-sync sets of partitions that are led here."""
        seen = -1
        while True:
            await asyncio.sleep(CAUGHT_UP_EVERY_S)
            if self.image.revision == seen:
                continue
            seen = self.image.revision
            changes = lacking.to_add(self.running)
            writers = [(self.running[leader].writer, theirs) for leader, theirs in changes.items()]
            await asyncio.gather(*(writer.change_isr(theirs) for writer, theirs in writers), return_exceptions=True)

    async def _connect(self) -> CountingStore:
        return await CountingStore.open(self._place.endpoints, self._place.cluster, self._counts)

    async def stop(self, broker_ids: Iterable[int]) -> None:
        await asyncio.gather(*(self.running.pop(broker_id).stop() for broker_id in broker_ids))

    async def die(self, broker_ids: Iterable[int]) -> None:
        await asyncio.gather(*(self.running.pop(broker_id).die() for broker_id in broker_ids))

    def saw_refused(self, broker_ids: Sequence[int]) -> None:
        for broker in self.running.values():
            broker.saw_refused(broker_ids)

    async def churn(self, changes: int) -> float:
        """Takes one follower at a time out of an in-sync set, in transactions of one partition. Returns the seconds."""
        image = self.image
        chosen: dict[int, list[tuple[str, int]]] = {}
        left = changes
        for topic in image.sorted_topics():
            for index, partition in enumerate(topic.partitions):
                if left and partition.leader in self.running and len(partition.isr) > 1:
                    chosen.setdefault(partition.leader, []).append((topic.name, index))
                    left -= 1
        began_s = time.perf_counter()
        await asyncio.gather(*(self._shrink(leader, names) for leader, names in chosen.items()))
        return time.perf_counter() - began_s

    async def _shrink(self, leader: int, names: Sequence[tuple[str, int]]) -> None:
        broker = self.running[leader]
        for name, index in names:
            isr = self.image.topics[name].partitions[index].isr
            await broker.writer.change_isr([isr_change(broker.writer.image, name, index, isr[:-1])])
