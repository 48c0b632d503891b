"""The controller: one broker of the cluster, which gives partitions leaders and lifts the fences of brokers.

Any broker may be the controller: it creates the key `controller` under the lease of its registration if the key is
absent. The controller keeps no state. It compares the image with the plans of `planner/failover.py` and
`planner/reassignment.py` after each change, writes the missing changes, and looks again. Each of its transactions
compares the revision at which it became the controller, so a former controller writes nothing. Brokers are never
commanded: they watch the store.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from cordwood.cluster.authority import Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.metadata.image import ClusterImage, ControllerImage, ImageDelta, TopicImage
from cordwood.cluster.metadata.replaced_storage import told_by_controller
from cordwood.cluster.metadata.rows import BrokerRow, broker_key, decode_broker
from cordwood.cluster.planner.failover import Steps, plan_topic, preferred_elections, ready_to_serve
from cordwood.cluster.planner.isr import MOST_COMPARES, GuardedPut, batches, together
from cordwood.cluster.planner.reassignment import plan_steps
from cordwood.cluster.planner.registration import is_controller, plan_controller, plan_lift
from cordwood.cluster.stores.interface import Compare, MetadataStore, StoreClosed, StoreFailure

logger = logging.getLogger("cordwood.cluster")

PAUSE_S = 0.1
"""The pause after a failure of the store or a lost race."""
REBALANCE_S = 1.0
"""The pause between two groups of preferred elections, and before the first of them."""
ELECTED_AT_ONCE = 100
"""Preferred elections in one group: clients look for their leaders anew after each."""
ASKS_AGAIN_S = 1.0
"""The pause between two looks at partitions whose replicas are asked for the ends of their logs."""
SETTLED_MS = 10_000
"""The time for which a newly registered broker is elected last: librdkafka waits up to 10 s (reconnect.backoff.max.ms)
before it connects again to a broker that it lost."""
_PARTITIONS_AT_ONCE = 1000
"""Partitions that are looked at in one turn of the loop: 1,000 take a few milliseconds."""


class Controller:
    """Becomes the controller when there is none, and does its work. Belongs to one event loop."""

    def __init__(
        self,
        store: MetadataStore,
        follower: ImageFollower,
        authority: Authority,
        lease_of: Callable[[], int],
        boot_ms: Callable[[], int],
    ) -> None:
        """`lease_of` returns the lease of the broker's present registration. `boot_ms` reads the boot clock."""
        self._store = store
        self._follower = follower
        self._image: ClusterImage = follower.image
        self._authority = authority
        self._lease_of = lease_of
        self._boot_ms = boot_ms
        self._registered_ms: dict[int, int] = {}
        """The times at which this broker saw others register or lose their fences: all other brokers are settled."""
        self._changed = asyncio.Event()
        self._dirty: dict[str, None] | None = None
        """Topics to look at; None: all."""
        self._displaced: dict[str, None] | None = None
        """Topics that may have other than preferred leaders; None: any may."""
        self._passed_over: frozenset[int] = frozenset()
        """Brokers that were too recent to lead when `_displaced` was found."""
        self._asked_ms: dict[str, dict[int, int]] = {}
        """The time since which replicas are asked for the ends of their logs, by topic and partition."""
        self._most_compares = MOST_COMPARES
        self._rebalances = False
        """True if partitions had other than their preferred leaders at the last look."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._follower.watchers.append(self._image_changed)
        self._changed.set()
        self._task = asyncio.create_task(self._run(), name="controller")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _image_changed(self, delta: ImageDelta) -> None:
        self._registered_ms.update(dict.fromkeys(delta.registered, self._boot_ms()))
        if delta.brokers_changed or delta.registered or delta.broker_settings_changed:
            self._dirty = self._displaced = None
        else:
            names = dict.fromkeys(topic.name for topic in delta.created)
            names.update(dict.fromkeys(change.after.name for change in delta.changed))
            for topics in (self._dirty, self._displaced):
                if topics is not None:
                    topics.update(names)
        self._changed.set()

    def _recent(self) -> frozenset[int]:
        """Brokers that came back a moment ago."""
        now_ms = self._boot_ms()
        self._registered_ms = {
            broker: since_ms for broker, since_ms in self._registered_ms.items() if now_ms - since_ms < SETTLED_MS
        }
        return frozenset(self._registered_ms)

    @property
    def _own(self) -> ControllerImage | None:
        """The image's controller if it is this registration of this broker."""
        controller = self._image.controller
        if controller is None:
            return None
        mine = (self._authority.broker_id, self._authority.broker_epoch)
        return controller if controller[:2] == mine else None

    async def _run(self) -> None:
        idle_s: float | None = None
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                idle_s = await self._look()
            except StoreClosed:
                return
            except StoreFailure:
                self._dirty = None
                self._changed.set()
                await asyncio.sleep(PAUSE_S)

    async def _look(self) -> float | None:
        """Does the work that is due. Returns the seconds until the next look if nothing changes; None: no look."""
        if self._image.controller is None and not await self._stand():
            return PAUSE_S
        controller = self._own
        if controller is None:
            self._dirty = self._displaced = None
            self._asked_ms = {}
            return None
        if not await self._reconcile(controller):
            return PAUSE_S
        again_s = await self._rebalance(controller)
        return ASKS_AGAIN_S if self._asked_ms else again_s

    async def _stand(self) -> bool:
        """Tries to become the controller. False: not now."""
        if self._image.node_id not in self._image.brokers or not self._lease_of():
            return False
        plan = plan_controller(self._authority.broker_id, self._authority.broker_epoch, self._lease_of())
        result = await self._authority.transact(plan)
        await self._follower.reach(result.revision)
        if result.succeeded:
            logger.info("broker %d is the controller", self._authority.broker_id)
        self._dirty = None
        return self._image.controller is not None

    # Partitions and fences

    async def _reconcile(self, controller: ControllerImage) -> bool:
        """Writes the missing changes of partitions and brokers. True if the image lacks nothing. Otherwise `_dirty` has
        the topics to look at again."""
        names, self._dirty = self._dirty, {}
        everything = names is None
        fenced = {broker_id: each.epoch for broker_id, each in self._image.brokers.items() if each.fenced}
        holds_up: set[int] = set()
        writes: list[GuardedPut] = []
        looked_at = 0
        recent = self._recent()
        for name in sorted(self._image.topics) if names is None else names:
            topic = self._image.topics.get(name)
            if topic is None:
                self._asked_ms.pop(name, None)
                continue
            steps = self._plan(topic, recent)
            # A partition moves on only when it is in order otherwise.
            writes += steps.writes or plan_steps(self._image, topic)
            holds_up |= steps.holds_up
            looked_at += len(topic.partitions)
            if looked_at > _PARTITIONS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        if writes:
            # Elections first: only they compare epochs. Partitions that merely lose a follower can wait.
            writes.sort(key=lambda write: len(write.compares) == 1)
            # The image has the writes now, and their topics are noted. Fences are lifted by a look at all topics; after
            # a lost race or an unknown outcome the image may not change.
            if not await self._write(writes, controller) or everything:
                self._dirty = None
            return False
        if not everything:
            return True
        lifted = True
        for broker_id, row in ready_to_serve(self._image, holds_up).items():
            # A broker that registered while the topics were looked at waits for the next look.
            if fenced.get(broker_id) == row.epoch:
                lifted = await self._lift(broker_id, row, controller) and lifted
        if not lifted:
            self._dirty = None
        return lifted

    def _plan(self, topic: TopicImage, recent: Collection[int]) -> Steps:
        """The next writes of a topic. Notes since when its replicas are asked, and marks the topic for another look."""
        now_ms, since_ms = self._boot_ms(), self._asked_ms.pop(topic.name, {})
        asked_for_ms = {index: now_ms - each for index, each in since_ms.items()}
        steps = plan_topic(self._image, topic, recent, asked_for_ms)
        if steps.asked:
            self._asked_ms[topic.name] = {index: since_ms.get(index, now_ms) for index in steps.asked}
            if self._dirty is not None:
                self._dirty[topic.name] = None
        return steps

    async def _write(self, writes: Iterable[GuardedPut], controller: ControllerImage) -> bool:
        """Writes in batches, side by side. True if all succeeded."""
        guard = is_controller(controller)
        groups = list(batches(writes, self._most_compares))
        failures: list[tuple[int, StoreFailure]] = []
        results = await asyncio.gather(*(self._write_batch(group, guard, failures) for group in groups))
        if failures:
            partitions = sum(count for count, _ in failures)
            logger.warning("the controller could not write %d partitions: %s", partitions, failures[0][1])
        await self._follower.reach(max(revision for _, revision in results))
        succeeded = all(done for done, _ in results)
        if any(revision and not done for done, revision in results):
            # A batch fails as a whole where one of its partitions was changed: smaller ones let the others through.
            self._most_compares = max(self._most_compares // 4, 4)
        else:
            # A store that is too slow would be slower still with more and smaller transactions.
            self._most_compares = MOST_COMPARES
        return succeeded

    async def _write_batch(
        self, group: Sequence[GuardedPut], guard: Compare, failures: list[tuple[int, StoreFailure]]
    ) -> tuple[bool, int]:
        """Whether the batch was written, and at which revision. A failure is added to `failures`, with the number of
        partitions of the batch."""
        try:
            result = await self._authority.transact(together(group, [guard]))
        except StoreClosed:
            raise
        except StoreFailure as failure:
            failures.append((len(group), failure))
            return False, 0
        return result.succeeded, result.revision

    async def _lift(self, broker_id: int, row: BrokerRow, controller: ControllerImage) -> bool:
        """Lifts the fence of a broker. True if that succeeded, or is no longer due."""
        item = await self._store.get(broker_key(broker_id))
        if item is None or decode_broker(item.key, item.value) != row:
            return False
        replaced = told_by_controller(self._image, broker_id)
        result = await self._authority.transact(plan_lift(item, broker_id, is_controller(controller)))
        await self._follower.reach(result.revision)
        if result.succeeded:
            logger.info("broker %d takes part in epoch %d", broker_id, row.epoch)
            if replaced is not None:
                logger.error("%s", replaced)
        return result.succeeded

    # Preferred leaders

    async def _rebalance(self, controller: ControllerImage) -> float | None:
        """Gives a group of partitions their preferred leaders back. Returns the time of the next group."""
        if not self._image.settings.auto_leader_rebalance_enable:
            return None
        recent = self._recent()
        group = await self._next_preferred(recent)
        if not group:
            self._rebalances = False
            # Brokers that came back get their leaderships when they have settled.
            return REBALANCE_S if recent else None
        if not self._rebalances:
            # Brokers that return get a moment to settle.
            self._rebalances = True
            return REBALANCE_S
        await self._write(group, controller)
        return REBALANCE_S

    async def _next_preferred(self, recent: frozenset[int]) -> list[GuardedPut]:
        """The next group of preferred elections. Topics without any are not looked at again until they or the `recent`
        brokers change."""
        if self._displaced is None or recent != self._passed_over:
            self._passed_over = recent
            self._displaced = dict.fromkeys(sorted(self._image.topics))
        displaced = self._displaced
        group: list[GuardedPut] = []
        looked_at = 0
        for name in list(displaced):
            topic = self._image.topics.get(name)
            found = () if topic is None else preferred_elections(self._image, [topic], recent)
            elections = list(islice(found, ELECTED_AT_ONCE))
            if not elections:
                displaced.pop(name, None)
            group += elections
            if len(group) >= ELECTED_AT_ONCE:
                break
            looked_at += 0 if topic is None else len(topic.partitions)
            if looked_at > _PARTITIONS_AT_ONCE:
                looked_at = 0
                await asyncio.sleep(0)
        return group[:ELECTED_AT_ONCE]
