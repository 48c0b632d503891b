"""Serves a metadata store to the processes of one machine, over a unix socket.

A client's connection is its lease: the leases that a client was granted end with its connection, and before that when
the client does not renew them in time. A watch sends one step and waits until the client asks for the next: a client
that hangs holds no memory here, and falls behind the store's compaction at last.

The server does not own the store: the caller that started the server closes the store after it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from cordwood.cluster.stores.interface import (
    Compacted,
    LeaseEnded,
    MetadataStore,
    StoreFailure,
    StoreUnavailable,
    WatchStep,
)
from cordwood.cluster.stores.socket.messages import (
    CANCEL,
    DONE,
    ERROR,
    HELLO,
    NEXT,
    PART,
    PROTOCOL,
    BrokenFrame,
    compare_from_json,
    encode,
    error_to_json,
    item_to_json,
    operation_from_json,
    parts_of,
    receive,
)
from cordwood.cluster.stores.socket.paths import listening_at

logger = logging.getLogger("cordwood.cluster")

_MAX_REQUESTS = 256
"""Requests of one client that are under way; the server reads no further ones meanwhile."""
_MAX_WATCHES = 64
_BACKLOG = 128


class StoreServer:
    """A listening server, made by `start`. Belongs to the event loop of its store."""

    def __init__(self, store: MetadataStore, path: str, cluster_name: str) -> None:
        self.store = store
        self.cluster_name = cluster_name
        self._path = path
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @classmethod
    async def start(cls, store: MetadataStore, path: str, cluster_name: str) -> "StoreServer":
        """Listens at the path. Raises OSError."""
        server = cls(store, path, cluster_name)
        server._server = await asyncio.start_unix_server(server._accept, sock=listening_at(path), backlog=_BACKLOG)
        return server

    async def close(self) -> None:
        """Ends all connections, and the leases of their clients."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        for writer in self._clients.values():
            writer.transport.abort()
        if self._clients:
            await asyncio.wait(list(self._clients))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_Client(self, reader, writer).serve())
        self._clients[task] = writer
        task.add_done_callback(self._gone)

    def _gone(self, task: "asyncio.Task[None]") -> None:
        del self._clients[task]
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("a client of the metadata store failed: %s", failure, exc_info=failure)


