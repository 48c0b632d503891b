"""A client asks for wide answers and does not read them: they wait, within a bound, and others are served."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.conftest import Client, request
from tests.deadline import eventually_here

from cordwood.broker.network.connection import Connection
from cordwood.broker.network.connections import Connections
from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.codec import writer
from cordwood.wire.encoding.schema import load

TOPIC = 2
TOPICS = [f"orders-{number}" for number in range(200)]
ASKED = 25


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, Connections]]:
    settings = BrokerSettings.from_texts({"listeners": "127.0.0.1:0"})
    server = await Server.start(settings, memory=Memory())
    try:
        created: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        topics = [NewTopic(name) for name in TOPICS]
        server.driver.metadata(lambda writer: writer.create_topics(topics), created.set_result)
        await created
        assert server._connections is not None
        yield server, server._connections
    finally:
        await server.stop()


async def connect(
    server: Server, connections: Connections, receive_buffer: int | None = None
) -> tuple[Client, Connection]:
    raw = socket.socket()
    if receive_buffer is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.setblocking(False)
    before = set(connections._open)
    await asyncio.get_running_loop().sock_connect(raw, server.address)
    while not (new := set(connections._open) - before):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    connection = connections._open[new.pop()]
    assert isinstance(connection, Connection)
    return Client(raw), connection


def wide_question(correlation_id: int) -> bytes:
    """A few kilobytes whose answer has hundreds: all settings of many topics."""
    parts: list[bytes] = []
    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in TOPICS]
    fields = {"resources": resources, "include_synonyms": True}
    writer(load("DescribeConfigs")["request"], 1)(fields, parts.append)
    return request(correlation_id, b"".join(parts), ApiKey.DESCRIBE_CONFIGS, 1)


async def ping(client: Client, correlation_id: int) -> None:
    await client.send(request(correlation_id, api_key=ApiKey.API_VERSIONS))
    assert (await client.receive_response())[0] == correlation_id


async def until_it_waits(server: Server, connection: Connection) -> None:
    """Waits until the broker has stopped to serve a connection that does not read."""
    await eventually_here(lambda: connection._sender.blocked and not server.node.turns, what="a blocked connection")


@pytest.mark.stories
async def test_a_client_that_does_not_read_wide_answers_holds_little_memory_and_nobody_else() -> None:
    async with serving() as (server, connections):
        slow, connection = await connect(server, connections, receive_buffer=4096)
        other, _ = await connect(server, connections)
        sending = asyncio.create_task(slow.send(b"".join(wide_question(number) for number in range(ASKED))))
        for number in range(20):
            await ping(other, number)
        await until_it_waits(server, connection)
        await ping(other, 20)

        held = connection._sender.held_bytes
        answer = await slow.receive(4)
        size = 4 + struct.unpack(">i", answer)[0]
        assert size > 300_000
        assert held <= connections.limits.max_held_bytes + size

        received = len(answer)
        while received < ASKED * size:
            part = len(await slow.receive(min(1 << 20, ASKED * size - received)))
            assert part, f"the broker hung up after {received} of {ASKED * size} bytes"
            received += part
        await sending
        await ping(slow, 99)
        slow.close()
        other.close()


@pytest.mark.stories
async def test_a_client_that_leaves_without_reading_leaves_nothing_behind() -> None:
    async with serving() as (server, connections):
        slow, connection = await connect(server, connections, receive_buffer=4096)
        other, _ = await connect(server, connections)
        sending = asyncio.create_task(slow.send(b"".join(wide_question(number) for number in range(ASKED))))
        await until_it_waits(server, connection)
        sending.cancel()
        slow.close()
        while len(connections) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert connections.unanswered_bytes == 0
        assert not server.node.turns
        await ping(other, 1)
        other.close()
