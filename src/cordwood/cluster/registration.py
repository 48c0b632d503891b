"""The registration of this broker: a new broker epoch at every start, and a row that lives as long as its lease.

The first registration in a new store names the cluster. A broker that does not support the version of the cluster's
metadata is refused before it writes anything that others see.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from uuid import UUID

from cordwood.cluster.authority import ATTEMPTS_ON_ONE_KEY, Authority, Fenced
from cordwood.cluster.metadata_version import SUPPORTED, VersionRange, check_supported
from cordwood.cluster.planner.registration import (
    RegisteredBroker,
    Registration,
    finalised_version,
    plan_cluster_id,
    plan_first_metadata_version,
    plan_registration,
    plan_return,
)
from cordwood.cluster.rows import CLUSTER_ID, METADATA_VERSION, Endpoint, broker_epoch_key
from cordwood.cluster.stores.interface import (
    KeyValue,
    LeaseEnded,
    MetadataStore,
    OutcomeUnknown,
    StoreClosed,
    StoreFailure,
)
from cordwood.model.broker_settings import BrokerSettings

LEASE_MS = 10_000


class BrokerRegistration:
    """Registers the broker, and renews its lease until `stop`."""

    def __init__(
        self, store: MetadataStore, authority: Authority, lease_ms: int, metadata_versions: VersionRange = SUPPORTED
    ) -> None:
        """`lease_ms`: how long the registration outlives the broker."""
        self._metadata_versions = metadata_versions
        self._store = store
        self._authority = authority
        self._lease_ms = lease_ms
        self.renewing: asyncio.Task[None] | None = None

    async def start(self, settings: BrokerSettings, endpoints: Sequence[Endpoint], new_id: Callable[[], UUID]) -> None:
        """Raises StoreFailure, UnsupportedMetadata."""
        await self._name_cluster(new_id)
        broker_id = self._authority.broker_id
        registration = Registration(
            broker_id, str(new_id()), tuple(endpoints), settings.broker_rack or None, self._metadata_versions
        )
        lease = await self._store.grant(self._lease_ms)
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            finalised = await self._metadata_version()
            epoch = await self._store.get(broker_epoch_key(broker_id))
            registered = plan_registration(registration, epoch, lease, finalised)
            if (await self._authority.commit(registered.plan)).succeeded:
                break
        else:
            raise OutcomeUnknown(f"the metadata store does not say whether broker {broker_id} is registered")
        self._authority.registered(registered.epoch)
        self.renewing = asyncio.create_task(self._renew(registered, lease), name="renew the broker's lease")

    async def _name_cluster(self, new_id: Callable[[], UUID]) -> None:
        plan = plan_cluster_id(_cluster_id(new_id()), self._metadata_versions.highest)
        for _ in range(ATTEMPTS_ON_ONE_KEY):
            if (await self._authority.commit(plan)).succeeded or await self._store.get(CLUSTER_ID) is not None:
                return
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

    async def stop(self) -> None:
        """Lets the registration expire."""
        if self.renewing is not None:
            self.renewing.cancel()
            await asyncio.wait([self.renewing])

    async def _renew(self, registered: RegisteredBroker, lease: int) -> None:
        """Keeps the row alive. A broker that was stopped for longer than its lease comes back in its epoch, unless a
        later incarnation has registered."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            try:
                try:
                    await self._store.renew(lease)
                except LeaseEnded:
                    lease = await self._store.grant(self._lease_ms)
                    if not (await self._authority.commit(plan_return(registered, lease))).succeeded:
                        await self._authority.check()
            except (StoreClosed, Fenced):
                return
            except StoreFailure:
                # The next renewal may succeed. Those who follow or write the store say that it fails.
                continue


def _cluster_id(unique: UUID) -> str:
    """A cluster id as Kafka writes it: 22 characters."""
    return urlsafe_b64encode(unique.bytes).decode().rstrip("=")
