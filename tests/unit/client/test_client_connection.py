"""One connection: answers find their requests, and a peer that misbehaves is noticed and named."""

import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from tests.certificates import tls_files
from tests.deadline import eventually
from tests.unit.client.scripted_peer import Peer, Script, ScriptedPeer

from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable
from cordwood.client.settings import ClientSettings
from cordwood.wire.apis import ApiKey

Scripted = Callable[[Script], ScriptedPeer]

KEY, VERSION = ApiKey.METADATA, 12
LARGE = 24 << 20
"""More than the sockets of both ends can hold."""


@pytest.fixture(params=["plain", "tls"])
def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> Scripted:
    """Makes a peer that speaks plain text, or TLS."""
    files = tls_files(tmp_path) if request.param == "tls" else None
    return lambda script: ScriptedPeer(script, files)


def echo(peer: Peer) -> None:
    while True:
        peer.answer(*peer.request())


def content(answer: memoryview) -> bytes:
    """The peer's answer, without correlation id and the request's own tag buffer."""
    return bytes(answer[5:])


def ask(connection: Connection, body: bytes) -> bytes:
    return content(connection.request(KEY, VERSION, body))


def test_an_answer_comes_back(scripted: Scripted) -> None:
    with scripted(echo) as peer:
        connection = peer.connect()
        assert ask(connection, b"one") == b"one"
        assert content(connection.request(KEY, VERSION, [b"t", bytearray(b"w"), memoryview(b"o")])) == b"two"


def test_several_requests_are_on_their_way_and_answers_can_be_taken_in_any_order(scripted: Scripted) -> None:
    with scripted(echo) as peer:
        connection = peer.connect()
        tokens = [connection.send(KEY, VERSION, str(number).encode()) for number in range(10)]
        connection.forget(tokens[2])
        connection.forget(tokens[9])
        for number in (5, 0, 1, 8, 3, 7, 6, 4):
            assert content(connection.receive(tokens[number])) == str(number).encode()
        assert ask(connection, b"more") == b"more"


def test_an_answer_that_is_there_can_be_told_from_one_that_is_not(scripted: Scripted) -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        first, second = peer.request(), peer.request()
        go_on.wait(30)
        peer.answer(*first)
        peer.answer(*second)
        peer.request()

    with scripted(script) as peer:
        connection = peer.connect()
        tokens = [connection.send(KEY, VERSION, text) for text in (b"one", b"two")]
        assert not connection.has_arrived(tokens[0])
        go_on.set()
        assert content(connection.receive(tokens[1])) == b"two"
        assert connection.has_arrived(tokens[0])
        assert content(connection.receive(tokens[0])) == b"one"
        connection.close()


