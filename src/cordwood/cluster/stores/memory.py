"""The metadata store of a broker without a disk: the whole contract, in memory.

A lease ends when its time is over on the store's clock: at the next call to the store, and if the loop that granted or
renewed the lease still runs, by a timer of that loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from cordwood.cluster.stores.feed import Commit, CommitFeed, follow
from cordwood.cluster.stores.interface import (
    FIRST_REVISION,
    Compacted,
    Compare,
    Delete,
    Event,
    KeyValue,
    Listing,
    Operation,
    Put,
    StoreClosed,
    TxnResult,
    WatchStep,
    check_transaction,
    holds,
)
from cordwood.cluster.stores.leases import Leases, monotonic_ms

_MAX_FEED_EVENTS = 2**31
"""The history is bounded by compaction, not by the feed."""


class MemoryStore:
    """A metadata store that keeps at least the last `retained_revisions` revisions, and at most twice as many."""

    def __init__(
        self,
        *,
        retained_revisions: int = 100,
        boot_ms: Callable[[], int] = monotonic_ms,
        leases: Leases | None = None,
    ) -> None:
        """`boot_ms` reads the boot clock."""
        assert retained_revisions > 0
        self._retained_revisions = retained_revisions
        self._boot_ms = boot_ms
        self._leases = leases or Leases()
        self._timer: asyncio.TimerHandle | None = None
        self._items: dict[str, KeyValue] = {}
        self._feed = CommitFeed(FIRST_REVISION, _MAX_FEED_EVENTS)
        self._before: deque[tuple[int, dict[str, KeyValue | None]]] = deque()
        """The former values of the changed keys, by revision."""
        self._compact_revision = 0
        self._closed = False

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        self._look()
        check_transaction(compares, operations)
        if not all(holds(compare, self._items.get(compare.key)) for compare in compares):
            return TxnResult(False, self._feed.revision)
        revision = self._feed.revision + 1
        changes: dict[str, Put | None] = {}
        for operation in operations:
            if isinstance(operation, Put):
                if operation.lease:
                    self._leases.check(operation.lease)
                changes[operation.key] = operation
            elif isinstance(operation, Delete):
                if operation.key in self._items:
                    changes[operation.key] = None
            else:
                changes.update((key, None) for key in self._items if key.startswith(operation.prefix))
        if not changes:
            return TxnResult(True, self._feed.revision)
        self._commit(revision, changes)
        return TxnResult(True, revision)

    def _commit(self, revision: int, changes: dict[str, Put | None]) -> None:
        events = []
        before: dict[str, KeyValue | None] = {}
        for key in sorted(changes):
            put = changes[key]
            old = before[key] = self._items.get(key)
            if put is None:
                del self._items[key]
                events.append(Event(key, None, 0, revision))
            else:
                created = revision if old is None else old.create_revision
                self._items[key] = KeyValue(key, put.value, created, revision, put.lease)
                events.append(Event(key, put.value, created, revision))
        self._before.append((revision, before))
        self._feed.publish([Commit(revision, tuple(events))])
        if len(self._before) > 2 * self._retained_revisions:
            self._forget(revision - self._retained_revisions)

    async def grant(self, ttl_ms: int) -> int:
        self._look()
        lease = self._leases.grant(ttl_ms, self._boot_ms())
        self._set_timer()
        return lease

    async def renew(self, lease: int) -> None:
        self._look()
        self._leases.renew(lease, self._boot_ms())
        self._set_timer()

    async def revoke(self, lease: int) -> None:
        self._look()
        self._end(lease)

    def _end(self, lease: int) -> None:
        self._leases.end(lease)
        self._drop(key for key, item in self._items.items() if item.lease == lease)

    def _drop(self, keys: Iterable[str]) -> None:
        """Removes keys in one revision."""
        changes: dict[str, Put | None] = dict.fromkeys(keys)
        if changes:
            self._commit(self._feed.revision + 1, changes)

    def _look(self) -> None:
        """Ends the leases whose time is over. Raises StoreClosed."""
        if self._closed:
            raise StoreClosed("the metadata store is closed")
        for lease in self._leases.due(self._boot_ms()):
            self._end(lease)

    def _set_timer(self) -> None:
        deadline_ms = self._leases.next_deadline_ms
        if self._timer is not None:
            self._timer.cancel()
        if deadline_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, deadline_ms - self._boot_ms()) / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        if not self._closed:
            self._look()
            self._set_timer()

    async def get(self, key: str) -> KeyValue | None:
        self._look()
        return self._items.get(key)

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        self._look()
        current = self._feed.revision
        revision = revision or current
        if revision > current:
            raise ValueError(f"revision {revision} is in the future: the store is at {current}")
        if revision < self._compact_revision:
            raise Compacted(self._compact_revision)
        items: dict[str, KeyValue | None] = {key: self._items[key] for key in self._items if key.startswith(prefix)}
        for changed_at, before in reversed(self._before):
            if changed_at <= revision:
                break
            items.update((key, item) for key, item in before.items() if key.startswith(prefix))
        return Listing(revision, [item for _, item in sorted(items.items()) if item is not None])

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        return follow(self._feed, prefix, from_revision, self._history)

    async def _history(self, revision: int) -> Sequence[Commit]:
        # The feed has all commits that are not compacted.
        raise Compacted(self._compact_revision)

    async def compact(self, revision: int) -> None:
        self._look()
        if revision > self._feed.revision:
            raise ValueError(f"revision {revision} is in the future: the store is at {self._feed.revision}")
        self._forget(revision)

    def _forget(self, revision: int) -> None:
        if revision <= self._compact_revision:
            return
        self._compact_revision = revision
        while self._before and self._before[0][0] <= revision:
            self._before.popleft()
        self._feed.forget(revision)

    def reopened(self) -> "MemoryStore":
        """A new store with the content of this one. All leases have ended; its history begins at that revision."""
        store = MemoryStore(retained_revisions=self._retained_revisions, boot_ms=self._boot_ms, leases=self._leases)
        store._items = dict(self._items)
        store._feed = CommitFeed(self._feed.revision, _MAX_FEED_EVENTS)
        self._leases.end_all()
        store._drop(key for key, item in self._items.items() if item.lease)
        store._forget(store._feed.revision)
        return store

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._feed.close(StoreClosed("the metadata store is closed"))
