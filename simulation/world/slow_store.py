"""The metadata store as a distant broker sees it: every call lasts until the simulator ends it, or fails it.

The data is a `MemoryStore` that outlives the broker. Transactions take effect in the order of the calls, as the
contract says. A call that is under way when the broker dies may or may not happen. Calls over a link that is cut fail:
before the store sees them if requests are cut off, after that if only the answers are.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from enum import Enum
from typing import Any, TypeVar

from cordwood.cluster.stores.interface import (
    Compare,
    KeyValue,
    Listing,
    Operation,
    OutcomeUnknown,
    StoreFailure,
    StoreUnavailable,
    TxnResult,
    WatchStep,
)
from cordwood.cluster.stores.memory import MemoryStore
from simulation.world.links import STORE, Links

T = TypeVar("T")


class Fate(Enum):
    """The end of a call to the store."""

    ANSWERED = "answered"
    REFUSED = "the store cannot be reached"
    LOST = "it happened, but the answer is lost"


class Call:
    """One call that is under way."""

    __slots__ = ("compares", "gate", "operations", "result")

    def __init__(
        self, gate: "asyncio.Future[Fate]", compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> None:
        self.gate = gate
        self.compares = compares
        self.operations = operations
        self.result: TxnResult | StoreFailure | None = None
        """The result, if the store has taken the call before its answer comes."""


class SlowStore:
    """A broker's connection to the store; each life of a broker has its own."""

    def __init__(
        self, store: MemoryStore, broker_id: int = 1, links: Links | None = None, *, tells_late: bool = False
    ) -> None:
        """`tells_late`: events of a watch wait until the simulator calls `tell_news`."""
        self._store = store
        self._broker_id = broker_id
        self._links = links or Links()
        self._tells_late = tells_late
        self.calls: deque[Call] = deque()
        self.next_fate = Fate.ANSWERED
        """The fate of the next call that ends."""
        self.another = False
        """True if another store is at the address of the broker's first one: none of its answers count."""
        self._watching: asyncio.Future[bool] | None = None

    # Calls of the simulator

    @property
    def news(self) -> bool:
        """True if a watch has events that the broker has not been told."""
        return self._watching is not None and not self._watching.done()

    def tell_news(self) -> None:
        assert self._watching is not None
        self._watching.set_result(True)

    def break_watch(self) -> None:
        """Breaks a watch with events that the broker has not been told: its next watch has them."""
        if self._watching is not None and not self._watching.done():
            self._watching.set_result(False)

    def take_next_call(self) -> None:
        """Lets the store take the next call; the answer comes later."""
        if self.calls and self.calls[0].result is None and self._sends:
            call = self.calls[0]
            try:
                call.result = _run_at_once(self._store.txn(call.compares, call.operations))
            except StoreFailure as failure:
                call.result = failure

    def end_next_call(self) -> None:
        gate, fate = self.calls.popleft().gate, self.next_fate
        self.next_fate = Fate.ANSWERED
        if not gate.done():
            gate.set_result(fate)

    def abandon(self, reaches_store: bool) -> None:
        """Ends all calls of a dead broker: the next call may have reached the store."""
        if reaches_store:
            self.take_next_call()
        self.calls.clear()

    # MetadataStore

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        call = Call(asyncio.get_running_loop().create_future(), compares, operations)
        self.calls.append(call)
        fate = await call.gate
        if call.result is None:
            if fate is Fate.REFUSED or not self._sends:
                raise StoreFailure("the metadata store cannot be reached")
            call.result = await self._store.txn(compares, operations)
        if fate is not Fate.ANSWERED or not self._hears:
            raise OutcomeUnknown("the connection to the metadata store broke")
        if isinstance(call.result, StoreFailure):
            raise call.result
        return call.result

    async def grant(self, ttl_ms: int) -> int:
        self._send()
        lease = await self._store.grant(ttl_ms)
        self._hear()
        return lease

    async def renew(self, lease: int) -> None:
        self._send()
        await self._store.renew(lease)
        self._hear()

    async def revoke(self, lease: int) -> None:
        self._send()
        await self._store.revoke(lease)
        self._hear()

    async def get(self, key: str) -> KeyValue | None:
        self._send()
        item = await self._store.get(key)
        self._hear()
        return item

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        self._send()
        listing = await self._store.list(prefix, revision)
        self._hear()
        return listing

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        watch = self._store.watch(prefix, from_revision)
        return self._told_late(watch) if self._tells_late else watch

    async def _told_late(self, watch: AsyncIterator[WatchStep]) -> AsyncIterator[WatchStep]:
        self._send()
        async for step in watch:
            self._watching = asyncio.get_running_loop().create_future()
            if not await self._watching:
                raise StoreUnavailable("the watch broke")
            yield step

    @property
    def _sends(self) -> bool:
        return self._links.carries(self._broker_id, STORE) and not self.another

    @property
    def _hears(self) -> bool:
        return self._links.carries(STORE, self._broker_id) and not self.another

    def _send(self) -> None:
        if not self._sends:
            raise StoreUnavailable("the metadata store cannot be reached")

    def _hear(self) -> None:
        if not self._hears:
            raise StoreUnavailable("the metadata store does not answer")

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        """Does nothing: the store outlives this connection."""


def _run_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the store in memory waited for something")
