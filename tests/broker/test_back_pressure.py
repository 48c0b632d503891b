"""What a peer that sends too much, or takes too little, can make the broker hold."""

import asyncio
import logging
import struct
from typing import Any

import pytest
from tests.broker.conftest import PLAIN_AND_TLS
from tests.deadline import eventually_here

from cordwood.wire.framing import BUFFER_BYTES

pytestmark = PLAIN_AND_TLS

MANY = 400


async def test_a_peer_that_does_not_read_is_not_read_from(serving: Any, request_frame: Any) -> None:
    answer = struct.pack(">ii", 4 + 65_536, 0) + bytes(65_536)
    async with serving(max_held_bytes=1 << 20) as broker:
        client = await broker.connect(receive_buffer=4096)
        broker.node.answer = lambda header, body, reply: reply.send(answer)
        sending = asyncio.create_task(client.send(b"".join(request_frame(number) for number in range(MANY))))
        await eventually_here(lambda: len(broker.connections), to_be=1)
        (connection,) = broker.connections._open.values()
        await eventually_here(lambda: connection._sender.blocked and not connection.receiving)
        # What the kernel's socket buffers took, and one limit's worth.
        assert len(broker.node.requests) * len(answer) < 10 << 20
        assert connection._sender.held_bytes <= (1 << 20) + len(answer)
        received = 0
        while received < MANY * len(answer):
            received += len(await client.receive(min(1 << 20, MANY * len(answer) - received)))
        assert received == MANY * len(answer)
        await sending
        assert len(broker.node.requests) == MANY


