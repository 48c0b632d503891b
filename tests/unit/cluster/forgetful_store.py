"""A store that forgets to answer: a transaction may have happened, may never happen, or may happen later."""

import random
from collections.abc import AsyncIterator, Sequence
from enum import Enum

from cordwood.cluster.stores.interface import (
    Compare,
    KeyValue,
    Listing,
    MetadataStore,
    Operation,
    OutcomeUnknown,
    TxnResult,
    WatchStep,
)


class Fate(Enum):
    HAPPENED = "happened"
    NEVER_HAPPENS = "never happens"
    HAPPENS_LATER = "happens later"


class ForgetfulStore:
    """A connection to a store that leaves the outcome of a share of all transactions unknown."""

    def __init__(self, store: MetadataStore, seed: int, share: float, fates: Sequence[Fate] = tuple(Fate)) -> None:
        self._store = store
        self._chance = random.Random(seed)
        self._share = share
        self._fates = fates
        self._later: list[tuple[int, Sequence[Compare], Sequence[Operation]]] = []
        self.unknown = 0

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        chance = self._chance
        forgotten = chance.random() < self._share
        fate = chance.choice(self._fates)
        await self._catch_up()
        if not forgotten:
            return await self._store.txn(compares, operations)
        self.unknown += 1
        if fate is Fate.HAPPENED:
            await self._store.txn(compares, operations)
        elif fate is Fate.HAPPENS_LATER:
            self._later.append((chance.randrange(1, 6), compares, operations))
        raise OutcomeUnknown("the connection to the metadata store broke")

    async def _catch_up(self) -> None:
        """Carries out the transactions whose time has come. They are counted in later transactions."""
        waiting, self._later = self._later, []
        for left, compares, operations in waiting:
            if left == 0:
                await self._store.txn(compares, operations)
            else:
                self._later.append((left - 1, compares, operations))

    async def grant(self, ttl_ms: int) -> int:
        return await self._store.grant(ttl_ms)

    async def renew(self, lease: int) -> None:
        await self._store.renew(lease)

    async def revoke(self, lease: int) -> None:
        await self._store.revoke(lease)

    async def get(self, key: str) -> KeyValue | None:
        return await self._store.get(key)

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        return await self._store.list(prefix, revision)

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        return self._store.watch(prefix, from_revision)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        await self._store.close()
