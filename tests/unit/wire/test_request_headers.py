"""Request and response headers, and the frames of messages that follow their schemas."""

import subprocess
import sys

import pytest

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.asking import request_start
from cordwood.wire.encoding.bad_messages import BadRequest, FrameTooLarge
from cordwood.wire.encoding.primitives import tagged_fields
from cordwood.wire.requests import (
    IMAGE_REVISION_TAG,
    SENDER_TAG,
    RequestHeader,
    Sender,
    decode_request,
    encode_response,
    parse_header,
)


def header_bytes(key: int, version: int, client_id: bytes | None = b"me") -> bytes:
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id
    return key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x2a" + name


def test_an_old_header_ends_after_the_client_id() -> None:
    frame = header_bytes(3, 8) + b"body"
    assert parse_header(frame) == RequestHeader(3, 8, 42, "me", 12)


def test_a_flexible_header_has_tags_which_are_skipped() -> None:
    frame = header_bytes(3, 9, None) + b"\x01\x05\x02hi" + b"body"
    header = parse_header(memoryview(frame))
    assert header == RequestHeader(3, 9, 42, None, 15)
    assert frame[header.body_start :] == b"body"


@pytest.mark.parametrize("revision", [1, 127, 128, 2**32, 2**62])
def test_a_broker_tells_in_the_header_which_metadata_it_knows(revision: int) -> None:
    start = request_start(ApiKey.WRITE_TXN_MARKERS, 1, 42, b"me", 4, revision)
    header = parse_header(memoryview(start + b"body")[4:])
    assert header == RequestHeader(ApiKey.WRITE_TXN_MARKERS, 1, 42, "me", len(start) - 4, revision)


def test_a_header_without_tags_tells_no_revision() -> None:
    start = request_start(ApiKey.SASL_HANDSHAKE, 1, 42, b"me", 4, 77)
    assert parse_header(start[4:] + b"body").image_revision == 0


def test_a_broker_tells_in_the_header_who_it_is_and_the_key_that_proves_it() -> None:
    sender = Sender(7, 2**63 - 1)
    for revision in (0, 2**40):
        start = request_start(ApiKey.WRITE_TXN_MARKERS, 1, 42, b"me", 4, revision, sender)
        header = parse_header(memoryview(start + b"body")[4:])
        assert (header.sender, header.image_revision, header.body_start) == (sender, revision, len(start) - 4)


@pytest.mark.parametrize("size", [0, 4, 11, 13])
def test_a_sender_of_another_size_is_refused(size: int) -> None:
    frame = header_bytes(3, 9) + tagged_fields([(SENDER_TAG, bytes(size))]) + b"body"
    with pytest.raises(BadRequest):
        parse_header(memoryview(frame))


@pytest.mark.parametrize("value", [b"", b"\x80", b"\xff" * 10], ids=["empty", "cut short", "too long"])
def test_a_revision_that_cannot_be_read_is_refused(value: bytes) -> None:
    frame = header_bytes(3, 9) + tagged_fields([(IMAGE_REVISION_TAG, value)]) + b"body"
    with pytest.raises(BadRequest):
        parse_header(memoryview(frame))


def test_a_version_that_nobody_knows_yet_still_has_a_header() -> None:
    assert parse_header(header_bytes(18, 90) + b"\x00").api_version == 90
    assert parse_header(header_bytes(18, -1)).api_version == -1


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x00",
        header_bytes(3, 9),
        header_bytes(3, 9) + b"\x01\x05\x7f",
        header_bytes(4, 0),
        header_bytes(999, 0),
        header_bytes(3, 0)[:-1],
        header_bytes(3, 0, b"\xff\xfe"),
        header_bytes(3, 0)[:8] + b"\xff\xfe",
    ],
    ids=[
        "empty",
        "cut in the first fields",
        "no tags",
        "a tag beyond the end",
        "removed API",
        "no such API",
        "cut in the client id",
        "a client id that is not UTF-8",
        "a negative length",
    ],
)
def test_a_header_that_cannot_be_read_is_a_bad_request(frame: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_header(memoryview(frame))


def test_a_bad_request_is_the_peers_fault() -> None:
    assert issubclass(FrameTooLarge, BadRequest)
    assert issubclass(BadRequest, ProtocolError)
    assert BadRequest("why").code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (3, b"\x00\x00\x00\x0a\x00\x00\x00\x07\x00\x00\x00\x00\x00\x19"),
        (4, b"\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x19\x00"),
    ],
)
def test_responses_begin_with_their_size_and_number_and_have_tags_in_flexible_versions(
    version: int, frame: bytes
) -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, version, 7, None, 0)
    assert encode_response(header, {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}) == frame


