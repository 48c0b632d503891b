"""Drives plans over a metadata store and keeps the image up to date. Belongs to one event loop.

One node is its own controller. `start` registers this broker, loads the image, sweeps changes that a crash left half
done, and follows the store from then on. When a method returns, its change is durable and in the image. Requests are
carried out one after the other, the topics of one request together.

A refusal is the outcome of one topic or resource. A failing store is a StoreFailure out of the method: part of the
request may have happened. A half-done change stays invisible, and the next start sweeps it. A transaction whose outcome
the store cannot tell is looked up, never repeated blindly; OutcomeUnknown out of a method means that the look failed.
"""

import asyncio
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from cordwood.cluster.config_descriptions import ConfigEntry, topic_entries
from cordwood.cluster.image import ClusterImage, ImageDelta, TopicImage
from cordwood.cluster.planner.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    plan_alterations,
    plan_incremental_alter,
    plan_replace_configs,
)
from cordwood.cluster.planner.registration import (
    RegisteredBroker,
    Registration,
    authority_of,
    plan_cluster_id,
    plan_producer_ids,
    plan_registration,
    plan_return,
)
from cordwood.cluster.planner.sweep import partition_groups, sweep_partitions, sweep_topic
from cordwood.cluster.planner.topics import (
    MorePartitions,
    NewTopic,
    PartitionAddition,
    TopicCreation,
    TopicDeletion,
    TopicReference,
    internal_topic,
    plan_create_partitions,
    plan_create_topics,
    plan_delete_topics,
    plan_forget_deletions,
)
from cordwood.cluster.planner.transactions import Plan, StoreTxn
from cordwood.cluster.rows import CLUSTER_ID, PRODUCER_ID_BLOCK, Endpoint, broker_epoch_key
from cordwood.cluster.stores.interface import (
    Compacted,
    Compare,
    Event,
    LeaseEnded,
    MetadataStore,
    OutcomeUnknown,
    StoreClosed,
    StoreFailure,
    TxnResult,
    holds,
)
from cordwood.cluster.strays import StrayPartitions
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId

_ATTEMPTS = 5
"""How often a change is planned anew after another broker changed the same keys."""
_LOOKS = 20
"""How often a transaction of one key is planned anew after it failed or its outcome was unknown."""
LEASE_MS = 10_000
_CONCURRENT_TRANSACTIONS = 64
"""SQLite commits concurrent transactions with one fsync, etcd pipelines them."""
_EVENTS_AT_ONCE = 500
_TOPICS_AT_ONCE = 50
"""Topics planned in one turn of the loop: a topic takes about 0.1 ms."""
_VALIDATED_AT_ONCE = 250

Planned = TypeVar("Planned", TopicCreation, PartitionAddition, TopicDeletion, ConfigAlteration)
Name = TypeVar("Name", bound=Hashable)
Item = TypeVar("Item")
Change = TypeVar("Change")