async def test_no_more_requests_of_a_connection_are_under_way_than_allowed(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving(max_unanswered=10) as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(b"".join(request_frame(number) for number in range(30)))
        await eventually_here(lambda: len(broker.node.requests), to_be=10)
        await asyncio.sleep(0.02)
        assert len(broker.node.requests) == 10
        for index in range(30):
            await eventually_here(lambda index=index: len(broker.node.requests) > index)  # type: ignore[misc]
            assert len(broker.node.requests) <= index + 10
            broker.node.reply(index).send(response_frame(index))
        assert [(await client.receive_response())[0] for _ in range(30)] == list(range(30))


async def test_no_more_bytes_of_a_connection_are_under_way_than_allowed(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving(max_unanswered_bytes=2000) as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(b"".join(request_frame(number, bytes(990)) for number in range(6)))
        await eventually_here(lambda: len(broker.node.requests), to_be=2)
        await asyncio.sleep(0.02)
        assert len(broker.node.requests) == 2
        for index in range(6):
            await eventually_here(lambda index=index: len(broker.node.requests) > index)  # type: ignore[misc]
            broker.node.reply(index).send(response_frame(index))
        assert [(await client.receive_response())[0] for _ in range(6)] == list(range(6))


async def test_requests_of_all_connections_together_are_bounded(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving(max_total_bytes=10_000) as broker:
        broker.node.answer = None
        clients = [await broker.connect() for _ in range(20)]
        for number, client in enumerate(clients):
            await client.send(request_frame(number, bytes(990)))
        await eventually_here(lambda: len(broker.node.requests), to_be=10)
        await asyncio.sleep(0.02)
        assert len(broker.node.requests) == 10
        for index in range(20):
            await eventually_here(lambda index=index: len(broker.node.requests) > index)  # type: ignore[misc]
            header, _, reply = broker.node.requests[index]
            reply.send(response_frame(header.correlation_id))
        for number, client in enumerate(clients):
            assert (await client.receive_response())[0] == number
        assert broker.connections.unanswered_bytes == 0


async def test_many_half_requests_cannot_block_each_other_for_ever(serving: Any, request_frame: Any) -> None:
    size = 1 << 20
    async with serving(max_total_bytes=4 << 20) as broker:
        broker.node.answer = lambda header, body, reply: reply.send(struct.pack(">ii", 4, header.correlation_id))
        clients = [await broker.connect() for _ in range(16)]
        frames = [request_frame(number, bytes(size)) for number in range(16)]
        most_lent = 0

        async def watch() -> None:
            nonlocal most_lent
            while True:
                most_lent = max(most_lent, broker.connections.receive_buffers.lent_bytes)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        half = size // 2
        sending = [
            asyncio.create_task(client.send(frame[:half])) for client, frame in zip(clients, frames, strict=True)
        ]
        await asyncio.sleep(0.05)
        # Before the other halves come: those who wait are not read from, however much they have sent.
        sending += [
            asyncio.create_task(client.send(frame[half:])) for client, frame in zip(clients, frames, strict=True)
        ]
        for number, client in enumerate(clients):
            assert (await client.receive_response())[0] == number
        await asyncio.gather(*sending)
        watching.cancel()
        assert len(broker.node.requests) == 16
        assert most_lent < 9 << 20


async def test_requests_of_ordinary_size_do_not_wait_for_peers_that_drip(serving: Any, request_frame: Any) -> None:
    """Peers of other addresses and of the same one hold most of huge requests, and all of the memory for these."""
    async with serving(max_total_bytes=4 << 20) as broker:
        broker.node.answer = lambda header, body, reply: reply.send(struct.pack(">ii", 4, header.correlation_id))
        drippers = [await broker.connect(source=f"127.0.0.{number % 3 + 1}") for number in range(6)]
        huge = request_frame(1, bytes(20 << 20))
        for dripper in drippers:
            broker.loop.create_task(dripper.send(huge[:-3]))
        await eventually_here(lambda: broker.connections.arriving.waiting, to_be=5)
        honest, small = await broker.connect(), await broker.connect()
        for number in range(3):
            for client, size in ((honest, 1 << 20), (small, 100)):
                await client.send(request_frame(number, bytes(size)))
                assert (await client.receive_response())[0] == number
        assert broker.connections.arriving.waiting == 5, "and nobody had to be cut off"


async def test_a_huge_request_gets_the_memory_of_peers_that_drip(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(max_total_bytes=4 << 20) as broker:
        broker.node.answer = lambda header, body, reply: reply.send(struct.pack(">ii", 4, header.correlation_id))
        dripper, honest = await broker.connect(), await broker.connect()
        await dripper.send(request_frame(1, bytes(20 << 20))[: 8 << 20])
        await eventually_here(lambda: broker.connections.arriving.held_bytes > 20 << 20)
        sending = asyncio.create_task(honest.send(request_frame(2, bytes(20 << 20))))
        assert await dripper.closed()
        assert (await honest.receive_response())[0] == 2
        await sending
        assert any("arrives too slowly" in line for line in caplog.messages)
        await eventually_here(lambda: broker.connections.arriving.held_bytes, to_be=0)
        assert broker.connections.receive_buffers.lent_bytes <= BUFFER_BYTES


async def test_a_peer_that_never_takes_its_answer_is_closed_as_idle(serving: Any, request_frame: Any) -> None:
    answer = struct.pack(">ii", 4 + (8 << 20), 0) + bytes(8 << 20)
    async with serving() as broker:
        client = await broker.connect(receive_buffer=4096)
        broker.node.answer = lambda header, body, reply: reply.send(answer)
        await client.send(request_frame(1))
        broker.idle_after(0.2)
        await eventually_here(lambda: broker.node.closed, to_be=[1])


LARGE = 8 << 20
"""More than the kernel's socket buffers take."""


async def test_answers_that_peers_do_not_take_are_bounded_over_all_connections_and_the_slowest_peers_go(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    """80 peers that did not read their answers of 10 MB each took 1.3 GB."""
    answer = response_frame(7, bytes(LARGE))
    async with serving(max_waiting_bytes=5 * LARGE) as broker:
        broker.node.answer = lambda header, body, reply: reply.send(answer)
        slow = [await broker.connect(receive_buffer=4096) for _ in range(12)]
        waiting = broker.sending.waiting
        for number, client in enumerate(slow, 1):
            await client.send(request_frame(7))
            await eventually_here(lambda: len(broker.node.requests), to_be=number)
            assert waiting.total_bytes <= 5 * LARGE
        # Each time that a sixth answer has no room, the two slowest peers go.
        await eventually_here(lambda: len(broker.connections) <= 6)
        assert await slow[0].closed()
        reading = await broker.connect()
        await reading.send(request_frame(7))
        assert len((await reading.receive_response())[1]) == LARGE
        assert len((await slow[-1].receive_response())[1]) == LARGE
    assert waiting.total_bytes == 0


async def test_answers_that_wait_for_an_earlier_one_are_counted_and_stop_the_connection_from_being_served(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving(max_held_bytes=100_000) as broker:
        broker.node.answer = None
        client = await broker.connect()
        await client.send(request_frame(0))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        broker.node.answer = lambda header, body, reply: reply.send(
            response_frame(header.correlation_id, bytes(60_000))
        )
        await client.send(b"".join(request_frame(number) for number in range(1, 10)))
        await eventually_here(lambda: len(broker.node.requests), to_be=3)
        await asyncio.sleep(0.02)
        assert len(broker.node.requests) == 3
        assert broker.sending.waiting.total_bytes > 2 * 60_000
        broker.node.reply(0).send(response_frame(0))
        assert [(await client.receive_response())[0] for _ in range(10)] == list(range(10))
        await eventually_here(lambda: broker.sending.waiting.total_bytes, to_be=0)
