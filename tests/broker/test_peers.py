"""The port to other brokers over real sockets: a second real broker, and peers that misbehave."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from cordwood.broker.machine import clocks
from cordwood.broker.network.peers import PeerConnections, PeerLimits
from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.model.back_off import BackOff
from cordwood.model.moment import Moment
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import ListenerAddress, brokers_apart
from cordwood.node.apis import served_versions
from cordwood.node.loop.peers import PeerAnswer, PeerFailed, PeerFailure, PeerOutcome, PeerRequest
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.codec import writer
from cordwood.wire.encoding.schema import load

LONG_MS = 60_000
PEER = 7

Address = tuple[str, int]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def server_settings(port: int = 0, node_id: int = PEER) -> BrokerSettings:
    return BrokerSettings.from_texts({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "node.id": str(node_id)})


def metadata(timeout_ms: int = LONG_MS, broker_id: int = PEER, **values: Any) -> PeerRequest:
    return PeerRequest(broker_id, ApiKey.METADATA, (4, 12), {"topics": [], **values}, timeout_ms)


class Book:
    """Where brokers are registered, and the connections of one broker to them."""

    def __init__(self, limits: PeerLimits | None = None, **addresses: Address) -> None:
        self.addresses: dict[int, Address] = {int(name[1:]): address for name, address in addresses.items()}
        self.events = 0
        self.image_revision = 0
        loop = asyncio.get_running_loop()
        patient = replace(limits or PeerLimits(), connect_timeout_ms=LONG_MS)
        self.peers = PeerConnections(
            loop,
            1,
            self.addresses.get,
            self._run,
            clocks.now,
            patient,
            image_revision=lambda: self.image_revision,
            key=lambda: 5,
        )

    def _run(self, event: Callable[[], None]) -> None:
        self.events += 1
        event()

    def ask(self, request: PeerRequest) -> "asyncio.Future[PeerOutcome]":
        outcome: asyncio.Future[PeerOutcome] = asyncio.get_running_loop().create_future()

        def done(result: PeerOutcome, now: Moment) -> None:
            assert now.boot_ms <= clocks.now().boot_ms
            outcome.set_result(result)  # fails if it is called twice

        self.peers.send(request, done)
        assert not outcome.done(), "done was called inside of send"
        return outcome

    async def failure(self, request: PeerRequest) -> tuple[PeerFailure, bool]:
        outcome = await self.ask(request)
        assert isinstance(outcome, PeerFailed), outcome
        return outcome.reason, outcome.perhaps_handled


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[Address]:
    async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(ended, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


async def frame_from(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


def through(address: Address, on_request: Callable[[int], Awaitable[bool]]) -> Handler:
    """Passes requests on to a real broker. `on_request` is told each one's number, and says whether it is passed on."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(*address)
        number = 0
        try:
            while True:
                request = await frame_from(reader)
                if not await on_request(number):
                    return
                number += 1
                broker_writer.write(request)
                writer.write(await frame_from(broker_reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            broker_writer.close()

    return handle


def refused_address() -> Address:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
        return host, port


async def test_a_second_broker_answers_in_the_highest_common_version() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    book = Book(_7=server.address)
    answers = await asyncio.gather(*(book.ask(metadata()) for _ in range(20)))
    for answer in answers:
        assert isinstance(answer, PeerAnswer)
        assert answer.version == 12
        assert [broker.node_id for broker in answer.body.brokers] == [PEER]
    older = await book.ask(metadata()._replace(versions=(4, 9)))
    assert isinstance(older, PeerAnswer)
    assert older.version == 9
    assert book.events == 21
    book.peers.close()
    await server.stop()


async def test_a_fetch_that_waits_holds_up_no_other_request_and_is_not_answered_for_it() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    book = Book(_7=server.address)
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = PeerRequest(PEER, ApiKey.CREATE_TOPICS, (5, 5), {"topics": [topic], "timeout_ms": 1000}, LONG_MS)
    assert isinstance(await book.ask(created), PeerAnswer)
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    values = {
        "replica_id": -1,
        "max_wait_ms": LONG_MS,
        "min_bytes": 1,
        "session_epoch": -1,
        "topics": [{"topic": "orders", "partitions": [place]}],
    }
    waiting = book.ask(PeerRequest(PEER, ApiKey.FETCH, (11, 11), values, 2 * LONG_MS))
    for _ in range(5):
        assert isinstance(await book.ask(metadata()), PeerAnswer)
    assert not waiting.done()
    book.peers.close()
    assert isinstance(await waiting, PeerFailed)
    await server.stop()


async def test_a_request_that_the_peer_does_not_serve_is_not_sent() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    book = Book(_7=server.address)
    served = served_versions(ApiKey.METADATA)
    assert served is not None
    future = metadata()._replace(versions=(served[1] + 1, served[1] + 2))
    assert await book.failure(future) == (PeerFailure.UNSUPPORTED_VERSION, False)
    assert isinstance(await book.ask(metadata()), PeerAnswer)
    book.peers.close()
    await server.stop()


async def test_a_broker_that_is_not_registered_is_unknown_and_may_register_later() -> None:
    book = Book()
    assert await book.failure(metadata()) == (PeerFailure.UNKNOWN_BROKER, False)
    server = await Server.start(server_settings(), memory=Memory())
    book.addresses[PEER] = server.address
    assert isinstance(await book.ask(metadata()), PeerAnswer)
    book.peers.close()
    await server.stop()


async def test_a_refused_connection_is_told_and_tried_again_after_a_pause() -> None:
    book = Book(PeerLimits(back_off=BackOff(1, 4)), _7=refused_address())
    for _ in range(4):
        assert await book.failure(metadata()) == (PeerFailure.NO_CONNECTION, False)
    server = await Server.start(server_settings(), memory=Memory())
    book.addresses[PEER] = server.address
    assert isinstance(await book.ask(metadata()), PeerAnswer)
    book.peers.close()
    await server.stop()


async def test_a_broker_that_restarts_elsewhere_is_found_again() -> None:
    memory = Memory()
    server = await Server.start(server_settings(), memory=memory)
    book = Book(PeerLimits(back_off=BackOff(1, 2_000)), _7=server.address)
    assert isinstance(await book.ask(metadata()), PeerAnswer)
    await server.stop()
    server = await Server.start(server_settings(), memory=memory)
    book.addresses[PEER] = server.address
    while isinstance(outcome := await book.ask(metadata()), PeerFailed):
        # The request was sent before the end of the old connection was seen.
        assert outcome.reason is PeerFailure.DISCONNECTED
    book.peers.close()
    await server.stop()


async def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    connections = 0

    async def on_request(number: int) -> bool:
        nonlocal connections
        connections += number == 0
        if connections == 1 and number > 1:
            await asyncio.Event().wait()
        return True

    async with listening(through(server.address, on_request)) as address:
        book = Book(PeerLimits(back_off=BackOff(1, 2_000)), _7=address)
        assert isinstance(await book.ask(metadata()), PeerAnswer)
        late, behind = book.failure(metadata(timeout_ms=100)), book.failure(metadata())
        assert list(await asyncio.gather(late, behind)) == [
            (PeerFailure.TIMED_OUT, True),
            (PeerFailure.DISCONNECTED, True),
        ]
        assert isinstance(await book.ask(metadata()), PeerAnswer)
        assert connections == 2
        book.peers.close()
    await server.stop()


async def test_a_connection_that_breaks_fails_what_was_sent_and_is_made_anew() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    broken = 0

    async def on_request(number: int) -> bool:
        nonlocal broken
        if number == 2 and not broken:
            broken += 1
            return False
        return True

    async with listening(through(server.address, on_request)) as address:
        book = Book(PeerLimits(back_off=BackOff(1, 2_000)), _7=address)
        outcomes = await asyncio.gather(*(book.ask(metadata()) for _ in range(4)))
        assert isinstance(outcomes[0], PeerAnswer)
        for outcome in outcomes[1:]:
            assert isinstance(outcome, PeerFailed)
            assert (outcome.reason, outcome.perhaps_handled) == (PeerFailure.DISCONNECTED, True)
        assert isinstance(await book.ask(metadata()), PeerAnswer)
        book.peers.close()
    await server.stop()


async def test_requests_and_bytes_without_an_answer_are_bounded() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    go_on = asyncio.Event()

    async def on_request(number: int) -> bool:
        if number > 0:
            await go_on.wait()
        return True

    async with listening(through(server.address, on_request)) as address:
        book = Book(PeerLimits(requests=3), _7=address)
        taken = [book.ask(metadata()) for _ in range(3)]
        assert await book.failure(metadata()) == (PeerFailure.OVERLOADED, False)
        go_on.set()
        assert all(isinstance(outcome, PeerAnswer) for outcome in await asyncio.gather(*taken))
        book.peers.close()
        go_on.clear()
        wide = [{"name": "x" * 200} for _ in range(10)]
        book = Book(PeerLimits(request_bytes=3000), _7=address)
        first, second = (book.ask(metadata(topics=wide, allow_auto_topic_creation=False)) for _ in range(2))
        outcome = await second
        assert isinstance(outcome, PeerFailed)
        assert (outcome.reason, outcome.perhaps_handled) == (PeerFailure.OVERLOADED, False)
        go_on.set()
        assert isinstance(await first, PeerAnswer)
        book.peers.close()
    await server.stop()


async def test_a_peer_that_speaks_nonsense_is_no_peer() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await frame_from(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with listening(nonsense) as address:
        book = Book(PeerLimits(answer_bytes=1000), _7=address)
        assert await book.failure(metadata()) == (PeerFailure.NO_CONNECTION, False)
        book.peers.close()


async def test_closing_fails_what_is_under_way() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as address:
        book = Book(_7=address)
        waiting = book.ask(metadata())
        await asyncio.sleep(0)
        book.peers.close()
        outcome = await waiting
        assert isinstance(outcome, PeerFailed)
        assert (outcome.reason, outcome.perhaps_handled) == (PeerFailure.NO_CONNECTION, False)


async def test_a_broker_that_lags_behind_catches_up_before_it_answers() -> None:
    apart = brokers_apart(ListenerAddress("PLAINTEXT", "127.0.0.1", 0), ("PLAINTEXT:PLAINTEXT",), 0)
    settings = BrokerSettings.from_texts({**server_settings().texts, **apart})
    server = await Server.start(settings, memory=Memory())
    book = Book(_7=server.addresses["BROKERS"])
    book.image_revision = server.node.image.revision + 1
    answer = book.ask(metadata())
    while not server.node.catching_up:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    topic = {"name": "news", "num_partitions": 1, "replication_factor": 1}
    other = Book(_7=server.address)
    create = PeerRequest(PEER, ApiKey.CREATE_TOPICS, (5, 5), {"topics": [topic], "timeout_ms": LONG_MS}, LONG_MS)
    await other.ask(create)
    assert isinstance(await answer, PeerAnswer)
    assert not server.node.catching_up
    book.peers.close()
    other.peers.close()
    await server.stop()


class Notes:
    """What an observer hears."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, int, int]] = asyncio.Queue()

    def refused(self, broker_id: int, broker_epoch: int) -> None:
        self.heard.put_nowait(("refused", broker_id, broker_epoch))

    def reached(self, broker_id: int, broker_epoch: int) -> None:
        self.heard.put_nowait(("reached", broker_id, broker_epoch))


async def test_a_kept_connection_tells_at_once_that_its_broker_is_gone() -> None:
    server = await Server.start(server_settings(), memory=Memory())
    book, notes = Book(_7=server.address), Notes()
    book.peers.observe(notes, lambda broker_id: 100 + broker_id)
    book.peers.keep({PEER})
    assert await notes.heard.get() == ("reached", PEER, 107)
    await server.stop()
    assert await notes.heard.get() == ("refused", PEER, 107)
    book.peers.keep(())
    book.peers.close()


async def test_a_connection_that_times_out_is_no_evidence() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with listening(silence) as address:
        book, notes = Book(PeerLimits(), _7=address), Notes()
        book.peers.limits = replace(book.peers.limits, connect_timeout_ms=50)
        book.peers.observe(notes, lambda broker_id: 1)
        assert await book.failure(metadata()) == (PeerFailure.NO_CONNECTION, False)
        assert notes.heard.empty()
        book.peers.close()


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that is stopped: it takes requests and answers none."""
    await reader.read()


async def test_requests_to_a_broker_that_is_stopped_fail_when_its_registration_ends() -> None:
    asked = asyncio.Event()

    async def passed_on(number: int) -> bool:
        if number:
            asked.set()
            await asyncio.sleep(LONG_MS)
        return True

    server = await Server.start(server_settings(), memory=Memory())
    epochs = {PEER: 4}
    async with listening(through(server.address, passed_on)) as address:
        book = Book(_7=address)
        book.peers.observe(Notes(), lambda broker_id: epochs.get(broker_id, -1))
        book.peers.keep({PEER})
        waiting = book.ask(metadata())
        await asked.wait()
        book.peers.keep({PEER})
        await asyncio.sleep(0)
        assert not waiting.done(), "the registration holds"
        epochs.clear()
        book.peers.keep(())
        outcome = await waiting
        assert isinstance(outcome, PeerFailed)
        assert (outcome.reason, outcome.perhaps_handled) == (PeerFailure.DISCONNECTED, True)
        book.peers.close()
    await server.stop()


async def test_requests_that_wait_for_a_connection_fail_when_the_registration_ends() -> None:
    epochs = {PEER: 4}
    async with listening(silence) as address:
        book = Book(_7=address)
        book.peers.observe(Notes(), lambda broker_id: epochs.get(broker_id, -1))
        waiting = book.ask(metadata())
        await asyncio.sleep(0)
        epochs[PEER] = 5
        book.peers.keep({PEER})
        outcome = await waiting
        assert isinstance(outcome, PeerFailed)
        assert (outcome.reason, outcome.perhaps_handled) == (PeerFailure.NO_CONNECTION, False)
        book.peers.close()


async def test_a_verification_does_not_wait_behind_markers_and_fetches() -> None:
    """Answers come in order, and a marker may wait for replicas: each kind has its own connection."""
    connections: asyncio.Queue[None] = asyncio.Queue()

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait(None)
        await reader.read()

    def ask(key: ApiKey) -> PeerRequest:
        return PeerRequest(PEER, key, (0, 1), {}, LONG_MS)

    async with listening(counted) as address:
        book = Book(_7=address)
        for key in (ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS):
            book.ask(ask(key))
        for _ in range(3):
            await connections.get()
        await asyncio.sleep(0.01)
        assert connections.empty()
        book.peers.close()


def fetch_answer(request: bytes, records: bytes) -> bytes:
    """The frame of an answer to Fetch with these records."""
    version = int.from_bytes(request[6:8], "big")
    parts = [request[8:12], b"\x00"]
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "records": records}
    writer(load("Fetch")["response"], version)({"responses": [{"partitions": [partition]}]}, parts.append)
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("piece", [1000, 65_536, 65_540, 10**9])
async def test_answers_of_all_sizes_arrive_whole_in_pieces_of_any_size(piece: int) -> None:
    sizes = [10, 1_000_000, 65_400, 65_536, 30, 70_000, 1_000_000, 900_000, 20]
    server = await Server.start(server_settings(), memory=Memory())

    async def handle(reader: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(*server.address)
        broker_writer.write(await frame_from(reader))
        to_client.write(await frame_from(broker_reader))
        broker_writer.close()
        requests = [await frame_from(reader) for _ in sizes]
        stream = b"".join(
            fetch_answer(request, bytes([number]) * size)
            for number, (request, size) in enumerate(zip(requests, sizes, strict=True))
        )
        for start in range(0, len(stream), piece):
            to_client.write(stream[start : start + piece])
            await to_client.drain()
        await reader.read()

    async with listening(handle) as address:
        book = Book(_7=address)
        fetch = PeerRequest(PEER, ApiKey.FETCH, (15, 17), {"topics": []}, LONG_MS)
        outcomes = await asyncio.gather(*(book.ask(fetch) for _ in sizes))
        # All answers are looked at together: memory of none was used for another.
        for number, (outcome, size) in enumerate(zip(outcomes, sizes, strict=True)):
            assert isinstance(outcome, PeerAnswer)
            assert bytes(outcome.body.responses[0].partitions[0].records) == bytes([number]) * size
        book.peers.close()
    await server.stop()
