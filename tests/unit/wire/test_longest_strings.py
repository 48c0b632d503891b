"""A string has at most 32,767 bytes, also in its compact form: Kafka refuses longer ones, too."""

import pytest

from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest, TextTooLong
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.primitives import LONGEST_STRING, compact_string, read_compact_string, string, uvarint
from cordwood.wire.encoding.schema import load
from cordwood.wire.requests import decode_request, parse_header


def compact(size: int) -> bytes:
    return uvarint(size + 1) + b"x" * size


def test_a_compact_string_of_32768_bytes_is_refused_and_one_less_is_read() -> None:
    assert read_compact_string(compact(LONGEST_STRING), 0)[0] == "x" * LONGEST_STRING
    with pytest.raises(BadRequest, match="more than 32767 bytes"):
        read_compact_string(compact(LONGEST_STRING + 1), 0)


@pytest.mark.parametrize("size", [LONGEST_STRING + 1, 32_000_000])
def test_a_request_with_a_longer_string_is_refused(size: int) -> None:
    key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
    head = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff\0"
    frame = head + b"\2\2" + compact(1) + b"\2" + compact(size) + b"\0\2v\0\0\0\0"
    with pytest.raises(BadRequest, match="more than 32767 bytes"):
        decode_request(parse_header(frame), frame)


@pytest.mark.parametrize("version", [3, 4], ids=["old form", "compact form"])
def test_an_answer_with_a_longer_string_is_not_written(version: int) -> None:
    message = load(APIS[ApiKey.DESCRIBE_CONFIGS].name)["response"]
    result = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "n" * LONGEST_STRING, "value": "ä" * 9}]}
    parts: list[bytes] = []
    writer(message, version)({"results": [result]}, parts.append)
    assert reader(message, version)(b"".join(parts), 0)[0].results[0].configs[0].value == "ä" * 9
    result["configs"] = [{"name": "n", "value": "ä" * (LONGEST_STRING // 2 + 1)}]
    with pytest.raises(TextTooLong, match="32768 bytes"):
        writer(message, version)({"results": [result]}, parts.append)


@pytest.mark.parametrize("encode", [string, compact_string])
def test_neither_form_writes_a_longer_string(encode: object) -> None:
    assert callable(encode)
    assert encode("x" * LONGEST_STRING)
    with pytest.raises(TextTooLong):
        encode("x" * (LONGEST_STRING + 1))