def test_fields_of_other_versions_have_their_defaults() -> None:
    frame = header_bytes(ApiKey.FIND_COORDINATOR, 0, None) + b"\x00\x05group"
    request = decode_request(parse_header(frame), memoryview(bytearray(frame)))
    assert request.key == "group"
    assert request.key_type == 0
    assert request.coordinator_keys == ()
    with pytest.raises(AttributeError):
        request.coordinator_kyes  # noqa: B018 - a name that no version has


def test_one_answer_serves_every_version() -> None:
    values = {
        "error_code": ErrorCode.NONE,
        "node_id": 1,
        "host": "here",
        "port": 9092,
        "coordinators": [{"key": "group", "node_id": 1, "host": "here", "port": 9092}],
    }
    oldest = encode_response(RequestHeader(ApiKey.FIND_COORDINATOR, 0, 7, None, 0), values)
    newest = encode_response(RequestHeader(ApiKey.FIND_COORDINATOR, 6, 7, None, 0), values)
    place = bytes.fromhex("00000001 0004") + b"here" + bytes.fromhex("00002384")
    assert oldest == bytes.fromhex("00000014 00000007 0000") + place
    compact_place = b"\x06group" + bytes.fromhex("00000001 05") + b"here" + bytes.fromhex("00002384")
    assert newest[4:] == bytes.fromhex("00000007 00 00000000 02") + compact_place + bytes.fromhex("0000 01 00 00")


@pytest.mark.parametrize(
    ("values", "message"),
    [({"node": 1}, "no such field"), ({"host": None}, "cannot be null")],
    ids=["a name that no version has", "null where there is none"],
)
def test_an_answer_that_cannot_be_written_is_our_own_fault(values: dict[str, object], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        encode_response(RequestHeader(ApiKey.FIND_COORDINATOR, 0, 7, None, 0), values)


def test_a_version_without_a_codec_is_refused() -> None:
    for key, version in ((ApiKey.CREATE_TOPICS, 1), (ApiKey.CREATE_TOPICS, 8), (ApiKey.PRODUCE, 2)):
        with pytest.raises(BadRequest, match="no codec"):
            decode_request(RequestHeader(key, version, 7, None, 0), b"")


def test_the_table_of_apis_is_consistent() -> None:
    assert [api.key for api in APIS.values()] == sorted(APIS)
    assert {key.value for key in ApiKey} == set(APIS)
    for api in APIS.values():
        assert ApiKey(api.key).name.replace("_", "").lower() == api.name.lower()
        assert flexible(api.key, api.max_version) == (api.max_version >= api.flexible_from)
        assert api.listed_min <= api.min_version <= api.max_version
    assert APIS[ApiKey.PRODUCE].listed_min == 0
    assert APIS[ApiKey.INIT_PRODUCER_ID].max_version == 5


def test_a_handler_may_serve_less_than_the_codec_knows() -> None:
    narrowed = APIS[ApiKey.FETCH].narrowed(7, 12)
    assert [version for version in range(20) if narrowed.serves(version)] == [7, 8, 9, 10, 11, 12]
    with pytest.raises(AssertionError):
        APIS[ApiKey.FETCH].narrowed(3, 12)


def test_nothing_in_wire_imports_kio() -> None:
    """kio would cost every broker 27 MB, and its loop a stall of 100 ms or more."""
    program = (
        "import sys, pkgutil, importlib, cordwood.wire as wire\n"
        "for module in pkgutil.iter_modules(wire.__path__): importlib.import_module(f'cordwood.wire.{module.name}')\n"
        "sys.exit(any(name.split('.')[0] == 'kio' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"oops", "The header of a request of 4 bytes cannot be read."),
        (header_bytes(3, 9), "The header of a request of 12 bytes cannot be read."),
        (header_bytes(3, 8, b"\xff"), "The client id is not UTF-8."),
    ],
)
def test_a_header_that_cannot_be_read_is_refused_in_words_about_the_request(frame: bytes, said: str) -> None:
    with pytest.raises(BadRequest, match=f"^{said}$"):
        parse_header(memoryview(frame))
