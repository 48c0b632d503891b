"""AlterUserScramCredentials as librdkafka sends it: with one byte too many."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import encode_request

from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.requests import decode_in_steps, decode_request, parse_header

DELETION = {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []}


@pytest.mark.parametrize("rest", [b"", b"\0"])
def test_a_second_empty_set_of_tagged_fields_is_skipped(rest: bytes) -> None:
    frame = bytes(encode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 1, DELETION)) + rest
    header = parse_header(frame)
    assert [each.name for each in decode_request(header, memoryview(frame)).deletions] == ["alice"]
    entities: list[Any] = []

    def read() -> Iterator[None]:
        entities.append((yield from decode_in_steps(header, memoryview(frame))))

    assert not any(read())
    assert [each.name for each in entities[0].deletions] == ["alice"]


@pytest.mark.parametrize("rest", [b"\1", b"\0\0"])
def test_other_bytes_behind_the_request_are_refused(rest: bytes) -> None:
    frame = bytes(encode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 1, DELETION)) + rest
    with pytest.raises(BadRequest, match="followed by"):
        decode_request(parse_header(frame), memoryview(frame))


def test_a_byte_behind_another_request_is_refused() -> None:
    frame = bytes(encode_request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 1, {"users": None})) + b"\0"
    with pytest.raises(BadRequest, match="followed by"):
        decode_request(parse_header(frame), memoryview(frame))