class CreatedTopic(NamedTuple):
    """A new topic. `configs` are all of its settings, as CreateTopics answers them."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...]


class Fenced(StoreFailure):
    """A later incarnation of this broker has registered: this incarnation must not write any more, and has to stop."""


class Controller:
    """Plans and carries out changes of the metadata. Calls `on_change` in the loop after every change of the image."""

    def __init__(
        self,
        store: MetadataStore,
        settings: BrokerSettings,
        *,
        on_change: Callable[[ImageDelta], None] = lambda delta: None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        lease_ms: int = LEASE_MS,
    ) -> None:
        """`lease_ms`: how long the broker's registration outlives the broker."""
        self.image = ClusterImage(settings.node_id, settings)
        self.on_change = on_change
        self.broker_epoch = -1
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the controller no longer follows the store: with the reason if the store failed."""
        self._store = store
        self._new_id = new_id
        self._authority: tuple[Compare, ...] = ()
        self._one_request = asyncio.Lock()
        self._producer_ids = asyncio.Lock()
        self._transactions = asyncio.Semaphore(_CONCURRENT_TRANSACTIONS)
        self._reaching: list[tuple[int, asyncio.Future[None]]] = []
        self._following: asyncio.Task[None] | None = None
        self._lease_ms = lease_ms
        self._renewing: asyncio.Task[None] | None = None

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Returns when the image is complete; later changes go to `on_change`. Raises StoreFailure."""
        assert self._following is None, "started twice"
        await self._name_cluster()
        registered, lease = await self._register(endpoints)
        self._renewing = asyncio.create_task(self._renew(registered, lease), name="renew the broker's lease")
        self.image.load(await self._store.list(""))
        await self._sweep()
        self._following = asyncio.create_task(self._follow(), name="follow the metadata store")
        self._following.add_done_callback(self._followed)

    async def stop(self) -> None:
        """Stops following the store, and lets the registration expire. The store stays open: it belongs to the
        caller."""
        tasks = [task for task in (self._renewing, self._following) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _name_cluster(self) -> None:
        plan = plan_cluster_id(_cluster_id(self._new_id()))
        for _ in range(_LOOKS):
            if (await self._commit(plan)).succeeded or await self._store.get(CLUSTER_ID) is not None:
                return
        raise OutcomeUnknown("the metadata store does not say whether it took the cluster's id")

    async def _register(self, endpoints: Sequence[Endpoint]) -> tuple[RegisteredBroker, int]:
        settings = self.image.settings
        registration = Registration(
            settings.node_id, str(self._new_id()), tuple(endpoints), settings.broker_rack or None
        )
        lease = await self._store.grant(self._lease_ms)
        for _ in range(_LOOKS):
            epoch = await self._store.get(broker_epoch_key(registration.broker_id))
            registered = plan_registration(registration, epoch, lease)
            if (await self._commit(registered.plan)).succeeded:
                break
        else:
            raise OutcomeUnknown(f"the metadata store does not say whether broker {settings.node_id} is registered")
        self.broker_epoch = registered.epoch
        self._authority = (authority_of(registration.broker_id, registered.epoch),)
        return registered, lease

    async def _renew(self, registered: RegisteredBroker, lease: int) -> None:
        """Keeps the registration alive. A broker that was stopped for longer than its lease comes back in its epoch,
        unless a later incarnation has registered."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            try:
                try:
                    await self._store.renew(lease)
                except LeaseEnded:
                    lease = await self._store.grant(self._lease_ms)
                    if not (await self._commit(plan_return(registered, lease))).succeeded:
                        await self._check_authority()
            except (StoreClosed, Fenced):
                return
            except StoreFailure:
                # The next renewal may succeed. Those who follow or write the store say that it fails.
                continue

    async def _sweep(self) -> None:
        """Removes what interrupted changes left. A change that another broker has under way is planned anew there."""
        strays = self.image.strays()
        for topic in strays.topics:
            await self._attempt(sweep_topic(topic))
        for partitions in strays.partitions:
            await self._sweep_partitions(partitions)

    async def _sweep_partitions(self, stray: StrayPartitions) -> int:
        """Returns the revision that the store is at afterwards."""
        row_revision = stray.row_revision
        for group in partition_groups(stray):
            result = await self._attempt(sweep_partitions(stray, group, row_revision))
            if not result.succeeded:
                return result.revision
            row_revision = result.revision
        return row_revision

    async def _follow(self) -> None:
        while True:
            try:
                async for events in self._store.watch("", self.image.revision + 1):
                    for group in _slices(events):
                        self._image_changed(self.image.apply(group))
                        await asyncio.sleep(0)
            except Compacted:
                self._image_changed(self.image.load(await self._store.list("")))

    def _image_changed(self, delta: ImageDelta) -> None:
        if delta:
            self.on_change(delta)
        for revision, waiter in self._reaching:
            if revision <= self.image.revision and not waiter.done():
                waiter.set_result(None)

    def _followed(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        for _, waiter in self._reaching:
            if not waiter.done():
                waiter.set_exception(StoreFailure("the metadata store is no longer followed"))
        if self.stopped.done():
            return
        if error is None:
            self.stopped.set_result(None)
        else:
            self.stopped.set_exception(error)

    async def reach(self, revision: int) -> None:
        """Waits until the image is at this revision of the store."""
        if self.image.revision >= revision:
            return
        if self._following is None or self._following.done():
            raise StoreFailure("the metadata store is not followed")
        waiter = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._reaching.append(entry)
        try:
            await waiter
        finally:
            self._reaching.remove(entry)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, internal: bool = False
    ) -> dict[str, CreatedTopic | ProtocolError]:
        """Creates topics; outcomes by name, in the order of the request. `internal` allows internal topics."""
        tried: set[TopicId] = set()

        def new_id() -> TopicId:
            tried.add(topic_id := self._new_id())
            return topic_id

        # Validated topics never get into the image, so name clashes among them are found only within one slice.
        outcomes = await self._in_slices(
            [(topic.name, topic) for topic in topics],
            lambda wanted: plan_create_topics(self.image, wanted, new_id, internal=internal),
            validate_only,
            at_once=_VALIDATED_AT_ONCE if validate_only else _TOPICS_AT_ONCE,
        )
        described: dict[tuple[tuple[str, str], ...], tuple[ConfigEntry, ...]] = {}
        created: dict[str, CreatedTopic | ProtocolError] = {}
        for name, outcome in outcomes.items():
            if isinstance(outcome, ProtocolError):
                topic = self.image.topics.get(name)
                if topic is None or topic.topic_id not in tried:
                    created[name] = outcome
                    continue
                # An earlier attempt, whose outcome was unknown, came through after all.
                made = (topic.topic_id, len(topic.partitions), len(topic.partitions[0].replicas))
                overrides = topic.overrides
            else:
                made = (outcome.topic_id, outcome.partition_count, outcome.replication_factor)
                overrides = outcome.overrides
            # Topics that are created together mostly have the same settings.
            texts = tuple(overrides.items())
            if texts not in described:
                described[texts] = tuple(topic_entries(self.image, overrides))
            created[name] = CreatedTopic(name, *made, described[texts])
        return created

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        """The broker's own topic of this name, created if it does not exist. Raises ProtocolError."""
        topic = self.image.topics.get(name)
        if topic is None:
            outcome = (await self.create_topics([internal_topic(name, self.image.settings)], internal=True))[name]
            if isinstance(outcome, ProtocolError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            topic = self.image.topics[name]
        return topic

    async def create_partitions(
        self, topics: Iterable[MorePartitions], *, validate_only: bool = False
    ) -> dict[str, PartitionAddition | ProtocolError]:
        """Adds partitions; outcomes by topic name, in the order of the request."""
        return await self._in_slices(
            [(topic.name, topic) for topic in topics],
            lambda wanted: plan_create_partitions(self.image, wanted),
            validate_only,
        )

    async def delete_topics(
        self, references: Iterable[TopicReference]
    ) -> dict[TopicReference, TopicDeletion | ProtocolError]:
        """Deletes topics; outcomes by reference, in the order of the request."""
        return await self._in_slices(
            [(reference, reference) for reference in references],
            lambda wanted: plan_delete_topics(self.image, wanted),
            False,
        )

    async def forget_deletions(self, topic_ids: Iterable[TopicId]) -> None:
        """Removes the tombstones of deleted topics whose directories are gone. Raises StoreFailure."""
        for plan in plan_forget_deletions(self.image, topic_ids):
            for _ in range(_LOOKS):
                if (await self._commit(plan)).succeeded:
                    break
                await self._check_authority()

    async def incremental_alter_configs(
        self,
        alterations: Sequence[tuple[ConfigResource, Sequence[ConfigChange]]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, ConfigAlteration | ProtocolError]:
        """Changes single settings; outcomes by resource, in the order of the request."""
        return await self._alter(plan_incremental_alter, alterations, validate_only)

    async def replace_configs(
        self,
        alterations: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, ConfigAlteration | ProtocolError]:
        """Replaces all settings (the old AlterConfigs); outcomes by resource, in the order of the request."""
        return await self._alter(plan_replace_configs, alterations, validate_only)

    async def _alter(
        self,
        plan: Callable[[ClusterImage, ConfigResource, Sequence[Change]], ConfigAlteration],
        alterations: Sequence[tuple[ConfigResource, Sequence[Change]]],
        validate_only: bool,
    ) -> dict[ConfigResource, ConfigAlteration | ProtocolError]:
        return await self._in_slices(
            [(alteration[0], alteration) for alteration in alterations],
            lambda wanted: plan_alterations(plan, self.image, wanted),
            validate_only,
        )

    async def allocate_producer_ids(self, wall_ms: int) -> range:
        """Reserves a block of producer ids that no other caller gets, ever. Raises StoreFailure."""
        async with self._producer_ids:
            for _ in range(_LOOKS):
                block = plan_producer_ids(await self._store.get(PRODUCER_ID_BLOCK), wall_ms)
                if (await self._attempt(block.plan.commit)).succeeded:
                    return block.producer_ids
                await self._check_authority()
            raise OutcomeUnknown("the metadata store does not say whether it gave out producer ids")

    async def _in_slices(
        self,
        wanted: Sequence[tuple[Name, Item]],
        plan: Callable[[Sequence[Item]], dict[Name, Planned | ProtocolError]],
        validate_only: bool,
        at_once: int = _TOPICS_AT_ONCE,
    ) -> dict[Name, Planned | ProtocolError]:
        """Carries out a large request in slices, with a turn of the loop after each. Items of a name share one."""
        by_name: dict[Name, list[Item]] = {}
        for name, item in wanted:
            by_name.setdefault(name, []).append(item)
        names = list(by_name)
        outcomes: dict[Name, Planned | ProtocolError] = {}
        for start in range(0, len(names), at_once):
            outcomes |= await self._carry_out(
                lambda names: plan([item for name in names for item in by_name[name]]),
                names[start : start + at_once],
                validate_only,
            )
            await asyncio.sleep(0)
        return outcomes

    async def _carry_out(
        self,
        plan: Callable[[Collection[Name]], dict[Name, Planned | ProtocolError]],
        names: Iterable[Name],
        validate_only: bool,
    ) -> dict[Name, Planned | ProtocolError]:
        """Plans and executes changes. A change that lost a race is planned again, on the newer image."""
        async with self._one_request:
            outcomes: dict[Name, Planned | ProtocolError] = {}
            wanted: Collection[Name] = dict.fromkeys(names)
            for _ in range(_ATTEMPTS):
                planned = plan(wanted)
                outcomes.update(planned)
                if validate_only:
                    return outcomes
                plans = {
                    name: outcome.plan
                    for name, outcome in planned.items()
                    if not isinstance(outcome, ProtocolError) and outcome.plan is not None
                }
                results = await _all(self._execute(each) for each in plans.values())
                await self.reach(max((result.revision for result in results), default=0))
                wanted = [name for name, result in zip(plans, results, strict=True) if not result.succeeded]
                if not wanted:
                    return outcomes
                await self._check_authority()
            for name in outcomes:
                if name in wanted:
                    outcomes[name] = ProtocolError(
                        ErrorCode.REQUEST_TIMED_OUT, "Other requests kept changing the same metadata: try again."
                    )
            return outcomes

    async def _execute(self, plan: Plan) -> TxnResult:
        """Executes a whole plan, or leaves nothing of it but invisible keys."""
        results = [] if plan.announcement is None else [await self._attempt(plan.announcement)]
        if all(result.succeeded for result in results):
            results += await _all(self._attempt(transaction) for transaction in plan.preparations)
        if all(result.succeeded for result in results):
            result = await self._commit(plan)
            if result.succeeded:
                return result
            results.append(result)
        results += await _all(self._attempt(transaction) for transaction in plan.undo)
        swept = 0 if plan.leftovers is None else await self._sweep_partitions(plan.leftovers)
        return TxnResult(False, max(swept, *(result.revision for result in results)))

    async def _commit(self, plan: Plan) -> TxnResult:
        """Runs a plan's commit. An unknown outcome is decided by reading the commit's keys.

        A commit that has not happened fails here, and may happen later: its caller plans anew, with comparisons that
        only one of the two passes. Raises OutcomeUnknown if the keys cannot be read.
        """
        try:
            return await self._transact(plan.commit)
        except OutcomeUnknown as unknown:
            try:
                return await self._look_up(plan.happened)
            except StoreFailure as failure:
                raise OutcomeUnknown(f"{unknown}; reading the keys again: {failure}") from failure

    async def _look_up(self, happened: Iterable[Compare]) -> TxnResult:
        revision = 0
        for compare in happened:
            listing = await self._store.list(compare.key)
            revision = listing.revision
            item = next((item for item in listing.items if item.key == compare.key), None)
            if holds(compare, item):
                return TxnResult(True, revision)
        return TxnResult(False, revision)

    async def _attempt(self, transaction: StoreTxn) -> TxnResult:
        """Runs a transaction that is invisible, or that can be given up: an unknown outcome counts as a failure."""
        try:
            return await self._transact(transaction)
        except OutcomeUnknown:
            return TxnResult(False, 0)

    async def _transact(self, transaction: StoreTxn) -> TxnResult:
        """Runs a transaction under this broker's authority."""
        async with self._transactions:
            return await self._store.txn((*transaction.compares, *self._authority), transaction.operations)

    async def _check_authority(self) -> None:
        node_id = self.image.node_id
        stored = await self._store.get(broker_epoch_key(node_id))
        if stored is None or not holds(self._authority[0], stored):
            raise Fenced(f"broker {node_id} was registered again by another process; epoch {self.broker_epoch} is over")


async def _all(calls: Iterable[Awaitable[TxnResult]]) -> list[TxnResult]:
    """Awaits all calls together. Returns their results, or raises the first error once all calls have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _slices(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Groups the events by whole revisions, about _EVENTS_AT_ONCE in a group, so that the loop is not held up."""
    start = 0
    for index in range(1, len(events)):
        if index - start >= _EVENTS_AT_ONCE and events[index].mod_revision != events[index - 1].mod_revision:
            yield events[start:index]
            start = index
    yield events[start:]


def _cluster_id(unique: uuid.UUID) -> str:
    """A cluster id as Kafka writes it: 22 characters."""
    return urlsafe_b64encode(unique.bytes).decode().rstrip("=")
