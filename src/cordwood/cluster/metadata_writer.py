"""Writes the cluster's metadata: drives plans over the metadata store. Belongs to one event loop.

`start` registers this broker, loads the image, sweeps changes that a crash left half done, and follows the store from
then on. When a method returns, its change is durable and in the image. Requests are carried out one after the other,
the topics of one request together.

A refusal is the outcome of one topic or resource. A failing store is a StoreFailure out of the method: part of the
request may have happened. A half-done change stays invisible, and the next start sweeps it. OutcomeUnknown out of a
method means that the store did not tell the outcome and cannot be read.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cordwood.cluster.authority import ATTEMPTS_ON_ONE_KEY, Authority
from cordwood.cluster.follower import ImageFollower
from cordwood.cluster.isr_writer import IsrWriter
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta, TopicImage
from cordwood.cluster.metadata.rows import PRODUCER_ID_BLOCK, BrokerRow, Endpoint
from cordwood.cluster.partition_writer import PartitionName, PartitionWriter
from cordwood.cluster.plan_execution import TOPICS_AT_ONCE, PlanExecution
from cordwood.cluster.planner.configs import (
    ConfigAlteration,
    ConfigChange,
    ConfigResource,
    alteration_weight,
    plan_alterations,
    plan_incremental_alter,
    plan_replace_configs,
)
from cordwood.cluster.planner.finalising import plan_finalising
from cordwood.cluster.planner.forgetting import plan_directories_gone, plan_forgetting
from cordwood.cluster.planner.internal_topics import internal_topic, plan_growth
from cordwood.cluster.planner.isr import GuardedPut, IsrChange, IsrOutcome, batches, together
from cordwood.cluster.planner.placement import places
from cordwood.cluster.planner.registration import plan_producer_ids
from cordwood.cluster.planner.security.acls import AclAlteration, plan_create_acls, plan_delete_acls
from cordwood.cluster.planner.security.quotas import EntityChange, QuotaAlteration, plan_alter_quotas
from cordwood.cluster.planner.security.tokens import (
    Change as TokenChange,
)
from cordwood.cluster.planner.security.tokens import (
    TokenAlteration,
    plan_change_token,
    plan_create_token,
    plan_remove_expired,
)
from cordwood.cluster.planner.security.users import UserAlteration, UserChange, plan_alter_users
from cordwood.cluster.planner.topic_configs import text_weight
from cordwood.cluster.planner.topics import (
    MorePartitions,
    NewTopic,
    PartitionAddition,
    TopicDeletion,
    TopicReference,
    plan_create_partitions,
    plan_create_topics,
    plan_delete_topics,
)
from cordwood.cluster.registration import ALONE, LEASE_MS, BrokerRegistration, LeaseHolder, NoteEpoch, Standing
from cordwood.cluster.stores.interface import MetadataStore, OutcomeUnknown, StoreFailure
from cordwood.cluster.stores.leases import monotonic_ms
from cordwood.model.acls import Acl
from cordwood.model.delegation_tokens import DelegationToken
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId
from cordwood.model.quotas import Entity

if TYPE_CHECKING:
    from cordwood.cluster.controller import Controller
    from cordwood.cluster.evidence import Evidence
    from cordwood.cluster.planner.failover import Election
    from cordwood.cluster.planner.reassignment import Move
    from cordwood.cluster.roll_call import Answering

_VALIDATED_AT_ONCE = 250

Change = TypeVar("Change", ConfigChange, tuple[str, str | None])


class CreatedTopic(NamedTuple):
    """A new topic, and the settings that were set on it."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    overrides: Mapping[str, str]


