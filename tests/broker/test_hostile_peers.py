"""Bytes that no client would send, against a whole broker: an error code or a closed connection, nothing else."""

import gc
import logging
import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from tests.deadline import eventually

from cordwood.embedded import Broker
from cordwood.records.build import build_batch

SEEDS = 1500


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhi", api_key, version, correlation_id) + text("fuzz")


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def produce_request(acks: int = -1) -> bytes:
    batch = bytes(build_batch([(1, b"k", b"v", ())]))
    partition = struct.pack(">ii", 0, len(batch)) + batch
    body = struct.pack(">hhi", -1, acks, 1000)
    return header(0, 8) + body + struct.pack(">i", 1) + text("t") + struct.pack(">i", 1) + partition


def fetch_request() -> bytes:
    body = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + struct.pack(">i", 1) + text("t")
    return header(1, 4) + body + struct.pack(">i", 1) + struct.pack(">iqi", 0, 0, 1 << 20)


def metadata_request() -> bytes:
    return header(3, 4) + struct.pack(">i", 1) + text("t") + b"\x00"


def list_offsets_request() -> bytes:
    return header(2, 1) + struct.pack(">ii", -1, 1) + text("t") + struct.pack(">iiq", 1, 0, -1)


def offset_commit_request() -> bytes:
    body = text("g") + struct.pack(">i", -1) + text("") + struct.pack(">q", -1) + struct.pack(">i", 1) + text("t")
    return header(8, 2) + body + struct.pack(">iiq", 1, 0, 0) + text("")


VALID = [produce_request(), fetch_request(), metadata_request(), list_offsets_request(), offset_commit_request()]


def mutated(chance: random.Random) -> bytes:
    """A request with some bytes changed, cut short, or with something behind it."""
    payload = bytearray(chance.choice(VALID))
    for _ in range(chance.randint(1, 4)):
        match chance.randrange(4):
            case 0:
                payload[chance.randrange(len(payload))] = chance.randrange(256)
            case 1:
                del payload[chance.randrange(len(payload)) :]
                payload = payload or bytearray(b"\0")
            case 2:
                payload += chance.randbytes(chance.randrange(20))
            case _:
                position = chance.randrange(len(payload))
                payload[position : position + 4] = chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)])
    return framed(bytes(payload))


def random_request(chance: random.Random) -> bytes:
    """Any API in any version, with noise for a body."""
    return framed(header(chance.randrange(95), chance.randrange(20)) + chance.randbytes(chance.randrange(200)))


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 400))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"socket.request.max.bytes": 1 << 20}) as running:
        running.log.append("t", "k", "v")
        yield running


def converse(broker: Broker, data: bytes, *, byte_by_byte: bool = False) -> bytes:
    """Sends, says that nothing more will come, and takes what comes back until the broker closes."""
    received = b""
    with socket.create_connection((broker.host, broker.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for part in [data[index : index + 1] for index in range(len(data))] if byte_by_byte else [data]:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except TimeoutError:
            raise
        except OSError:
            pass  # the broker may close at any moment
    return received


def assert_alive(broker: Broker) -> None:
    answer = converse_once(broker, framed(struct.pack(">hhih", 18, 0, 77, -1)))
    assert struct.unpack_from(">i", answer)[0] == 77


def converse_once(broker: Broker, data: bytes) -> bytes:
    with socket.create_connection((broker.host, broker.port), timeout=60) as connection:
        connection.sendall(data)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)


@pytest.mark.parametrize("payload", VALID)
def test_what_is_mutated_here_is_answered_when_it_is_whole(broker: Broker, payload: bytes) -> None:
    assert struct.unpack_from(">i", converse_once(broker, framed(payload)))[0] == 1


@pytest.mark.parametrize("kind", [mutated, random_request, noise], ids=lambda kind: kind.__name__)
def test_hostile_bytes_never_break_the_broker(
    broker: Broker, kind: Callable[[random.Random], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(20)
    caplog.set_level(logging.WARNING)
    for seed in range(SEEDS):
        data = b"".join(kind(chance) for _ in range(chance.randint(1, 3)))
        converse(broker, data, byte_by_byte=seed % 10 == 0)
    assert_alive(broker)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("claim", [(1 << 20) + 1, 2**31 - 1, -1, -(2**31)])
def test_a_size_that_is_not_allowed_costs_no_memory(broker: Broker, claim: int) -> None:
    assert converse(broker, struct.pack(">i", claim) + bytes(1000)) == b""
    assert_alive(broker)


def test_hostile_connections_leave_nothing_behind(broker: Broker) -> None:
    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    chance = random.Random(3)
    for _ in range(30):
        converse(broker, mutated(chance))
    before = objects()
    for _ in range(200):
        converse(broker, mutated(chance))
    eventually(lambda: objects() - before < 500, what="an end of what connections held")
