"""A store over a unix socket: several clients, connections that break, and peers that do not keep to the protocol."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cordwood.cluster.stores.interface import (
    Compare,
    Event,
    LeaseEnded,
    Operation,
    OutcomeUnknown,
    Put,
    StoreFailure,
    StoreUnavailable,
    TxnResult,
)
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.cluster.stores.socket.client import SocketStore
from cordwood.cluster.stores.socket.messages import MAX_FRAME_BYTES
from cordwood.cluster.stores.socket.server import StoreServer

NAME = "woods"


class StuckStore(MemoryStore):
    """A store whose next transaction happens, and whose answer waits for `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = asyncio.Event()
        self.go_on = asyncio.Event()

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        result = await super().txn(compares, operations)
        self.stuck.set()
        await self.go_on.wait()
        return result


@asynccontextmanager
async def serving(store: MemoryStore, path: Path) -> AsyncIterator[StoreServer]:
    server = await StoreServer.start(store, str(path), NAME)
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sock"


async def connect(path: Path) -> SocketStore:
    return await SocketStore.connect(str(path), NAME)


async def test_a_client_sees_what_another_one_writes(path: Path) -> None:
    async with serving(MemoryStore(), path):
        one, two = await connect(path), await connect(path)
        watch = two.watch("", 2)
        waiting = asyncio.ensure_future(anext(watch))
        await one.txn((), [Put("a", bytes(range(256)))])
        assert (await waiting).events == [Event("a", bytes(range(256)), 2, 2)]
        item = await two.get("a")
        assert item is not None
        assert item.value == bytes(range(256))


async def test_the_leases_of_a_client_end_with_its_connection(path: Path) -> None:
    async with serving(MemoryStore(), path):
        one, two = await connect(path), await connect(path)
        lease, kept = await one.grant(600_000), await two.grant(600_000)
        # A controller rewrites the row of another broker, under that broker's lease.
        await two.txn((), [Put("a", b"1", lease), Put("b", b"1", kept)])
        watch = two.watch("", 3)
        waiting = asyncio.ensure_future(anext(watch))
        await one.close()
        assert (await waiting).events == [Event("a", None, 0, 3)]
        await two.renew(kept)


async def test_a_lease_cannot_be_renewed_over_another_connection_than_its_own(path: Path) -> None:
    async with serving(MemoryStore(), path):
        one, two = await connect(path), await connect(path)
        lease = await one.grant(600_000)
        with pytest.raises(LeaseEnded):
            await two.renew(lease)
        await one.renew(lease)
        await two.revoke(lease)
        with pytest.raises(LeaseEnded):
            await one.renew(lease)


async def test_a_connection_that_breaks_leaves_the_outcome_of_a_transaction_unknown(path: Path) -> None:
    store = StuckStore()
    async with serving(store, path):
        client = await connect(path)
        watch = client.watch("", 3)
        watching = asyncio.ensure_future(anext(watch))
        writing = asyncio.ensure_future(client.txn((), [Put("a", b"1")]))
        await store.stuck.wait()
        store.go_on.set()
        client._connection._writer.transport.abort()  # type: ignore[union-attr]
        with pytest.raises(OutcomeUnknown):
            await writing
        with pytest.raises(StoreUnavailable):
            await watching
        item = await client.get("a")
        assert item is not None
        assert item.value == b"1"


async def test_a_client_takes_up_its_work_when_the_server_is_there_again(path: Path) -> None:
    store = MemoryStore()
    async with serving(store, path):
        client = await connect(path)
        lease = await client.grant(600_000)
        await client.txn((), [Put("a", b"1", lease)])
    with pytest.raises(StoreUnavailable):
        await client.txn((), [Put("a", b"2")])
    with pytest.raises(StoreUnavailable):
        await anext(client.watch("", 2))
    async with serving(store, path):
        assert await client.get("a") is None
        with pytest.raises(LeaseEnded):
            await client.renew(lease)
        assert [event.value for event in (await anext(client.watch("", 2))).events] == [b"1", None]
        await client.close()


async def test_a_server_that_hangs_is_given_up_once_for_all_who_wait(path: Path) -> None:
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda reader, writer: connections.append(writer), path)
    client = SocketStore(str(path), NAME, 0.05)
    failures = await asyncio.gather(*(client.get("a") for _ in range(20)), return_exceptions=True)
    assert all(isinstance(failure, StoreUnavailable) for failure in failures), failures
    while not connections:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert len(connections) == 1
    connections[0].close()
    server.close()


async def test_an_answer_that_does_not_come_in_time_ends_the_connection(path: Path) -> None:
    store = StuckStore()
    async with serving(store, path):
        client = await connect(path)
        patience_s, client._answer_within_s = client._answer_within_s, 0.05
        with pytest.raises(OutcomeUnknown, match="did not answer within"):
            await client.txn((), [Put("a", b"1")])
        await store.stuck.wait()
        client._answer_within_s = patience_s
        store.go_on.set()
        item = await client.get("a")
        assert item is not None
        assert item.value == b"1"


async def test_a_client_of_another_cluster_is_refused_with_words(path: Path) -> None:
    async with serving(MemoryStore(), path):
        with pytest.raises(StoreFailure, match=r"cluster 'woods', not of \['plains'\]"):
            await SocketStore.connect(str(path), "plains")


async def test_no_server_is_a_store_that_cannot_be_reached(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await connect(path)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        struct.pack(">I", 3) + b"[1,",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 14) + b'["hello",9,""]',
    ],
)
async def test_a_peer_that_speaks_otherwise_loses_its_connection_and_no_other_does(path: Path, frame: bytes) -> None:
    async with serving(MemoryStore(), path):
        client = await connect(path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(frame)
        while await reader.read(1000):
            pass
        writer.close()
        assert (await client.txn((), [Put("a", b"1")])).succeeded


async def test_an_unknown_method_ends_the_connection(path: Path) -> None:
    async with serving(MemoryStore(), path):
        client = await connect(path)
        with pytest.raises(StoreUnavailable):
            await client._call("drop_everything")
        assert await client.get("a") is None


async def test_a_listing_of_any_size_comes_in_parts(path: Path) -> None:
    async with serving(MemoryStore(), path):
        client = await connect(path)
        value = b"x" * 1_000_000
        for number in range(5):
            await client.txn((), [Put(f"k{number}", value)])
        assert [item.value for item in (await client.list("")).items] == [value] * 5
        assert [event.value for event in (await anext(client.watch("", 2))).events] == [value] * 5


async def test_the_socket_may_lie_deeper_than_the_kernel_takes_names_and_is_its_users_alone(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    path = deep / "metadata.sock"
    for _ in range(2):
        server = await StoreServer.start(MemoryStore(), str(path), NAME)
        assert os.stat(path).st_mode & 0o777 == 0o600
        client = await connect(path)
        assert await client.get("a") is None
        await client.close()
        await server.close()
        assert not path.exists()
