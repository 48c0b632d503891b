"""The registration of this broker: a new broker epoch at every start, and a row that lives as long as its lease.

The first registration in a new store names the cluster. A broker that does not support the version of the cluster's
metadata is refused before it writes anything that others see.

A broker in a shared store registers fenced: the controller lifts the fence once the broker leads nothing by an earlier
epoch. If its lease ends, other brokers may lead its partitions: it registers anew, in a new epoch. A lone broker with
its own store comes back in its epoch.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.cluster.authority import ATTEMPTS_ON_ONE_KEY, Authority, Fenced
from cordwood.cluster.metadata.rows import (
    BROKERS,
    CLUSTER_ID,
    IMPORT,
    METADATA_VERSION,
    TOKEN_KEY,
    BrokerRow,
    Endpoint,
    LogEnd,
    broker_epoch_key,
    broker_key,
    decode_broker,
)
from cordwood.cluster.metadata.versions import SUPPORTED, VersionRange, check_supported
from cordwood.cluster.planner.registration import (
    NOTHING_ELSE,
    Condition,
    RegisteredBroker,
    condition_of,
    finalised_version,
    plan_cluster_id,
    plan_end_of_epoch,
    plan_first_metadata_version,
    plan_own_row,
    plan_registration,
    plan_return,
)
from cordwood.cluster.planner.security.tokens import plan_token_key
from cordwood.cluster.planner.store_transactions import StoreTxn
from cordwood.cluster.stores.interface import (
    KeyValue,
    LeaseEnded,
    MetadataStore,
    OutcomeUnknown,
    StoreClosed,
    StoreFailure,
    StoreWentBack,
)
from cordwood.cluster.stores.leases import monotonic_ms
from cordwood.model.errors import BadKeys
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.token_settings import TOKEN_KEY_FILE

logger = logging.getLogger("cordwood.cluster")

LEASE_MS = 10_000


class Standing(NamedTuple):
    """The part of a broker in its cluster."""

    storage_id: str = ""
    """The id of the broker's data directory."""
    unclean: bool = False
    """The machine was started again since the broker ran, and the broker had not stopped cleanly."""
    clustered: bool = False
    """True if other brokers share the store."""


ALONE = Standing()
"""The standing of a broker with its own store."""


class NoteEpoch(Protocol):
    """Notes the broker's epochs in its directory."""

    async def __call__(self, broker_epoch: int, *, registers: bool) -> bool:
        """Returns True if the directory has the epoch, durably. A broker that `registers` in it goes on in any case;
        then the directory must not know an earlier epoch."""


class LeaseHolder(Protocol):
    """Counts the time for which the broker may serve."""

    def registered(self, broker_epoch: int, key: int, sent_boot_ms: int) -> None:
        """Notes a registration with this key, under a lease that was asked for at this time of the boot clock."""

    def lease_renewed(self, sent_boot_ms: int) -> None:
        """Notes the success of the renewal that was sent at this time of the boot clock."""


class NodeIdTaken(StoreFailure):
    """Another broker, with another data directory, is registered under the node id of this broker."""


class OtherTokenKey(BadKeys):
    """The brokers of the cluster make delegation tokens with another key."""


class ImportUnderWay(StoreFailure):
    """An import has reserved the cluster, and has not given it its metadata yet."""


