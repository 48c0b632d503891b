"""The metadata store as a distant broker sees it: every call lasts until the simulator ends it, or fails it.

The data is a `MemoryStore` that outlives the broker. Transactions take effect in the order of the calls, as the
contract says. A call that is under way when the broker dies may or may not happen.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Any

from cordwood.cluster.stores.interface import (
    Compare,
    Event,
    KeyValue,
    Listing,
    Operation,
    OutcomeUnknown,
    StoreFailure,
    TxnResult,
)
from cordwood.cluster.stores.memory import MemoryStore


class Fate(Enum):
    """How a call to the store ends."""

    ANSWERED = "answered"
    REFUSED = "the store cannot be reached"
    LOST = "it happened, but the answer is lost"


class Call:
    """One call that is under way."""

    __slots__ = ("compares", "gate", "operations")

    def __init__(
        self, gate: "asyncio.Future[Fate]", compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> None:
        self.gate = gate
        self.compares = compares
        self.operations = operations


class SlowStore:
    """A broker's connection to the store; each life of a broker has its own."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.calls: deque[Call] = deque()

    # What the simulator calls

    def end_next_call(self, fate: Fate = Fate.ANSWERED) -> None:
        gate = self.calls.popleft().gate
        if not gate.done():
            gate.set_result(fate)

    def abandon(self, reaches_store: bool) -> None:
        """Ends all calls of a dead broker: the next call may have reached the store."""
        if reaches_store and self.calls:
            call = self.calls.popleft()
            _run_at_once(self._store.txn(call.compares, call.operations))
        self.calls.clear()

    # MetadataStore

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        call = Call(asyncio.get_running_loop().create_future(), compares, operations)
        self.calls.append(call)
        fate = await call.gate
        if fate is Fate.REFUSED:
            raise StoreFailure("the metadata store cannot be reached")
        result = await self._store.txn(compares, operations)
        if fate is Fate.LOST:
            raise OutcomeUnknown("the connection to the metadata store broke")
        return result

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

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Sequence[Event]]:
        return self._store.watch(prefix, from_revision)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        """Does nothing: the store outlives this connection."""


def _run_at_once(coroutine: Any) -> None:
    """Runs a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the store in memory waited for something")