class _Client:
    """One connection: its leases, its watches, and its requests under way."""

    def __init__(self, server: StoreServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._store = server.store
        self._cluster_name = server.cluster_name
        self._reader = reader
        self._writer = writer
        self._leases: set[int] = set()
        self._watches: dict[int, _Watch] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_MAX_REQUESTS)

    async def serve(self) -> None:
        try:
            if await self._greet():
                while True:
                    await self._take(await receive(self._reader))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except BrokenFrame as error:
            logger.warning("%s: its connection is closed", error)
        finally:
            self._writer.close()
            await self._end()

    async def _greet(self) -> bool:
        message = await receive(self._reader)
        if message[:2] != [HELLO, PROTOCOL]:
            refusal = f"the metadata store speaks version {PROTOCOL} of its protocol, not {message[1]!r:.20}"
        elif message[2:] != [self._cluster_name]:
            refusal = f"the metadata store is that of the cluster {self._cluster_name!r}, not of {message[2:]!r:.80}"
        else:
            self._send([0, DONE, PROTOCOL])
            return True
        self._send([0, ERROR, *error_to_json(StoreFailure(refusal))])
        await self._writer.drain()
        return False

    async def _take(self, message: list[Any]) -> None:
        """Carries out a message. Requests begin in the order in which they came."""
        number, method, *arguments = message
        watch = self._watches.get(number)
        if method == NEXT:
            if watch is not None:
                watch.wanted.set()
        elif method == CANCEL:
            if watch is not None:
                watch.task.cancel()
        elif method == "watch":
            if len(self._watches) >= _MAX_WATCHES:
                error = StoreUnavailable(f"more than {_MAX_WATCHES} watches of one client")
                self._send([number, ERROR, *error_to_json(error)])
                return
            self._watches[number] = _Watch(self, number, self._store.watch(*arguments))
        else:
            handler = _METHODS.get(method)
            if handler is None:
                raise BrokenFrame(f"{method!r:.40} is no method of a metadata store")
            await self._places.acquire()
            task = asyncio.ensure_future(self._answer(number, handler, arguments))
            self._requests.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._requests.discard(task)
        self._places.release()
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, OSError):
            logger.error("a request to the metadata store failed: %s", failure, exc_info=failure)
            self._writer.close()

    async def _answer(
        self, number: int, handler: "Callable[[_Client, int, Sequence[Any]], Awaitable[Any]]", arguments: Sequence[Any]
    ) -> None:
        try:
            result = await handler(self, number, arguments)
        except (StoreFailure, Compacted, ValueError) as error:
            self._send([number, ERROR, *error_to_json(error)])
        else:
            self._send([number, DONE, result])
        await self._writer.drain()

    def _send(self, message: Sequence[Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def send_items(self, number: int, items: Sequence[Any]) -> Sequence[Any]:
        """Sends all parts of the items but the last one, which it returns."""
        parts = list(parts_of(items)) if len(items) > 1 else [[item_to_json(item) for item in items]]
        for part in parts[:-1]:
            self._send([number, PART, part])
            await self._writer.drain()
        return parts[-1]

    async def send_step(self, number: int, step: WatchStep) -> None:
        self._send([number, DONE, await self.send_items(number, step.events)])
        await self._writer.drain()

    def end_watch(self, number: int, error: Exception | None) -> None:
        self._watches.pop(number, None)
        if error is not None:
            self._send([number, ERROR, *error_to_json(error)])

    async def _end(self) -> None:
        """Ends watches and leases. A request that is under way may still be granted a lease."""
        for watch in self._watches.values():
            watch.task.cancel()
        under_way: list[asyncio.Task[None]] = [*self._requests, *(watch.task for watch in self._watches.values())]
        if under_way:
            await asyncio.wait(under_way)
        for lease in sorted(self._leases):
            try:
                await self._store.revoke(lease)
            except StoreFailure as failure:
                logger.warning("lease %d of a client that is gone ends with its time: %s", lease, failure)

    # The methods, by the names of the contract

    async def txn(self, number: int, arguments: Sequence[Any]) -> Sequence[Any]:
        compares, operations = arguments
        return await self._store.txn(
            [compare_from_json(each) for each in compares], [operation_from_json(each) for each in operations]
        )

    async def grant(self, number: int, arguments: Sequence[Any]) -> int:
        (ttl_ms,) = arguments
        lease = await self._store.grant(ttl_ms)
        self._leases.add(lease)
        return lease

    async def renew(self, number: int, arguments: Sequence[Any]) -> None:
        (lease,) = arguments
        if lease not in self._leases:
            # The lease of an earlier connection of the client ends with that connection, perhaps at this moment.
            raise LeaseEnded(f"lease {lease} has ended with the connection that it was granted to")
        await self._store.renew(lease)

    async def revoke(self, number: int, arguments: Sequence[Any]) -> None:
        (lease,) = arguments
        await self._store.revoke(lease)
        self._leases.discard(lease)

    async def get(self, number: int, arguments: Sequence[Any]) -> Sequence[Any] | None:
        (key,) = arguments
        item = await self._store.get(key)
        return None if item is None else item_to_json(item)

    async def list(self, number: int, arguments: Sequence[Any]) -> Sequence[Any]:
        prefix, revision = arguments
        listing = await self._store.list(prefix, revision)
        return [listing.revision, await self.send_items(number, listing.items)]

    async def compact(self, number: int, arguments: Sequence[Any]) -> None:
        (revision,) = arguments
        await self._store.compact(revision)


_METHODS: dict[str, Callable[[_Client, int, Sequence[Any]], Awaitable[Any]]] = {
    "txn": _Client.txn,
    "grant": _Client.grant,
    "renew": _Client.renew,
    "revoke": _Client.revoke,
    "get": _Client.get,
    "list": _Client.list,
    "compact": _Client.compact,
}


class _Watch:
    """A watch of a client: takes the next step only when the client has asked for it."""

    def __init__(self, client: _Client, number: int, steps: AsyncIterator[WatchStep]) -> None:
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.task = asyncio.ensure_future(self._run(client, number, steps))

    async def _run(self, client: _Client, number: int, steps: AsyncIterator[WatchStep]) -> None:
        error: Exception | None = None
        try:
            while True:
                await self.wanted.wait()
                self.wanted.clear()
                await client.send_step(number, await anext(steps))
        except (asyncio.CancelledError, OSError):
            pass
        except (StoreFailure, Compacted) as failure:
            error = failure
        client.end_watch(number, error)
