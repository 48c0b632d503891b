"""A connection whose client is over a quota: answered, not read, noticed when it ends, and nobody else waits."""

from __future__ import annotations

from typing import Any

from tests.broker.conftest import PLAIN_AND_TLS
from tests.deadline import eventually_here

pytestmark = PLAIN_AND_TLS

FOREVER_MS = 3_600_000


async def test_the_answer_leaves_at_once_and_the_next_request_waits(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:

        def over_its_quota(header: Any, body: bytes, reply: Any) -> None:
            reply.pause(300)
            reply.send(response_frame(header.correlation_id))

        broker.node.answer = over_its_quota
        client = await broker.connect()
        await client.send(request_frame(1) + request_frame(2))
        loop = client.loop
        assert (await client.receive_response())[0] == 1
        assert len(broker.node.requests) == 1
        answered_s = loop.time()
        broker.node.answer = lambda header, body, reply: reply.send(response_frame(header.correlation_id))
        assert (await client.receive_response())[0] == 2
        assert loop.time() - answered_s > 0.2
        await client.send(request_frame(3))
        assert (await client.receive_response())[0] == 3


async def test_others_are_served_meanwhile(serving: Any, request_frame: Any, response_frame: Any) -> None:
    async with serving() as broker:
        over, other = await broker.connect(), await broker.connect()
        broker.node.answer = None
        await over.send(request_frame(1))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        broker.node.reply(0).pause(FOREVER_MS)
        broker.node.answer = lambda header, body, reply: reply.send(response_frame(header.correlation_id))
        await over.send(request_frame(2))
        for number in range(5):
            await other.send(request_frame(number))
            assert (await other.receive_response())[0] == number
        broker.node.reply(0).send(response_frame(1))
        assert (await over.receive_response())[0] == 1
        assert len(broker.node.requests) == 6


async def test_it_holds_no_more_than_a_buffer(serving: Any, request_frame: Any, response_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(0))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        broker.node.reply(0).pause(FOREVER_MS)
        sending = client.loop.create_task(client.send(request_frame(1, bytes(64 << 20))))
        (connection,) = broker.connections._open.values()
        await eventually_here(lambda: not connection.receiving)
        assert connection.arrived_bytes <= broker.connections.receive_buffers.buffer_bytes
        assert broker.connections.arriving.held_bytes == 0
        sending.cancel()


async def test_its_end_is_noticed_though_nothing_is_read(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(0))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        broker.node.reply(0).pause(FOREVER_MS)
        await client.send(request_frame(1, bytes(1000)))
        (connection,) = broker.connections._open.values()
        await eventually_here(lambda: not connection.receiving)
        client.close()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        assert not broker.connections.paused


async def test_a_longer_pause_takes_the_place_of_a_shorter_one(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(0))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        reply = broker.node.reply(0)
        reply.pause(FOREVER_MS)
        reply.pause(10)
        (connection,) = broker.connections._open.values()
        assert connection.holds == 1
        assert connection.paused
        connection._end_pause()
        reply.pause(10)
        reply.pause(150)
        broker.node.answer = lambda header, body, reply: reply.send(response_frame(header.correlation_id))
        reply.send(response_frame(0))
        await client.send(request_frame(1))
        assert [(await client.receive_response())[0] for _ in range(2)] == [0, 1]
        assert connection.holds == 0
