"""A metadata store that counts its calls, on etcd."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.scale.undecoded_watch import UndecodedWatch
from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
from cordwood.cluster.stores.interface import (
    Compare,
    KeyValue,
    Listing,
    Operation,
    StoreUnavailable,
    TxnResult,
    WatchStep,
    operation_bytes,
)


@dataclass
class Counts:
    """What one or several stores did since the counts were reset."""

    transactions: int = 0
    failed_comparisons: int = 0
    operations: int = 0
    most_operations: int = 0
    most_compares: int = 0
    most_bytes: int = 0
    """Keys and values of the largest transaction, its comparisons included."""
    renewals: int = 0
    events: int = 0
    """Events that watches brought, except for those that are dropped undecoded."""

    def taken(self) -> dict[str, Any]:
        """The counts, which begin again at zero."""
        told = asdict(self)
        self.__init__()  # type: ignore[misc]
        return told


class CountingStore:
    """The store of one broker. Brokers of one process share `counts`."""

    def __init__(self, store: EtcdStore, prefix: str, counts: Counts) -> None:
        self._store = store
        self._prefix = prefix
        self._counts = counts

    @classmethod
    async def open(cls, endpoints: Sequence[str], cluster: str, counts: Counts) -> "CountingStore":
        options = EtcdOptions(tuple(endpoints), cluster)
        return cls(await EtcdStore.open(options), options.prefix, counts)

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        result = await self._store.txn(compares, operations)
        counts = self._counts
        counts.transactions += 1
        counts.failed_comparisons += not result.succeeded
        counts.operations += len(operations)
        counts.most_operations = max(counts.most_operations, len(operations))
        counts.most_compares = max(counts.most_compares, len(compares))
        compared = sum(
            len(each.key) + (len(each.operand) if isinstance(each.operand, bytes) else 8) for each in compares
        )
        counts.most_bytes = max(counts.most_bytes, compared + sum(map(operation_bytes, operations)))
        return result

    async def grant(self, ttl_ms: int) -> int:
        return await self._store.grant(ttl_ms)

    async def renew(self, lease: int) -> None:
        self._counts.renewals += 1
        await self._store.renew(lease)

    async def revoke(self, lease: int) -> None:
        await self._store.revoke(lease)

    async def get(self, key: str) -> KeyValue | None:
        return await self._store.get(key)

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        return await self._store.list(prefix, revision)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        async with aclosing(self._store.watch(prefix, from_revision)) as steps:  # type: ignore[type-var]
            async for step in steps:
                self._counts.events += len(step.events)
                yield step

    async def take_in(self, from_revision: int) -> None:
        """Watches all keys and drops what comes, undecoded. Raises StoreFailure when the connection breaks."""
        member = self._store.member
        if member is None:
            raise StoreUnavailable("no member of etcd is used")
        await UndecodedWatch.run(member, self._prefix, from_revision)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        await self._store.close()
