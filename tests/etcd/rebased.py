"""A store that shows an etcd which other tests used before as if it were new: revisions count from the opening on.

Every sentence of the stores' contract can then be tested on one etcd, which starts once.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from tests.etcd.members import EtcdCluster

from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
from cordwood.cluster.stores.interface import (
    FIRST_REVISION,
    Compacted,
    Compare,
    KeyValue,
    Listing,
    MetadataStore,
    Operation,
    StoreClosed,
    Target,
    TxnResult,
    WatchStep,
)


class Rebased:
    """A metadata store whose revisions are those of `store`, less the revisions before the opening."""

    def __init__(self, store: MetadataStore, revision: int) -> None:
        """`revision`: that of `store` now, which becomes FIRST_REVISION."""
        self.store = store
        self._before = revision - FIRST_REVISION
        self._leases: list[int] = []

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        succeeded, revision = await self.store.txn([self._shifted(compare) for compare in compares], operations)
        return TxnResult(succeeded, revision - self._before)

    def _shifted(self, compare: Compare) -> Compare:
        # 0 is no revision: it stands for an absent key. The revisions before FIRST_REVISION do not exist either.
        if compare.target is Target.VALUE or not isinstance(compare.operand, int) or compare.operand == 0:
            return compare
        return compare._replace(operand=compare.operand + self._before)

    async def grant(self, ttl_ms: int) -> int:
        lease = await self.store.grant(ttl_ms)
        self._leases.append(lease)
        return lease

    async def renew(self, lease: int) -> None:
        await self.store.renew(lease)

    async def revoke(self, lease: int) -> None:
        await self.store.revoke(lease)

    async def get(self, key: str) -> KeyValue | None:
        item = await self.store.get(key)
        return None if item is None else self._item(item)

    def _item(self, item: KeyValue) -> KeyValue:
        return item._replace(
            create_revision=item.create_revision - self._before, mod_revision=item.mod_revision - self._before
        )

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        try:
            listing = await self.store.list(prefix, revision and revision + self._before)
        except Compacted as compacted:
            raise self._compacted(compacted) from compacted
        return Listing(listing.revision - self._before, [self._item(item) for item in listing.items])

    def _compacted(self, compacted: Compacted) -> Compacted:
        return Compacted(compacted.compact_revision - self._before)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        try:
            async for step in self.store.watch(prefix, max(from_revision, FIRST_REVISION + 1) + self._before):
                events = [
                    event._replace(
                        create_revision=event.create_revision and event.create_revision - self._before,
                        mod_revision=event.mod_revision - self._before,
                    )
                    for event in step.events
                ]
                yield WatchStep(step.revision - self._before, events)
        except Compacted as compacted:
            raise self._compacted(compacted) from compacted

    async def compact(self, revision: int) -> None:
        await self.store.compact(revision + self._before)

    async def close(self) -> None:
        # A lease that ends later would take a revision from another test.
        with suppress(StoreClosed):
            for lease in self._leases:
                await self.store.revoke(lease)
        await self.store.close()


async def open_rebased(etcd: EtcdCluster) -> Rebased:
    """A cluster of its own in an etcd that other tests use, too."""
    store = await EtcdStore.open(EtcdOptions(etcd.endpoints, uuid.uuid4().hex, deadline_ms=30_000, attempt_ms=30_000))
    return Rebased(store, (await store.list("")).revision)
