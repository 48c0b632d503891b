"""The metadata store of an embedded cluster: served over a unix socket from a thread of its own."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from cordwood.broker.machine.clocks import boot_ms
from cordwood.cluster.stores.leases import Leases
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.socket.server import StoreServer

if TYPE_CHECKING:
    from cordwood.cluster.stores.interface import MetadataStore

_STOP_TIMEOUT_S = 30.0


class StoreThread:
    """The store's thread, which can be started again after a stop, with the same content."""

    def __init__(self, socket_path: str, cluster_name: str, database: str | None) -> None:
        """`database` is the path of an SQLite file; None: the content is in memory."""
        self._socket_path = socket_path
        self._cluster_name = cluster_name
        self._database = database
        self._memory = MemoryStore(boot_ms=boot_ms, leases=Leases(forgives_pauses=True)) if database is None else None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._told_to_stop: asyncio.Event

    def start(self) -> None:
        """Starts the store, and returns when brokers can connect. Raises EnvironmentFailure or OSError."""
        if self._thread is not None:
            raise RuntimeError("the cluster is already running")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, args=(started,), name="cordwood-metadata", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread = None
            raise

    def stop(self) -> None:
        """Stops the store. Safe to call twice."""
        if self._thread is None:
            return
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._told_to_stop.set)
        self._thread.join(_STOP_TIMEOUT_S)
        self._thread = None

    def _work(self, started: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as failure:
            if started.done():
                raise
            started.set_exception(failure)

    async def _serve(self, started: "Future[None]") -> None:
        self._loop, self._told_to_stop = asyncio.get_running_loop(), asyncio.Event()
        store = await self._open()
        try:
            server = await StoreServer.start(store, self._socket_path, self._cluster_name)
            started.set_result(None)
            await self._told_to_stop.wait()
            await server.close()
        finally:
            await store.close()

    async def _open(self) -> "MetadataStore":
        if self._memory is not None:
            self._memory = self._memory.reopened()
            return self._memory
        from cordwood.cluster.stores.sqlite import SqliteStore

        assert self._database is not None
        return await SqliteStore.open(self._database, boot_ms=boot_ms)