class MetadataWriter:
    """Plans and carries out changes of the metadata, on the image that the follower keeps."""

    def __init__(
        self,
        store: MetadataStore,
        follower: ImageFollower,
        *,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        lease_ms: int = LEASE_MS,
        standing: Standing = ALONE,
        holder: LeaseHolder | None = None,
        boot_ms: Callable[[], int] = monotonic_ms,
        note_epoch: NoteEpoch | None = None,
        token_key: str = "",
    ) -> None:
        """`lease_ms`: the time by which the registration outlives the broker. `boot_ms` reads the boot clock.
        `token_key`: the fingerprint of the key of delegation tokens; empty: the broker has none."""
        self.follower = follower
        self.image = follower.image
        self._store = store
        self._new_id = new_id
        self._authority = Authority(store, follower.image.node_id)
        self.registration = BrokerRegistration(
            store,
            self._authority,
            lease_ms,
            follower.image.metadata_versions,
            standing=standing,
            holder=holder,
            boot_ms=boot_ms,
            note_epoch=note_epoch,
            token_key=token_key,
        )
        self._clustered = standing.clustered
        self.controller: Controller | None = None
        self.evidence: Evidence | None = None
        self._answering: Answering | None = None
        if standing.clustered:
            # Imported only in a cluster, to keep the start of a lone broker quick.
            from cordwood.cluster import controller, evidence, roll_call

            self.controller = controller.Controller(
                store, follower, self._authority, lambda: self.registration.lease, boot_ms
            )
            self.evidence = evidence.Evidence(
                store, follower, self._authority, lambda: self.registration.lease, boot_ms
            )
            self._answering = roll_call.Answering(follower, self._authority, lambda: self.registration.lease)
        self._isr_writer = IsrWriter(store, follower, self._authority)
        self.partitions = PartitionWriter(follower, self._authority)
        self._execution = PlanExecution(follower, self._authority)
        self._producer_ids = asyncio.Lock()

    @property
    def broker_epoch(self) -> int:
        return self._authority.broker_epoch

    async def start(self, endpoints: Sequence[Endpoint]) -> None:
        """Registers the broker. Returns when the image is complete and followed.

        Raises StoreFailure, UnsupportedMetadata.
        """
        await self.registration.start(self.image.static_settings, endpoints, self._new_id)
        await self.follower.load()
        await self._execution.sweep(self.image.strays())
        self.follower.follow()
        if self._clustered:
            self.follower.watchers.append(self._look_at_own_row)
        if self.controller is not None and self.evidence is not None and self._answering is not None:
            self.controller.start()
            self.evidence.start()
            self._answering.start()

    @property
    def _own_row(self) -> BrokerRow | None:
        """The row of this registration; None: the image does not show it."""
        broker = self.image.brokers.get(self.image.node_id)
        return broker if broker is not None and broker.epoch == self.broker_epoch else None

    @property
    def takes_part(self) -> bool:
        """True if the controller has taken note of this registration and lifted the broker's fence."""
        row = self._own_row
        return row is not None and not row.fenced

    def _look_at_own_row(self, delta: ImageDelta) -> None:
        if (row := self._own_row) is not None:
            self.registration.row_shows(row)
            if not row.fenced:
                self.registration.fence_lifted()

    async def ready(self, doubtful: Collection[PartitionName] = ()) -> None:
        """Tells the cluster that this broker answers requests, so that its fence can be lifted. `doubtful`: partitions
        whose logs here are missing, or may lack records at their ends: this broker leaves their in-sync sets first.
        Raises StoreFailure."""
        if not self._clustered:
            return
        if doubtful:
            from cordwood.cluster.planner.failover import plan_leaving

            await self.partitions.change(doubtful, lambda name: plan_leaving(self.image, *name, self.image.node_id))
        await self.registration.say(draining=False)

    async def take_part(self, timeout_s: float, doubtful: Collection[PartitionName] = ()) -> bool:
        """Calls `ready`, and waits until the fence is lifted. False if the time was too short. Raises StoreFailure."""
        await self.ready(doubtful)
        return not self._clustered or await self._until(lambda: self.takes_part, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until a condition holds in the image. False if the time was too short."""
        met = asyncio.Event()

        def look(delta: ImageDelta) -> None:
            if holds():
                met.set()

        look(ImageDelta(self.image.revision))
        self.follower.watchers.append(look)
        try:
            async with asyncio.timeout(timeout_s):
                await met.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self.follower.watchers.remove(look)

    async def drain(self, timeout_s: float) -> bool:
        """Prepares a stop: waits until the controller has moved leaderships of this broker to others that can take
        them, and has taken it out of in-sync sets. False if the time was too short, or the store failed."""
        if not self._clustered:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self.registration.say(draining=True)
        except (StoreFailure, TimeoutError):
            return False
        from cordwood.cluster.planner.failover import leaves_nothing

        return await self._until(lambda: leaves_nothing(self.image, self.image.node_id), timeout_s)

    async def accept_loss(self, topic: str, partition: int, broker_id: int | None = None) -> int:
        """Gives one partition a leader, like `accept_losses`. Returns the leader. Raises ProtocolError,
        StoreFailure."""
        outcomes = await self.accept_losses([(topic, partition)], broker_id)
        outcome = outcomes[topic, partition]
        if isinstance(outcome, ProtocolError):
            raise outcome
        return outcome

    async def accept_losses(
        self, partitions: Collection[PartitionName], broker_id: int | None = None
    ) -> dict[PartitionName, int | ProtocolError]:
        """Gives partitions without a leader the broker, or their first live replica, as the leader, whatever records it
        lacks: an operator accepts their loss. Returns leaders or refusals. Raises StoreFailure."""
        from cordwood.cluster.planner.accepted_losses import plan_accepted_loss

        return await self._elect(partitions, lambda name: plan_accepted_loss(self.image, *name, broker_id))

    async def begin_anew(
        self, partitions: Collection[PartitionName], broker_id: int
    ) -> dict[PartitionName, int | ProtocolError]:
        """Lets partitions whose replicas are all away begin anew, empty, on the broker. Returns leaders or refusals.
        Raises StoreFailure."""
        from cordwood.cluster.planner.accepted_losses import plan_beginning_anew

        return await self._elect(partitions, lambda name: plan_beginning_anew(self.image, *name, broker_id))

    async def elect_preferred(self, partitions: Collection[PartitionName]) -> dict[PartitionName, int | ProtocolError]:
        """Makes first replicas that are in sync the leaders. Returns leaders or refusals. Raises StoreFailure."""
        from cordwood.cluster.planner.failover import plan_preferred_election

        return await self._elect(partitions, lambda name: plan_preferred_election(self.image, *name))

    async def _elect(
        self, partitions: Collection[PartitionName], plan: Callable[[PartitionName], "Election"]
    ) -> dict[PartitionName, int | ProtocolError]:
        leaders: dict[PartitionName, int] = {}

        def write(name: PartitionName) -> GuardedPut:
            election = plan(name)
            leaders[name] = election.leader
            return election.write

        outcomes = await self.partitions.change(partitions, write)
        return {name: refusal or leaders[name] for name, refusal in outcomes.items()}

    async def reassign(
        self, moves: Sequence["Move"], *, may_change_count: bool = True
    ) -> dict[PartitionName, ProtocolError | None]:
        """Begins or cancels moves of partitions to other replicas, which the controller carries out. Returns a refusal
        or None for each. Raises StoreFailure."""
        from cordwood.cluster.planner.reassignment import plan_move

        wanted = {(move.topic, move.partition): move for move in moves}
        return await self.partitions.change(
            wanted, lambda name: plan_move(self.image, wanted[name], may_change_count=may_change_count)
        )

    async def stop(self, *, cleanly: bool = False) -> None:
        """Stops following the store, and lets the registration expire. In a cluster the registration ends at once.
        `cleanly`: the broker's logs are closed. The store stays open: it belongs to the caller."""
        if self.controller is not None and self.evidence is not None and self._answering is not None:
            await self.controller.stop()
            await self.evidence.stop()
            await self._answering.stop()
        await self.registration.stop(cleanly=cleanly)
        await self.follower.stop()

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, internal: bool = False
    ) -> dict[str, CreatedTopic | ProtocolError]:
        """Creates topics; outcomes by name, in the order of the request. `internal` allows internal topics."""
        tried: set[TopicId] = set()

        def new_id() -> TopicId:
            tried.add(topic_id := self._new_id())
            return topic_id

        # Validated topics never get into the image, so name clashes among them are found only within one slice.
        outcomes = await self._execution.in_slices(
            [(topic.name, topic) for topic in topics],
            lambda wanted: plan_create_topics(self.image, wanted, new_id, internal=internal),
            validate_only,
            at_once=_VALIDATED_AT_ONCE if validate_only else TOPICS_AT_ONCE,
            weigh=lambda topic: text_weight(topic.configs),
        )
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
            created[name] = CreatedTopic(name, *made, overrides)
        return created

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        """The broker's own topic of this name, created if it does not exist. Raises ProtocolError."""
        topic = self.image.topics.get(name)
        if topic is None:
            wanted = internal_topic(name, self.image.settings, places(self.image))
            outcome = (await self.create_topics([wanted], internal=True))[name]
            if isinstance(outcome, ProtocolError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            topic = self.image.topics[name]
        return topic

    async def grow_internal_topics(self) -> None:
        """Adds missing replicas to internal topics. Changes that lose a race are left to the next call. Raises
        StoreFailure."""
        async with self._execution.one_at_a_time:
            for batch in batches(plan_growth(self.image)):
                result = await self._authority.attempt(together(batch))
                await self.follower.reach(result.revision)

    async def create_partitions(
        self, topics: Iterable[MorePartitions], *, validate_only: bool = False
    ) -> dict[str, PartitionAddition | ProtocolError]:
        """Adds partitions; outcomes by topic name, in the order of the request."""
        return await self._execution.in_slices(
            [(topic.name, topic) for topic in topics],
            lambda wanted: plan_create_partitions(self.image, wanted),
            validate_only,
        )

    async def delete_topics(
        self, references: Iterable[TopicReference]
    ) -> dict[TopicReference, TopicDeletion | ProtocolError]:
        """Deletes topics; outcomes by reference, in the order of the request."""
        return await self._execution.in_slices(
            [(reference, reference) for reference in references],
            lambda wanted: plan_delete_topics(self.image, wanted),
            False,
        )

    async def forget_deletions(self, topic_ids: Collection[TopicId]) -> None:
        """Notes in the tombstones of deleted topics that this broker's directories are gone. Raises StoreFailure."""
        for attempt in range(ATTEMPTS_ON_ONE_KEY):
            # After a lost race tombstones are written one by one: another broker may be at the same ones.
            groups = [topic_ids] if not attempt else [[topic_id] for topic_id in topic_ids]
            plans = [plan for group in groups for plan in plan_directories_gone(self.image, group)]
            results = [await self._authority.attempt(plan) for plan in plans]
            await self.follower.reach(max((result.revision for result in results), default=0))
            if all(result.succeeded for result in results):
                return
            await self._authority.check()

    async def forget_broker(self, broker_id: int) -> None:
        """Forgets a broker that never comes back. Raises ProtocolError, StoreFailure."""
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            results = [await self._authority.attempt(plan) for plan in plan_forgetting(self.image, broker_id)]
            await self.follower.reach(max((result.revision for result in results), default=0))
            if all(result.succeeded for result in results):
                return
            await self._authority.check()
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} changes all the time; try again.")

    async def finalise_metadata_version(self, version: int, *, validate_only: bool = False) -> None:
        """Finalises a version of the metadata that all brokers support. Raises ProtocolError, StoreFailure."""
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            plan = plan_finalising(self.image, version)
            if plan is None or validate_only:
                return
            result = await self._authority.commit(plan)
            await self.follower.reach(result.revision)
            if result.succeeded:
                return
            await self._authority.check()
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "Brokers register all the time; try again.")

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
        return await self._execution.in_slices(
            [(alteration[0], alteration) for alteration in alterations],
            lambda wanted: plan_alterations(plan, self.image, wanted),
            validate_only,
            weigh=lambda alteration: alteration_weight(self.image, *alteration),
        )

    async def create_acls(self, acls: Sequence[Acl], wall_ms: int) -> dict[Acl, AclAlteration | ProtocolError]:
        """Makes rules of access; outcomes by rule. `wall_ms`: the time now."""
        return await self._execution.in_slices(
            [(acl, acl) for acl in acls], lambda wanted: plan_create_acls(self.image, wanted, wall_ms), False
        )

    async def delete_acls(self, acls: Sequence[Acl], wall_ms: int) -> dict[Acl, AclAlteration | ProtocolError]:
        """Deletes rules of access; outcomes by rule. `wall_ms`: the time now."""
        return await self._execution.in_slices(
            [(acl, acl) for acl in acls], lambda wanted: plan_delete_acls(self.image, wanted, wall_ms), False
        )

    async def alter_quotas(
        self, changes: Sequence[EntityChange], *, validate_only: bool = False
    ) -> dict[Entity, QuotaAlteration | ProtocolError]:
        """Changes quotas of clients; outcomes by entity."""
        return await self._execution.in_slices(
            [(change[0], change) for change in changes],
            lambda wanted: plan_alter_quotas(self.image, wanted),
            validate_only,
        )

    async def alter_users(self, changes: Sequence[UserChange]) -> dict[str, UserAlteration | ProtocolError]:
        """Changes keys of users; outcomes by user, in the order of the request."""
        secret = self._new_id().bytes + self._new_id().bytes
        return await self._execution.in_slices(
            [(change.name, change) for change in changes],
            lambda wanted: plan_alter_users(self.image, wanted, secret),
            False,
        )

    async def create_token(self, token: DelegationToken) -> DelegationToken | ProtocolError:
        """Makes a delegation token."""
        return await self._change_token(token.token_id, lambda: plan_create_token(self.image, token)) or token

    async def change_token(self, token_id: str, change: TokenChange) -> DelegationToken | ProtocolError | None:
        """Changes or removes a delegation token. Returns it as it is then; None: it is gone."""
        return await self._change_token(token_id, lambda: plan_change_token(self.image, token_id, change))

    async def _change_token(
        self, token_id: str, plan: Callable[[], TokenAlteration]
    ) -> DelegationToken | ProtocolError | None:
        def planned(_: Sequence[None]) -> dict[str, TokenAlteration | ProtocolError]:
            try:
                return {token_id: plan()}
            except ProtocolError as refusal:
                return {token_id: refusal}

        outcome = (await self._execution.in_slices([(token_id, None)], planned, False))[token_id]
        return outcome if isinstance(outcome, ProtocolError) else outcome.token

    async def remove_expired_tokens(self, now_ms: int) -> bool:
        """Removes some of the delegation tokens that are over. True if there may be more. Raises StoreFailure."""
        async with self._execution.one_at_a_time:
            plans = list(plan_remove_expired(self.image, now_ms))
            results = [await self._authority.attempt(plan) for plan in plans]
            await self.follower.reach(max((result.revision for result in results), default=0))
        return bool(plans)

    async def change_isr(self, changes: Sequence[IsrChange]) -> dict[tuple[TopicId, int], IsrOutcome]:
        """Changes in-sync sets of partitions that this broker leads; outcomes by topic id and partition."""
        return await self._isr_writer.change(changes)

    async def allocate_producer_ids(self, wall_ms: int) -> range:
        """Reserves a block of producer ids that no other caller ever gets. Raises StoreFailure."""
        async with self._producer_ids:
            for _ in range(ATTEMPTS_ON_ONE_KEY):
                block = plan_producer_ids(await self._store.get(PRODUCER_ID_BLOCK), wall_ms)
                if (await self._authority.attempt(block.plan.commit)).succeeded:
                    return block.producer_ids
                await self._authority.check()
            raise OutcomeUnknown("the metadata store does not say whether it gave out producer ids")
