"""Requests in, answers out: order, framing, bounds, and ends of connections, on real sockets."""

import asyncio
import logging
import struct
from typing import Any

import pytest
from tests.broker.conftest import PLAIN_AND_TLS
from tests.deadline import eventually_here

from cordwood.broker.network.connection import REQUESTS_PER_TURN
from cordwood.broker.network.listening import bind
from cordwood.model.settings.listeners import ListenerAddress
from cordwood.wire.framing import BUFFER_BYTES

pytestmark = PLAIN_AND_TLS


async def test_a_request_is_answered(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await client.send(request_frame(7, b"hello"))
        assert await client.receive_response() == (7, b"hello")
        reply = broker.node.reply(0)
        assert reply.session.host == "127.0.0.1"
        assert reply.connection_id == 1


async def test_a_client_has_its_plain_address_at_a_listener_for_both_families(serving: Any, request_frame: Any) -> None:
    """Rules of access name 127.0.0.1, and the system says ::ffff:127.0.0.1."""
    async with serving() as broker:
        both = await broker.loop.create_server(broker.make_connection, sock=bind(ListenerAddress("BOTH", "", 0)))
        broker.address = ("127.0.0.1", both.sockets[0].getsockname()[1])
        client = await broker.connect()
        await client.send(request_frame(1, b""))
        await client.receive_response()
        assert broker.node.reply(0).session.host == "127.0.0.1"
        both.close()


async def test_requests_may_arrive_byte_by_byte(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        for byte in request_frame(1, b"slow") + request_frame(2, b"too"):
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await client.receive_response() == (1, b"slow")
        assert await client.receive_response() == (2, b"too")


async def test_a_large_request_arrives_whole(serving: Any, request_frame: Any) -> None:
    body = bytes(range(256)) * 20_000
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.send(struct.pack(">ii", 4, header.correlation_id))
        await client.send(request_frame(1, body) + request_frame(2, b"after"))
        assert (await client.receive_response())[0] == 1
        assert (await client.receive_response())[0] == 2
        assert [request[1] for request in broker.node.requests] == [body, b"after"]


async def test_answers_leave_in_the_order_of_the_requests(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(b"".join(request_frame(number) for number in range(5)))
        await eventually_here(lambda: len(broker.node.requests), to_be=5)
        for index in (3, 1, 4, 2):
            broker.node.reply(index).send(response_frame(index, b"x"))
        await asyncio.sleep(0.01)
        broker.node.reply(0).send(response_frame(0, b"x"))
        assert [(await client.receive_response())[0] for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_request_without_an_answer_holds_nothing_up(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()

        def answer(header: Any, body: bytes, reply: Any) -> None:
            if body == b"acks=0":
                reply.nothing()
            else:
                reply.send(struct.pack(">ii", 4, header.correlation_id))

        broker.node.answer = answer
        await client.send(
            request_frame(1, b"acks=0") + request_frame(2) + request_frame(3, b"acks=0") + request_frame(4)
        )
        assert (await client.receive_response())[0] == 2
        assert (await client.receive_response())[0] == 4


async def test_answers_that_are_ready_together_leave_in_one_write(
    serving: Any, request_frame: Any, response_frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(b"".join(request_frame(number) for number in range(20)))
        await eventually_here(lambda: len(broker.node.requests), to_be=20)
        broker.outbox.cork()
        for index in reversed(range(20)):
            broker.node.reply(index).send(response_frame(index))
        # Whatever is there when the first byte is, was written with it.
        broker.outbox.uncork()
        first = await client.some(1 << 16)
        assert first == b"".join(response_frame(number) for number in range(20))


async def test_hanging_up_first_sends_what_is_owed(serving: Any, request_frame: Any, response_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(1) + request_frame(2))
        await eventually_here(lambda: len(broker.node.requests), to_be=2)
        broker.node.reply(1).hang_up("acks=0 failed")
        await asyncio.sleep(0.01)
        broker.node.reply(0).send(response_frame(1))
        assert (await client.receive_response())[0] == 1
        assert await client.receive(1) == b""
        await eventually_here(lambda: broker.node.closed, to_be=[1])


async def test_a_request_after_a_hang_up_is_not_looked_at(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.hang_up("unsupported")
        await client.send(request_frame(1) + request_frame(2))
        assert await client.closed()
        assert len(broker.node.requests) == 1


@pytest.mark.parametrize("claim", [-1, -(2**31), 1025, 2**31 - 1])
async def test_a_size_that_is_not_allowed_closes_the_connection_with_a_line(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture, claim: int
) -> None:
    caplog.set_level(logging.INFO, "cordwood.broker")
    async with serving(max_request_bytes=1024) as broker:
        client = await broker.connect()
        await client.send(request_frame(1) + struct.pack(">i", claim) + b"x" * 100)
        assert (await client.receive_response())[0] == 1
        assert await client.closed()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        assert broker.connections.receive_buffers.lent_bytes == 0
    assert any("127.0.0.1" in line and str(claim) in line for line in caplog.messages)


async def test_an_unknown_api_closes_the_connection(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await client.send(request_frame(1, api_key=999))
        assert await client.closed()
        assert broker.node.requests == []


async def test_a_failure_in_the_node_closes_this_connection_only(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client, other = await broker.connect(), await broker.connect()
        failure = RuntimeError("a bug")

        def answer(header: Any, body: bytes, reply: Any) -> None:
            if body == b"bad":
                raise failure
            reply.send(struct.pack(">ii", 4, header.correlation_id))

        broker.node.answer = answer
        await client.send(request_frame(1) + request_frame(2, b"bad") + request_frame(3))
        assert (await client.receive_response())[0] == 1
        assert await client.closed()
        assert broker.failures == [failure]
        await other.send(request_frame(4))
        assert (await other.receive_response())[0] == 4


@pytest.mark.parametrize("part", [1, 3, 4, 11])
async def test_a_hang_up_in_the_middle_of_a_request_leaves_nothing_behind(
    serving: Any, request_frame: Any, part: int
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await client.send(request_frame(1, b"whole") + request_frame(2, b"half")[:part])
        assert (await client.receive_response())[0] == 1
        client.close()
        await eventually_here(lambda: broker.node.closed, to_be=[1])
        assert len(broker.connections) == 0
        assert broker.connections.receive_buffers.lent_bytes == 0


async def test_an_answer_for_a_peer_that_has_gone_is_dropped(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(1) + request_frame(2))
        await eventually_here(lambda: len(broker.node.requests), to_be=2)
        client.close()
        await eventually_here(lambda: broker.node.closed, to_be=[1])
        broker.node.reply(1).send(response_frame(2))
        broker.node.reply(0).hang_up("too late")
        assert broker.connections.unanswered_bytes == 0


async def test_a_quiet_connection_holds_no_memory(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        for number in range(3):
            await client.send(request_frame(number, b"x" * 300_000))
            await client.receive_response()
        await eventually_here(lambda: broker.connections.receive_buffers.lent_bytes, to_be=0)


async def test_thousands_of_tiny_requests_in_one_packet_do_not_keep_others_waiting(
    serving: Any, request_frame: Any, tls: bool
) -> None:
    async with serving() as broker:
        greedy, modest = await broker.connect(), await broker.connect()
        await greedy.send(b"".join(request_frame(number) for number in range(5000)))
        await modest.send(request_frame(1, b"modest"))
        assert await modest.receive_response() == (1, b"modest")
        before_modest = [request[1] for request in broker.node.requests].index(b"modest")
        # Its own encryption takes the modest client turns of the loop, more of them on a busy machine.
        assert before_modest <= (40 if tls else 3) * REQUESTS_PER_TURN
        for number in range(5000):
            assert (await greedy.receive_response())[0] == number


async def test_connections_beyond_the_maximum_are_closed_at_once(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(max_connections=2) as broker:
        first, second = await broker.connect(), await broker.connect()
        await eventually_here(lambda: len(broker.connections), to_be=2)
        third = await broker.stranger()
        assert await third.closed()
        assert any("there are 2 already" in line for line in caplog.messages)
        first.close()
        await eventually_here(lambda: len(broker.connections), to_be=1)
        fourth = await broker.connect()
        for client in (second, fourth):
            await client.send(request_frame(1))
            assert (await client.receive_response())[0] == 1
        assert broker.node.closed == [1]


async def test_an_idle_connection_is_closed(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await client.send(request_frame(1))
        await client.receive_response()
        broker.idle_after(0.1)
        assert await client.closed()
        await eventually_here(lambda: broker.node.closed, to_be=[1])


async def test_a_slow_loris_is_closed_as_idle(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await client.send(request_frame(1, b"never whole")[:-1])
        broker.idle_after(0.1)
        assert await client.closed()
        assert broker.node.requests == []


async def test_a_connection_that_waits_for_its_answer_is_not_idle(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(1))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        broker.idle_after(0.05)
        await asyncio.sleep(0.2)
        broker.idle_after(600)  # a slow machine may need more than 50 ms to deliver the answer
        broker.node.reply(0).send(response_frame(1, b"long poll"))
        assert await client.receive_response() == (1, b"long poll")


async def test_draining_sends_what_is_owed_and_takes_nothing_new(
    serving: Any, request_frame: Any, response_frame: Any
) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(1))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        drained = asyncio.create_task(broker.connections.drain(10))
        await asyncio.sleep(0.01)
        await client.send(request_frame(2))
        await asyncio.sleep(0.01)
        assert not drained.done()
        broker.node.reply(0).send(response_frame(1, b"last"))
        assert await client.receive_response() == (1, b"last")
        assert await drained == 0
        assert len(broker.node.requests) == 1


async def test_draining_gives_up_after_its_time(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = None
        await client.send(request_frame(1))
        await eventually_here(lambda: len(broker.node.requests), to_be=1)
        assert await broker.connections.drain(0.05) == 1


async def test_peers_that_hang_up_all_at_once_need_one_buffer_between_them(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        clients = [await broker.connect() for _ in range(100)]
        for client in clients:
            await client.send(request_frame(1))
            await client.receive_response()
        for client in clients:
            client.close()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        assert broker.connections.receive_buffers.lent_bytes == 0
        assert broker.connections.receive_buffers.free_bytes <= 2 * BUFFER_BYTES


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "speaks TLS: the listener PLAINTEXT takes"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "speaks HTTP: the listener PLAINTEXT takes"),
        (b"PRI * HTTP/2.0\r\n\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks SSH"),
    ],
)
async def test_another_protocol_is_recognised_said_once_and_closed(
    serving: Any, caplog: pytest.LogCaptureFixture, first: bytes, said: str
) -> None:
    caplog.set_level(logging.INFO, "cordwood.broker")
    async with serving() as broker:
        for _ in range(3):
            client = await broker.connect()
            await client.send(first)
            assert await client.closed()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        assert broker.connections.receive_buffers.lent_bytes == 0
        assert not broker.node.requests
    (line,) = caplog.messages
    assert said in line
    assert line.startswith("closing a connection from 127.0.0.1, which ")


async def test_clients_that_err_all_the_time_have_few_lines_in_the_log(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cordwood.broker")
    async with serving() as broker:
        for number in range(10):
            for wrong in (b"\x00\x00\x00\x04oops", request_frame(1, api_key=1000 + number)):
                client = await broker.connect()
                await client.send(wrong)
                assert await client.closed()
    bad_header, no_api = caplog.messages
    assert bad_header.endswith(": The header of a request of 4 bytes cannot be read.")
    assert "There is no API with key 1000." in no_api


async def test_requests_and_bytes_are_counted_for_the_client_that_sent_them(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        # More than one turn takes, and a part of a request at the end.
        packet = b"".join(request_frame(number) for number in range(150)) + request_frame(150)[:5]
        await client.send(packet)
        for number in range(150):
            assert (await client.receive_response())[0] == number
        (use,) = broker.connections._clients.clients(10)
        assert (use.connections, use.accepted, use.requests, use.request_bytes) == (1, 1, 150, len(packet))
        client.close()
        await eventually_here(lambda: len(broker.connections), to_be=0)
        (use,) = broker.connections._clients.clients(10)
        assert (use.connections, use.accepted, use.requests) == (0, 1, 150)