class BrokerRegistration:
    """Registers the broker, and renews its lease until `stop`."""

    def __init__(
        self,
        store: MetadataStore,
        authority: Authority,
        lease_ms: int,
        metadata_versions: VersionRange = SUPPORTED,
        *,
        standing: Standing = ALONE,
        holder: LeaseHolder | None = None,
        boot_ms: Callable[[], int] = monotonic_ms,
        note_epoch: NoteEpoch | None = None,
        token_key: str = "",
    ) -> None:
        """`lease_ms`: the time by which the registration outlives the broker. `boot_ms` reads the boot clock.
        `note_epoch` notes a broker epoch, durably, before the broker registers in it. `token_key`: the fingerprint of
        the key of delegation tokens; empty: the broker has none."""
        self._metadata_versions = metadata_versions
        self._token_key = token_key
        self._note_epoch = note_epoch
        self._store = store
        self._authority = authority
        self._lease_ms = lease_ms
        self._standing = standing
        self._holder = holder
        self._boot_ms = boot_ms
        self._unclean = standing.unclean
        self._condition = Condition(starting=standing.clustered)
        self._said = self._condition
        """The content of the broker's row, as this process knows it."""
        self._registration: BrokerRow
        self._new_id: Callable[[], UUID]
        self._registered: RegisteredBroker
        self.lease = 0
        """The lease of the broker's row."""
        self.renewing: asyncio.Task[None] | None = None
        """Ends with Fenced when a later incarnation of the broker has registered, with StoreWentBack when the lease
        ended and the store is an older copy."""

    async def start(self, settings: BrokerSettings, endpoints: Sequence[Endpoint], new_id: Callable[[], UUID]) -> None:
        """Registers the broker. Raises StoreFailure, UnsupportedMetadata, OtherTokenKey."""
        self._new_id = new_id
        await self._name_cluster(new_id)
        # The version is read before any row: a row of a newer version would be misread.
        await self._metadata_version()
        standing = self._standing
        self._registration = BrokerRow(
            0,
            str(new_id()),
            tuple(endpoints),
            settings.broker_rack or None,
            self._metadata_versions,
            standing.storage_id,
            fenced=standing.clustered,
        )
        if standing.clustered:
            await self._wait_for_node_id()
        await self._register()
        self.renewing = asyncio.create_task(self._renew(), name="renew the broker's lease")

    async def _wait_for_node_id(self) -> None:
        """Waits until another broker with this node id is gone. A broker on the same storage is a former life."""
        broker_id = self._authority.broker_id
        deadline_ms = self._boot_ms() + 2 * self._lease_ms
        while (row := await self._row()) is not None and row.storage_id != self._standing.storage_id:
            if self._boot_ms() > deadline_ms:
                host, port = row.endpoints[0].host, row.endpoints[0].port
                raise NodeIdTaken(
                    f"node.id {broker_id} is taken: a broker with another data directory is registered at "
                    f"{host}:{port}; give each broker of the cluster a node.id of its own"
                )
            await asyncio.sleep(self._lease_ms / 10_000)

    async def _row(self) -> BrokerRow | None:
        key = broker_key(self._authority.broker_id)
        item = await self._store.get(key)
        return None if item is None else decode_broker(key, item.value)

    async def _register(self) -> None:
        """Registers in a new epoch, under a new lease."""
        broker_id = self._authority.broker_id
        sent_boot_ms = self._boot_ms()
        lease = await self._store.grant(self._lease_ms)
        key = new_key(self._new_id())
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            finalised = await self._metadata_version()
            epoch = await self._store.get(broker_epoch_key(broker_id))
            self._refuse_earlier(0 if epoch is None else int(epoch.value))
            condition = self._condition
            registration = self._registration._replace(unclean=self._unclean, key=key, **condition._asdict())
            same_key = await self._same_token_key()
            registered = plan_registration(broker_id, registration, epoch, lease, finalised, same_key)
            if self._note_epoch is not None:
                await self._note_epoch(registered.epoch, registers=True)
            if (await self._authority.commit(registered.plan, registers=True)).succeeded:
                break
        else:
            raise OutcomeUnknown(f"the metadata store does not say whether broker {broker_id} is registered")
        self._registered, self.lease = registered, lease
        self._said = condition
        self._authority.registered(registered.epoch)
        if self._holder is not None:
            self._holder.registered(registered.epoch, key, sent_boot_ms)

    async def _same_token_key(self) -> StoreTxn:
        """Compares and writes the fingerprint of the key of delegation tokens. Another key takes the place of the
        cluster's while no other broker is registered. Raises OtherTokenKey."""
        if not self._token_key:
            return NOTHING_ELSE
        stored = await self._store.get(TOKEN_KEY)
        if stored is not None and stored.value.decode() != self._token_key:
            own = broker_key(self._authority.broker_id)
            others = [item.key for item in (await self._store.list(BROKERS)).items if item.key != own]
            if others:
                raise OtherTokenKey(
                    f"the cluster makes delegation tokens with another key than that of {TOKEN_KEY_FILE}: its "
                    f"fingerprint is {stored.value.decode()}, and that of this broker's file {self._token_key}. Give "
                    "all brokers the same file; to change the key, stop all of them before one starts with the new one"
                )
            logger.warning("the key of delegation tokens is another one: tokens that were made before are useless")
        return plan_token_key(self._token_key, stored)

    def _refuse_earlier(self, stored: int) -> None:
        """Raises StoreWentBack if the store is behind the last registration of this process."""
        broker_id, known = self._authority.broker_id, self._authority.broker_epoch
        if stored < known:
            raise StoreWentBack(what=f"broker {broker_id} is in epoch {stored}, and was in epoch {known}")

    async def _name_cluster(self, new_id: Callable[[], UUID]) -> None:
        plan = plan_cluster_id(new_cluster_id(new_id()), self._metadata_versions.highest)
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            if (await self._authority.commit(plan)).succeeded or await self._store.get(CLUSTER_ID) is not None:
                return
            if await self._store.get(IMPORT) is not None:
                raise ImportUnderWay(
                    "the directory of a single broker is being imported into this cluster, and the import has not "
                    "ended: give the same `cordwood cluster import` again, or give it up with --give-up"
                )
        raise OutcomeUnknown("the metadata store does not say whether it took the cluster's id")

    async def _metadata_version(self) -> KeyValue:
        """The finalised version. Raises UnsupportedMetadata."""
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            finalised = await self._store.get(METADATA_VERSION)
            if finalised is not None:
                check_supported(finalised_version(finalised), self._metadata_versions)
                return finalised
            await self._authority.commit(plan_first_metadata_version())
        raise OutcomeUnknown("the metadata store does not say whether it took the version of the metadata")

    def fence_lifted(self) -> None:
        """Notes that the controller knows of the restart: later registrations of this process are clean."""
        self._unclean = False

    def row_shows(self, row: BrokerRow) -> None:
        """Takes the row of this registration in the image. A row that a late write changed back is corrected at the
        next renewal: no other process would ever correct it."""
        self._said = condition_of(row)

    async def say(self, *, draining: bool) -> None:
        """Notes in the broker's row that the broker has started, or that it stops. Raises StoreFailure."""
        await self._say(self._condition._replace(starting=False, draining=draining))

    async def say_disk_full(self, disk_full: bool) -> None:
        """Notes in the broker's row whether its disk has no space for records. Raises StoreFailure."""
        await self._say(self._condition._replace(disk_full=disk_full))

    async def say_damaged(self, damaged: tuple[str, ...]) -> None:
        """Notes in the broker's row the partitions with damage that is not repaired. Raises StoreFailure."""
        await self._say(self._condition._replace(damaged=damaged))

    async def say_withheld(self, withheld: tuple[str, ...]) -> None:
        """Notes in the broker's row the partitions whose leaders lack records that it has. Raises StoreFailure."""
        await self._say(self._condition._replace(withheld=withheld))

    async def say_log_ends(self, log_ends: tuple[LogEnd, ...]) -> None:
        """Notes in the broker's row the ends of logs that the controller asks for, by partition. Raises
        StoreFailure."""
        await self._say(self._condition._replace(log_ends=log_ends))

    async def _say(self, condition: Condition) -> None:
        self._condition = condition
        key = broker_key(self._authority.broker_id)
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            item = await self._store.get(key)
            if item is None:
                # The lease ended: the next registration writes the note, or, if that is under way, the renewal after
                # it.
                return
            row = decode_broker(key, item.value)
            if row.incarnation != self._registration.incarnation:
                return
            if condition_of(row) == self._condition:
                self._said = self._condition
                return
            await self._authority.attempt(plan_own_row(item, self._condition))
        raise OutcomeUnknown(f"the metadata store does not say whether it took the row of {key}")

    async def stop(self, *, cleanly: bool = False) -> None:
        """Lets the registration expire; in a cluster it ends at once. `cleanly`: the directory has every record, and
        nothing is written to its logs any more."""
        if self.renewing is not None:
            self.renewing.cancel()
            await asyncio.wait([self.renewing])
            if self._standing.clustered:
                ended = not cleanly or self._note_epoch is None
                with suppress(StoreFailure, TimeoutError):
                    async with asyncio.timeout(self._lease_ms / 1000):
                        if not ended:
                            ended = await self._end_epoch()
                        await self._store.revoke(self.lease)
                if not ended:
                    logger.warning(
                        "broker %d stops, and the end of its epoch %d may not have reached the metadata store: until "
                        "the broker has started again on this data directory, nobody can tell a copy of the directory "
                        "from before this stop from the directory itself. Do not put such a copy back: the records "
                        "that it lacks could be lost",
                        self._authority.broker_id,
                        self._registered.epoch,
                    )

    async def _end_epoch(self) -> bool:
        """Ends the broker's epoch, in its directory and then in the store; True if it did. An older copy of the
        directory knows only the epoch that is over: put back, it would otherwise count as in sync without the records
        written since. Raises StoreFailure."""
        broker_id, epoch = self._authority.broker_id, self._registered.epoch
        assert self._note_epoch is not None
        if not await self._note_epoch(epoch + 1, registers=False):
            return False
        return (await self._authority.attempt(plan_end_of_epoch(broker_id, epoch))).succeeded

    async def _renew(self) -> None:
        """Keeps the row alive, or brings it back, unless a later incarnation has registered."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            sent_boot_ms = self._boot_ms()
            try:
                await self._store.renew(self.lease)
                if self._holder is not None:
                    self._holder.lease_renewed(sent_boot_ms)
                if self._said != self._condition:
                    await self._say(self._condition)
            except LeaseEnded:
                try:
                    await self._come_back()
                except (Fenced, StoreWentBack):
                    if self._standing.clustered:
                        raise
                    return
                except StoreClosed:
                    return
                except StoreFailure:
                    continue
            except StoreClosed:
                return
            except StoreFailure:
                # The next renewal may succeed. Followers and writers of the store report its failure.
                continue

    async def _come_back(self) -> None:
        """Registers a broker again whose lease ended. Raises Fenced if a later incarnation has registered."""
        if self._standing.clustered:
            row = await self._row()
            if row is not None and row.incarnation != self._registration.incarnation:
                raise Fenced(f"broker {self._authority.broker_id} was registered again by another process")
            await self._register()
            return
        lease = await self._store.grant(self._lease_ms)
        if not (await self._authority.commit(plan_return(self._registered, lease))).succeeded:
            await self._authority.check()
        self.lease = lease


def new_cluster_id(unique: UUID) -> str:
    """A cluster id as Kafka writes it: 22 characters."""
    return urlsafe_b64encode(unique.bytes).decode().rstrip("=")


def new_key(unique: UUID) -> int:
    """The key of a registration: 63 random bits. The two halves of a random UUID are mixed, for each of them has bits
    that are not random."""
    return ((unique.int >> 65) ^ unique.int) & (2**63 - 1) or 1
