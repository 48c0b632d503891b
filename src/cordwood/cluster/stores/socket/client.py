"""A metadata store at the other end of a unix socket. The connection is the lease: its end ends all leases.

A call that finds no connection makes one; it fails with StoreUnavailable if that is impossible. When the connection
breaks, or an answer does not come in time, every transaction under way ends with OutcomeUnknown, every other call and
every watch with StoreUnavailable. A client that stays away for long finds its leases ended, as with any store.
"""

import asyncio
from collections.abc import AsyncIterator, MutableSequence, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cordwood.cluster.stores.interface import (
    Compare,
    KeyValue,
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
from cordwood.cluster.stores.socket.messages import (
    CANCEL,
    DONE,
    HELLO,
    NEXT,
    PART,
    PROTOCOL,
    BrokenFrame,
    compare_to_json,
    encode,
    error_from_json,
    event_from_json,
    key_value_from_json,
    operation_to_json,
    receive,
)
from cordwood.cluster.stores.socket.paths import connected_to

ANSWER_WITHIN_S = 5.0


class SocketStore:
    """The metadata store of a supervisor, made by `await SocketStore.connect(path, cluster_name)`."""

    def __init__(self, path: str, cluster_name: str, answer_within_s: float) -> None:
        self._path = path
        self._cluster_name = cluster_name
        self._answer_within_s = answer_within_s
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()
        """Calls are sent in the order in which they were made, also those that wait for a new connection."""
        self._refused: tuple[float, StoreFailure] | None = None
        """The time of the last failed attempt to connect, and its reason."""
        self._closed = False

    @classmethod
    async def connect(cls, path: str, cluster_name: str, *, answer_within_s: float = ANSWER_WITHIN_S) -> "SocketStore":
        """Connects. Raises StoreUnavailable if no server answers there, StoreFailure if it is another cluster's."""
        store = cls(path, cluster_name, answer_within_s)
        async with store._connected():
            return store

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_transaction(compares, operations)
        succeeded, revision = await self._call(
            "txn",
            [compare_to_json(compare) for compare in compares],
            [operation_to_json(operation) for operation in operations],
            lost=OutcomeUnknown,
        )
        return TxnResult(succeeded, revision)

    async def grant(self, ttl_ms: int) -> int:
        lease: int = await self._call("grant", ttl_ms)
        return lease

    async def renew(self, lease: int) -> None:
        await self._call("renew", lease)

    async def revoke(self, lease: int) -> None:
        await self._call("revoke", lease)

    async def get(self, key: str) -> KeyValue | None:
        item = await self._call("get", key)
        return None if item is None else key_value_from_json(item)

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        parts: list[Any] = []
        listed_revision, last = await self._call("list", prefix, revision, parts=parts)
        return Listing(listed_revision, [key_value_from_json(item) for item in [*parts, *last]])

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        async with self._connected() as connection:
            call = connection.send(StoreUnavailable, "watch", prefix, from_revision)
        try:
            while True:
                last = await call.answer
                # The stores that are served over a socket have no other users: every revision has events.
                events = [event_from_json(event) for event in [*call.parts, *last]]
                yield WatchStep(events[-1].mod_revision, events)
                call = connection.send_next(call)
        finally:
            connection.cancel(call)

    async def compact(self, revision: int) -> None:
        await self._call("compact", revision)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        async with self._turn:
            if self._connection is not None:
                await self._connection.finish()
                self._connection.end(StoreClosed("the metadata store is closed"))

    async def _call(
        self,
        method: str,
        *arguments: Any,
        lost: type[StoreFailure] = StoreUnavailable,
        parts: MutableSequence[Any] | None = None,
    ) -> Any:
        async with self._connected() as connection:
            call = connection.send(lost, method, *arguments)
        if parts is not None:
            call.parts = parts
        try:
            async with asyncio.timeout(self._answer_within_s):
                return await call.answer
        except TimeoutError:
            failure = f"the metadata store at {self._path} did not answer within {self._answer_within_s:g} s"
            connection.end(StoreUnavailable(failure))
            raise lost(failure) from None
        finally:
            connection.forget(call)

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[_Connection]":
        """The caller's turn to send, on the connection, which is made anew if it broke. Raises StoreFailure."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with self._turn:
            if self._closed:
                raise StoreClosed("the metadata store is closed")
            if self._connection is None or self._connection.ended:
                if self._refused is not None and self._refused[0] > began_s:
                    # The caller waited while another one was refused: a server that hangs is asked once for both.
                    raise StoreUnavailable(str(self._refused[1]))
                try:
                    self._connection = await _Connection.open(self._path, self._cluster_name, self._answer_within_s)
                except StoreFailure as failure:
                    self._refused = (loop.time(), failure)
                    raise
            yield self._connection


class _Call:
    """A request that waits for its answer."""

    def __init__(self, number: int, lost: type[StoreFailure], *, is_watch: bool) -> None:
        self.number = number
        self.lost = lost
        """The error of a call whose answer never comes."""
        self.is_watch = is_watch
        self.parts: MutableSequence[Any] = []
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, _Call] = {}
        self._next_number = 1
        self.ended: StoreFailure | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: str, cluster_name: str, within_s: float) -> "_Connection":
        """Opens the connection. Raises StoreUnavailable if no server answers, StoreFailure if it refuses the client."""
        try:
            async with asyncio.timeout(within_s):
                reader, writer = await asyncio.open_unix_connection(sock=connected_to(path))
                try:
                    writer.write(encode([HELLO, PROTOCOL, cluster_name]))
                    _, kind, *rest = await receive(reader)
                except BaseException:
                    writer.close()
                    raise
        except TimeoutError:
            raise StoreUnavailable(f"the metadata store at {path} did not answer within {within_s:g} s") from None
        except (OSError, EOFError) as error:
            raise StoreUnavailable(f"the metadata store at {path} cannot be reached: {error}") from error
        if kind != DONE:
            writer.close()
            raise error_from_json(*rest)
        connection = cls(reader, writer)
        connection._reading = asyncio.create_task(connection._read(), name="answers of the metadata store")
        return connection

    def send(self, lost: type[StoreFailure], method: str, *arguments: Any) -> _Call:
        """Sends a request. A connection that breaks while sending ends the request like one that breaks later."""
        call = _Call(self._next_number, lost, is_watch=method == "watch")
        self._next_number += 1
        self._calls[call.number] = call
        self._writer.write(encode([call.number, method, *arguments]))
        return call

    def send_next(self, watch: _Call) -> _Call:
        """Asks a watch for its next step."""
        call = _Call(watch.number, watch.lost, is_watch=True)
        if self.ended is not None:
            raise self.ended
        self._calls[call.number] = call
        self._writer.write(encode([call.number, NEXT]))
        return call

    def cancel(self, watch: _Call) -> None:
        """Ends a watch, if it has not ended."""
        self.forget(watch)
        if self.ended is None:
            self._writer.write(encode([watch.number, CANCEL]))

    def forget(self, call: _Call) -> None:
        self._calls.pop(call.number, None)
        if call.answer.done() and not call.answer.cancelled():
            call.answer.exception()

    async def finish(self) -> None:
        """Waits for the answers of all calls but the watches."""
        waiting = [call.answer for call in self._calls.values() if not call.is_watch]
        if waiting:
            await asyncio.wait(waiting)

    def end(self, reason: StoreFailure) -> None:
        """Closes the connection: all calls that still wait fail."""
        if self.ended is not None:
            return
        self.ended = reason
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
        for call in self._calls.values():
            if not call.answer.done():
                closed = isinstance(reason, StoreClosed)
                call.answer.set_exception(reason if closed else call.lost(str(reason)))

    async def _read(self) -> None:
        try:
            while True:
                number, kind, *rest = await receive(self._reader)
                call = self._calls.get(number)
                if call is None or call.answer.done():
                    continue
                if kind == PART:
                    call.parts += rest[0]
                elif kind == DONE:
                    call.answer.set_result(rest[0])
                else:
                    call.answer.set_exception(error_from_json(*rest))
        except (OSError, EOFError, BrokenFrame) as error:
            self.end(StoreUnavailable(f"the connection to the metadata store broke: {error}"))
