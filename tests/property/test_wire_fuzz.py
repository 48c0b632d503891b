"""For any bytes, a decoder returns a value or raises BadRequest, and nothing else, at once."""

import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from tests.property.kio_entities import ALL_VERSIONS, entity_type, random_entity, request_frame
from tests.seeds import SOAKING
from tests.traced_memory import traced

from cordwood.wire.api_versions import decode_api_versions
from cordwood.wire.apis import APIS, flexible
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.fetch import decode_fetch
from cordwood.wire.metadata import decode_metadata
from cordwood.wire.produce import decode_produce
from cordwood.wire.requests import RequestHeader, decode_request, parse_header
from cordwood.wire.widths import MAX_ELEMENTS

Decode = Callable[[RequestHeader, memoryview], Any]

BY_HAND: dict[int, Decode] = {0: decode_produce, 1: decode_fetch, 3: decode_metadata, 18: decode_api_versions}

DECODERS: list[tuple[int, int, Decode]] = [
    *(
        (key, version, decode_request)
        for key, version in ALL_VERSIONS
        if key in MAX_ELEMENTS and APIS[key].serves(version)
    ),
    *((key, version, BY_HAND[key]) for key, version in ALL_VERSIONS if key in BY_HAND),
    (18, 5, decode_api_versions),
]


CASES = {
    api: [case for case in DECODERS if (case[0], case[2]) == api]
    for api in dict.fromkeys((key, decode) for key, _, decode in DECODERS)
}
BY_API = [pytest.param(cases, id=f"{APIS[key].name}-{decode.__name__}") for (key, decode), cases in CASES.items()]


def frame_of(random: Random, key: int, version: int) -> bytes:
    """A request as a client could have sent it."""
    newest_in_kio = min(version, 4) if key == 18 else version
    frame = request_frame(random_entity(random, entity_type(key, newest_in_kio, "request")))
    if key == 18 and version == 5:
        # The additions of version 5 precede the tags: a cluster id, here null, and a node id.
        frame = frame[:2] + b"\x00\x05" + frame[4:-1] + b"\x00\xff\xff\xff\xff" + frame[-1:]
    return frame


def attempt(decode: Decode, frame: bytes) -> bool:
    """Decodes a frame. Returns True if it could be read. Any exception but BadRequest gets through to pytest."""
    view = memoryview(bytearray(frame))
    try:
        decode(parse_header(view), view)
    except BadRequest:
        return False
    return True


def mutations(random: Random, frame: bytes, start: int) -> Iterator[bytes]:
    """The frame with something wrong in its body: bits, lengths, bytes too many or too few."""
    if start == len(frame):
        return
    for _ in range(6):
        place = random.randrange(start, len(frame))
        yield frame[:place] + bytes((frame[place] ^ 1 << random.randrange(8),)) + frame[place + 1 :]
        yield (
            frame[:place]
            + random.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"))
            + frame[place + 4 :]
        )
        yield frame[:place] + random.randbytes(3) + frame[place:]
        yield frame[:place] + frame[place + random.randrange(1, 5) :]


@pytest.mark.parametrize("cases", BY_API)
def test_mutated_requests_are_read_or_refused(cases: list[tuple[int, int, Decode]]) -> None:
    for key, version, decode in cases:
        random = Random(f"{key} {version}")
        frame = frame_of(random, key, version)
        start = parse_header(frame).body_start
        for mutated in mutations(random, frame, start):
            attempt(decode, mutated)


@pytest.mark.parametrize("cases", BY_API)
def test_requests_that_end_early_or_late_are_refused(cases: list[tuple[int, int, Decode]]) -> None:
    for key, version, decode in cases:
        random = Random(f"{key} {version}")
        frame = frame_of(random, key, version)
        start = parse_header(frame).body_start
        assert attempt(decode, frame)
        lengths = range(start, len(frame))
        for length in random.sample(lengths, min(len(lengths), 25)):
            assert not attempt(decode, frame[:length])
        assert not attempt(decode, frame + b"\x01")


@pytest.mark.parametrize("cases", BY_API)
def test_random_bodies_are_read_or_refused(cases: list[tuple[int, int, Decode]]) -> None:
    for key, version, decode in cases:
        random = Random(f"{key} {version} body")
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\xff\xff"
        header += b"\x00" if flexible(key, version) else b""
        for _ in range(8):
            attempt(decode, header + random.randbytes(random.choice((0, 3, 30, 300))))
            # Small bytes make short lengths, which lead further into a message.
            attempt(decode, header + bytes(random.choice((0, 0, 1, 2, 3)) for _ in range(60)))


def test_random_headers_are_read_or_refused() -> None:
    random = Random(20)
    for _ in range(3000):
        frame = random.randbytes(random.randrange(0, 24))
        if random.random() < 0.7:
            frame = b"\x00" + bytes((random.randrange(100),)) + b"\x00" + bytes((random.randrange(20),)) + frame
        try:
            header = parse_header(memoryview(frame))
        except BadRequest:
            continue
        assert 10 <= header.body_start <= len(frame)


def test_a_count_of_two_billion_is_refused_before_anything_is_made_of_it() -> None:
    traced(check_counts)


def check_counts() -> None:
    """Puts a large count at each byte of the bodies in turn, and measures the memory that it takes."""
    oldest_and_newest = [case for cases in CASES.values() for case in dict.fromkeys((cases[0], cases[-1]))]
    for key, version, decode in DECODERS if SOAKING else oldest_and_newest:
        frame = frame_of(Random(f"{key} {version}"), key, version)[:400]
        start = parse_header(frame).body_start
        count = b"\x80\xa8\xd6\xb9\x07" if flexible(key, version) else b"\x77\x35\x94\x00"
        attempt(decode, frame)  # codecs are made when they are first needed, and that takes memory, too
        for place in range(start, min(len(frame), start + 30)):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            attempt(decode, frame[:place] + count + frame[place:])
            assert tracemalloc.get_traced_memory()[1] - before < 200_000, (key, version, place)
