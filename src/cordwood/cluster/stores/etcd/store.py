"""The metadata store on etcd.

One transaction is under way at a time: etcd gives no order to calls that run together. A call may use several members
until its deadline, except for a transaction that was sent: the caller has to read whether it happened.

Nothing is compacted by the store itself: etcd's --auto-compaction-retention decides how long history is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import grpc
import grpc.aio

from cordwood.cluster.stores.etcd.keys import KeyRange
from cordwood.cluster.stores.etcd.members import (
    COMPACT,
    GRANT,
    KEEP_ALIVE,
    RANGE,
    REVOKE,
    TXN,
    CallFailed,
    Member,
    Members,
    Method,
)
from cordwood.cluster.stores.etcd.options import EtcdOptions
from cordwood.cluster.stores.etcd.transactions import txn_request
from cordwood.cluster.stores.etcd.watching import ToldRevision, WatchStream
from cordwood.cluster.stores.interface import (
    FIRST_REVISION,
    Compacted,
    Compare,
    InvalidTransaction,
    KeyValue,
    LeaseEnded,
    Listing,
    Operation,
    OutcomeUnknown,
    StoreClosed,
    StoreFailure,
    StoreUnavailable,
    TxnResult,
    WatchStep,
    check_transaction,
)

_PAGE_KEYS = 2_000
"""Keys in one response: the decoding of more would hold the loop up."""
_LISTING_ATTEMPTS = 5
_COMPACTED = "compacted"
_FUTURE = "future revision"


class EtcdStore:
    """The metadata store on etcd, made by `connect` or `open`. Belongs to one event loop."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._prefix = options.prefix
        self._cut = len(options.prefix.encode())
        self._members = Members(options)
        self._loop = asyncio.get_running_loop()
        self._order = asyncio.Lock()
        self._told = ToldRevision()
        self._ttl_ms: dict[int, int] = {}
        self._closed = False
        self._under_way = 0
        self._idle = asyncio.Event()

    @classmethod
    async def connect(cls, endpoints: Sequence[str], cluster: str, *, allow_old: bool = False) -> "EtcdStore":
        """A store in the cluster's part of etcd. Raises StoreFailure."""
        return await cls.open(EtcdOptions(tuple(endpoints), cluster, allow_old=allow_old))

    @classmethod
    async def open(cls, options: EtcdOptions) -> "EtcdStore":
        """Opens the store. Raises StoreFailure if no member serves, or none that is new enough."""
        store = cls(options)
        try:
            await store._members.connected(store._deadline_s())
        except BaseException:
            await store._members.close()
            raise
        return store

    @property
    def member(self) -> str | None:
        """The address of the member that is used."""
        return self._members.endpoint

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_transaction(compares, operations)
        request = txn_request(self._prefix, compares, operations)
        deadline_s = self._deadline_s()
        with self._call():
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._order.acquire()
            except TimeoutError:
                raise StoreUnavailable("etcd did not answer earlier transactions in time") from None
            try:
                answer = await self._commit(request, deadline_s)
            finally:
                self._order.release()
        self._told.rises_to(answer.header.revision)
        return TxnResult(answer.succeeded, answer.header.revision)

    async def _commit(self, request: Any, deadline_s: float) -> Any:
        while True:
            member = await self._members.connected(deadline_s)
            try:
                answer = await self._members.attempt(member, _asking(TXN, request))
            except CallFailed as failure:
                if failure.member_is_to_blame:
                    self._members.leave(member, str(failure))
                if not failure.was_not_done:
                    raise OutcomeUnknown(f"etcd does not say whether a transaction happened: {failure}") from failure
                if not failure.member_is_to_blame:
                    raise _refused(failure) from failure
                continue
            self._members.saw(answer.header)
            return answer

    async def grant(self, ttl_ms: int) -> int:
        """Grants a lease. etcd counts whole seconds, and has a least time, 2 s with its default election timeout."""
        assert ttl_ms > 0
        answer = await self._ask(GRANT, GRANT.request(TTL=-(-ttl_ms // 1000)))
        if answer.error:
            raise StoreFailure(f"etcd grants no lease: {answer.error}")
        lease: int = answer.ID
        self._ttl_ms[lease] = ttl_ms
        return lease

    async def renew(self, lease: int) -> None:
        # A renewal that takes longer is of no use: the next one is due.
        within_ms = min(self._ttl_ms.get(lease, self._options.deadline_ms) // 3, self._options.deadline_ms)

        async def renewed(member: Member, within_s: float) -> Any:
            stream = member.stream(KEEP_ALIVE, within_s)
            try:
                await member.unless_left(stream.write(KEEP_ALIVE.request(ID=lease)))
                answer = await member.unless_left(stream.read())
            finally:
                stream.cancel()
            if answer is grpc.aio.EOF:
                raise CallFailed(grpc.StatusCode.UNAVAILABLE, "the member ended the stream")
            return answer

        with self._call():
            deadline_s = self._loop.time() + within_ms / 1000
            try:
                answer = await self._members.repeat(renewed, deadline_s, attempt_s=within_ms / 2000)
            except CallFailed as failure:
                if failure.code is not grpc.StatusCode.NOT_FOUND:
                    raise _refused(failure) from failure
                answer = None
        if answer is None or answer.TTL <= 0:
            self._ttl_ms.pop(lease, None)
            raise LeaseEnded(f"lease {lease} has ended")

    async def revoke(self, lease: int) -> None:
        with suppress(LeaseEnded):
            await self._ask(REVOKE, REVOKE.request(ID=lease))
        self._ttl_ms.pop(lease, None)

    async def get(self, key: str) -> KeyValue | None:
        answer = await self._ask(RANGE, RANGE.request(key=(self._prefix + key).encode()))
        self._members.saw(answer.header)
        return self._item(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        for _ in range(_LISTING_ATTEMPTS):
            try:
                return await self._list(KeyRange(self._prefix, prefix), revision)
            except Compacted:
                # A listing of the present is overtaken by a compaction only between two of its pages.
                if revision:
                    raise
        raise StoreUnavailable("etcd compacts faster than it can be listed")

    async def _list(self, keys: KeyRange, revision: int) -> Listing:
        """All keys of a range, page by page, as of the revision of the first page."""
        items: list[KeyValue] = []
        first = keys.key
        while True:
            request = RANGE.request(key=first, range_end=keys.end, limit=_PAGE_KEYS, revision=revision)
            answer = await self._ask(RANGE, request)
            self._members.saw(answer.header)
            revision = revision or answer.header.revision
            items += map(self._item, answer.kvs)
            if not answer.more:
                self._told.rises_to(revision)
                return Listing(revision, items)
            first = answer.kvs[-1].key + b"\0"

    def _item(self, item: Any) -> KeyValue:
        key = item.key[self._cut :].decode()
        return KeyValue(key, item.value, item.create_revision, item.mod_revision, item.lease)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        if self._closed:
            raise _closed()
        stream = WatchStream(self._members, self._told, self._prefix, prefix, max(from_revision, FIRST_REVISION))
        try:
            async with aclosing(stream.steps(self._deadline_s())) as steps:  # type: ignore[type-var]
                async for step in steps:
                    yield step
        except StoreUnavailable:
            if self._closed:
                raise _closed() from None
            raise

    async def compact(self, revision: int) -> None:
        with suppress(Compacted):
            await self._ask(COMPACT, COMPACT.request(revision=revision))

    async def close(self) -> None:
        self._closed = True
        if self._under_way:
            await self._idle.wait()
        await self._members.close()

    def _deadline_s(self) -> float:
        return self._loop.time() + self._options.deadline_ms / 1000

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Counts a call, which `close` waits for. Raises StoreClosed."""
        if self._closed:
            raise _closed()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self._closed and not self._under_way:
                self._idle.set()

    async def _ask(self, method: Method, request: Any) -> Any:
        """The answer to a call that may be done twice. Raises StoreFailure, Compacted, ValueError."""
        with self._call():
            try:
                return await self._members.repeat(_asking(method, request), self._deadline_s())
            except CallFailed as failure:
                if failure.code is grpc.StatusCode.OUT_OF_RANGE and _COMPACTED in failure.details:
                    raise Compacted(await self._compact_revision()) from failure
                raise _refused(failure) from failure

    async def _compact_revision(self) -> int:
        """The revision up to which etcd is compacted. Only a watch learns it."""
        stream = WatchStream(self._members, self._told, self._prefix, "", FIRST_REVISION)
        async with aclosing(stream.steps(self._deadline_s())) as steps:  # type: ignore[type-var]
            try:
                async for _ in steps:
                    break
            except Compacted as compacted:
                return compacted.compact_revision
        return 0


def _asking(method: Method, request: Any) -> Any:
    return lambda member, within_s: member.call(method, request, within_s)


def _closed() -> StoreClosed:
    return StoreClosed("the metadata store is closed")


def _refused(failure: CallFailed) -> Exception:
    """The error for a call that etcd understood and did not do."""
    codes = grpc.StatusCode
    if failure.code is codes.NOT_FOUND:
        return LeaseEnded(f"the lease has ended: {failure}")
    if failure.code is codes.INVALID_ARGUMENT:
        return InvalidTransaction(f"etcd refuses a call: {failure}")
    if failure.code is codes.OUT_OF_RANGE and _FUTURE in failure.details:
        return ValueError(f"the revision is in the future: {failure}")
    if failure.code is codes.RESOURCE_EXHAUSTED:
        return StoreUnavailable(f"etcd has no room for a call: {failure}")
    return StoreFailure(f"etcd refuses a call: {failure}")
