"""Frames that no client would send: each is answered or its connection closed, and the broker lives on, no larger."""

import os
import struct
from random import Random

import pytest
from benchmarks.java_tools import advertised_apis
from tests.fuzz.conftest import MAX_GROWTH_BYTES, ROUNDS, SEED, Target
from tests.fuzz.mutations import mutated
from tests.fuzz.raw_connection import PROBE, Outcome, RawConnection, framed
from tests.property.kio_entities import ALL_VERSIONS, entity_type, random_entity, request_frame

READ_ONLY = {3, 18, 32, 60}
"""Metadata, ApiVersions, DescribeConfigs, DescribeCluster: the same question has the same answer."""


def send_each(target: Target, frames: list[bytes]) -> dict[Outcome, int]:
    """Sends the frames on as few connections as possible; how many ended in which way."""
    counts = dict.fromkeys(Outcome, 0)
    connection = RawConnection(target.bootstrap)
    for frame in frames:
        outcome = connection.outcome_of(frame)
        counts[outcome] += 1
        if outcome is not Outcome.ANSWERED:
            connection.close()
            assert target.process.alive, f"the broker died of {frame.hex()}:\n{target.process.output()[-8000:]}"
            connection = RawConnection(target.bootstrap)
    connection.close()
    return counts


def assert_did_not_grow(target: Target, before_bytes: int) -> None:
    grown = target.process.rss_bytes() - before_bytes
    assert grown < MAX_GROWTH_BYTES, f"the broker grew by {grown >> 20} MiB"


def test_mutated_frames_of_real_clients(target: Target, real_frames: list[bytes]) -> None:
    random = Random(SEED)
    target.assert_serves()
    before = target.process.rss_bytes()
    frames = [mutated(random.choice(real_frames), random) for _ in range(2000 * ROUNDS)]
    counts = send_each(target, frames)
    assert counts[Outcome.ANSWERED] > 0
    assert counts[Outcome.CLOSED] > 0
    target.assert_serves()
    assert_did_not_grow(target, before)


def test_every_api_and_version_with_random_fields(target: Target) -> None:
    random = Random(SEED)
    served = advertised_apis(target.bootstrap)
    target.assert_serves()
    before = target.process.rss_bytes()
    frames = [
        request_frame(random_entity(random, entity_type(key, version, "request")))
        for key, version in ALL_VERSIONS
        if key in served
        for _ in range(4 * ROUNDS)
    ]
    send_each(target, frames)
    target.assert_serves()
    assert_did_not_grow(target, before)


def test_apis_that_are_not_served_are_refused(target: Target) -> None:
    served = advertised_apis(target.bootstrap)
    random = Random(SEED)
    for key, version in ALL_VERSIONS:
        if key in served:
            continue
        with RawConnection(target.bootstrap) as connection:
            frame = request_frame(random_entity(random, entity_type(key, version, "request")))
            assert connection.outcome_of(frame) is Outcome.CLOSED, f"API {key} v{version}"


def test_random_frames(target: Target) -> None:
    random = Random(SEED)
    send_each(target, [random.randbytes(random.choice([0, 1, 2, 7, 8, 9, 50, 1000])) for _ in range(500 * ROUNDS)])
    target.assert_serves()


def test_random_streams(target: Target) -> None:
    """No frames at all: whatever the first bytes claim, the connection ends, or waits for more until we leave."""
    random = Random(SEED)
    for _ in range(200 * ROUNDS):
        with RawConnection(target.bootstrap) as connection:
            connection.send(random.randbytes(random.randint(1, 3000)))
    target.assert_serves()


def test_another_protocol(target: Target) -> None:
    hello = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    tls = bytes.fromhex("16030100d7010000d30303") + os.urandom(200)
    for data in (hello, tls):
        with RawConnection(target.bootstrap) as connection:
            connection.send(data)
            assert connection.is_closed()
    target.assert_serves()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (1 << 20) + 1, 0, 1, 7])
def test_a_size_that_cannot_be(target: Target, size: int) -> None:
    with RawConnection(target.bootstrap) as connection:
        connection.send(struct.pack(">i", size) + bytes(max(min(size, 100), 0)))
        assert connection.is_closed(), f"a connection that announced {size} bytes stays open"


def test_byte_by_byte_is_the_same_as_whole(target: Target, real_frames: list[bytes]) -> None:
    for frame in real_frames:
        (key,) = struct.unpack_from(">h", frame)
        if key not in READ_ONLY:
            continue
        with RawConnection(target.bootstrap) as connection:
            whole = connection.ask(frame)
            for byte in framed(frame):
                connection.send(bytes([byte]))
            assert connection.receive_frame() == whole


def test_many_requests_in_one_packet_are_answered_in_order(target: Target) -> None:
    with RawConnection(target.bootstrap) as connection:
        numbers = list(range(1000))
        connection.send(b"".join(framed(struct.pack(">hhih", 18, 0, number, -1)) for number in numbers))
        answered = [connection.receive_frame() for _ in numbers]
    assert [struct.unpack_from(">i", answer or b"")[0] for answer in answered] == numbers


def test_frames_cut_anywhere_and_left(target: Target, real_frames: list[bytes]) -> None:
    """Clients that go away in the middle of a request, at every place of it."""
    random = Random(SEED)
    for _ in range(300 * ROUNDS):
        data = framed(random.choice(real_frames))
        with RawConnection(target.bootstrap) as connection:
            connection.send(data[: random.randrange(len(data))])
    with RawConnection(target.bootstrap) as connection:
        assert connection.ask(PROBE) is not None
    target.assert_serves()