def test_large_answers_and_requests(scripted: Scripted) -> None:
    with scripted(echo) as peer:
        connection = peer.connect()
        body = bytes(range(256)) * (LARGE // 256)
        assert ask(connection, body) == body


def test_a_request_gets_through_to_a_peer_that_cannot_get_rid_of_its_answers(scripted: Scripted) -> None:
    """Otherwise both ends would wait for the other to read."""

    def script(peer: Peer) -> None:
        first, _ = peer.request()
        peer.answer(first, bytes(LARGE))
        while True:
            peer.answer(*peer.request())

    with scripted(script) as peer:
        connection = peer.connect()
        first = connection.send(KEY, VERSION, b"much, please")
        second = connection.send(KEY, VERSION, bytes(LARGE))
        assert len(connection.receive(first)) == 4 + LARGE
        assert len(connection.receive(second)) == 5 + LARGE


class Interrupted(BaseException):
    """Stands for a KeyboardInterrupt."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupts this thread while it waits for an answer: signals come until one finds it there."""
    done = threading.Event()

    def raise_while_receiving(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not Connection.receive.__code__:
            frame = frame.f_back
        if frame is not None and not done.is_set():
            done.set()
            raise Interrupted

    def interrupt() -> None:
        while not done.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_while_receiving)
    yield interrupt
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("half", [b"", struct.pack(">i", 100), struct.pack(">ii", 100, 1) + b"half"])
def test_a_connection_is_not_used_on_after_somebody_was_interrupted_while_receiving(
    scripted: Scripted, interrupt: Callable[[], None], half: bytes
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.socket.sendall(half)
        interrupt()

    with scripted(script) as peer:
        connection = peer.connect()
        token = connection.send(KEY, VERSION, b"?")
        with pytest.raises(Interrupted):
            connection.receive(token)
        assert not connection.is_open
        with pytest.raises(BrokerUnreachable, match="not received to its end"):
            connection.send(KEY, VERSION, b"?")


def test_a_peer_that_says_nothing_is_not_waited_for_longer_than_allowed(scripted: Scripted) -> None:
    with scripted(lambda peer: (peer.request(), peer.request(), None)[2]) as peer:
        connection = peer.connect(request_timeout_ms=200)
        started_s = time.monotonic()
        with pytest.raises(
            BrokerUnreachable, match=rf"127\.0\.0\.1:{peer.port}: Metadata was not answered within 250 ms"
        ):
            connection.request(KEY, VERSION, b"?", wait_ms=50)
        assert time.monotonic() - started_s >= 0.25
        # The interrupted request may still be answered: this connection could not tell its answer from the next.
        with pytest.raises(BrokerUnreachable, match="was not answered"):
            connection.send(KEY, VERSION, b"?")
        assert not connection.is_open


def test_a_peer_that_sends_a_byte_now_and_then_is_not_waited_for_longer_than_allowed(scripted: Scripted) -> None:
    def script(peer: Peer) -> None:
        peer.socket.sendall(struct.pack(">i", 10_000))
        while True:
            peer.socket.sendall(b"x")
            time.sleep(0.02)

    with scripted(script) as peer:
        connection = peer.connect(request_timeout_ms=300)
        with pytest.raises(BrokerUnreachable, match="not answered within 300 ms"):
            connection.request(KEY, VERSION, b"?")


def test_a_peer_that_does_not_read_is_not_waited_for_longer_than_allowed(scripted: Scripted) -> None:
    done = threading.Event()
    with scripted(lambda peer: (done.wait(30), None)[1]) as peer:
        connection = peer.connect(request_timeout_ms=200)
        with pytest.raises(
            BrokerUnreachable, match="Metadata could not be sent: the broker did not take the request within 200 ms"
        ):
            connection.send(KEY, VERSION, bytes(LARGE))
        done.set()


@pytest.mark.parametrize("half", [b"", b"\x00\x00", struct.pack(">i", 100), struct.pack(">ii", 100, 1) + b"half"])
def test_a_connection_that_ends_anywhere_in_an_answer_is_broken(scripted: Scripted, half: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.socket.sendall(half)

    with scripted(script) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachable, match=r"closed the connection|reset"):
            connection.request(KEY, VERSION, b"?")
        assert not connection.is_open


@pytest.mark.parametrize("size", [-1, 0, 3, 1001, 0x48545450])
def test_a_size_that_no_answer_may_have_is_refused_before_memory_is_taken_for_it(scripted: Scripted, size: int) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.socket.sendall(struct.pack(">i", size))
        peer.request()

    with scripted(script) as peer:
        connection = peer.connect(max_response_bytes=1000)
        with pytest.raises(BrokerUnreachable, match=rf"{size} bytes was announced.*max_response_bytes"):
            connection.request(KEY, VERSION, b"?")


def test_an_answer_to_something_else_breaks_the_connection(scripted: Scripted) -> None:
    def script(peer: Peer) -> None:
        correlation_id, body = peer.request()
        peer.answer(correlation_id + 1, body)
        peer.request()

    with scripted(script) as peer:
        connection = peer.connect()
        with pytest.raises(BrokerUnreachable, match="not the next to be answered"):
            connection.request(KEY, VERSION, b"?")


def test_a_peer_that_hung_up_while_nothing_was_asked_is_noticed(scripted: Scripted) -> None:
    with scripted(lambda peer: peer.answer(*peer.request())) as peer:
        connection = peer.connect()
        assert ask(connection, b"one") == b"one"
        assert connection.is_open
        eventually(lambda: not connection.is_open, what="the end of an idle connection")


def test_a_host_that_can_have_no_address_cannot_be_reached() -> None:
    """A broker may name such a host."""
    with pytest.raises(BrokerUnreachable, match=r"a\.\.b:9092 cannot be reached"):
        Connection("a..b", 9092, ClientSettings("a:9092"))


def test_nobody_there_is_told_with_the_address(scripted: Scripted) -> None:
    with scripted(echo) as peer:
        port = peer.port
    with pytest.raises(BrokerUnreachable, match=rf"127\.0\.0\.1:{port} cannot be reached"):
        peer.connect()
