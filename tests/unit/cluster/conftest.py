"""Coroutine tests run on a loop of their own; every test of the stores' contract runs over every store."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.coroutines import pytest_pyfunc_call
from tests.etcd.members import EtcdCluster
from tests.etcd.rebased import open_rebased
from tests.unit.cluster.kinds import KINDS

from cordwood.cluster.stores.interface import MetadataStore
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.socket.client import SocketStore
from cordwood.cluster.stores.socket.server import StoreServer
from cordwood.cluster.stores.sqlite import SqliteStore

__all__ = ["pytest_pyfunc_call"]

OpenStore = Callable[..., AbstractAsyncContextManager[MetadataStore]]


@asynccontextmanager
async def served(store: MetadataStore, path: Path) -> AsyncIterator[MetadataStore]:
    """A client of the store over a socket."""
    server = await StoreServer.start(store, str(path), "woods")
    try:
        client = await SocketStore.connect(str(path), "woods")
        yield client
        await client.close()
    finally:
        await server.close()


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """`async with open_store() as store`: an empty store, closed at the end."""
    etcd: EtcdCluster | None = request.getfixturevalue("one_etcd") if request.param == "etcd" else None

    @asynccontextmanager
    async def open_one(**options: Any) -> AsyncIterator[MetadataStore]:
        store: MetadataStore
        if etcd is not None:
            store = await open_rebased(etcd)
        elif request.param == "memory":
            store = MemoryStore(**options)
        else:
            store = await SqliteStore.open(str(tmp_path / "metadata.sqlite"), **options)
        try:
            if request.param == "socket":
                async with served(store, tmp_path / "metadata.sock") as client:
                    yield client
            else:
                yield store
        finally:
            await store.close()

    return open_one
