"""The first contact: every client, whatever its age, learns our versions."""

import pytest

from cordwood.model.errors import ErrorCode
from cordwood.wire.api_versions import (
    ApiVersionsRequest,
    FinalizedFeature,
    SupportedFeature,
    decode_api_versions,
    encode_api_versions_response,
    encode_unsupported_version,
)
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.requests import parse_header

HERE = ("cluster", 3)


def test_a_request_of_an_unknown_version_learns_which_versions_to_try() -> None:
    assert encode_unsupported_version(9) == bytes.fromhex(
        "00000010"  # size
        "00000009"  # correlation id
        "0023"  # UNSUPPORTED_VERSION
        "00000001"  # one API:
        "0012 0000 0005"  # ApiVersions, 0 to 5
    )


def test_produce_is_listed_from_version_0_although_it_is_served_from_3() -> None:
    frame = encode_api_versions_response(0, 9, [APIS[ApiKey.FETCH], APIS[ApiKey.PRODUCE]])
    assert frame[8:] == bytes.fromhex("0000 00000002 0000 0000 000d 0001 0004 0012")


def test_features_with_minimum_0_are_hidden_from_clients_that_fail_on_them() -> None:
    features = [SupportedFeature("group.version", 0, 1), SupportedFeature("metadata.version", 7, 30)]
    asked_by_old, asked_by_new = (
        encode_api_versions_response(version, 9, [], supported_features=features) for version in (3, 4)
    )
    assert b"group.version" not in asked_by_old
    assert b"metadata.version" in asked_by_old
    assert b"group.version" in asked_by_new
    assert b"metadata.version" in asked_by_new


def test_finalized_features_are_always_listed() -> None:
    frame = encode_api_versions_response(
        3, 9, [], finalized_features=[FinalizedFeature("group.version", 1, 1)], finalized_features_epoch=4
    )
    assert frame[8:] == (
        bytes.fromhex("0000 01 00000000 02")  # no error, no APIs, no throttling, two tags:
        + bytes.fromhex("01 08 0000000000000004")
        + bytes.fromhex("02 14 02 0e")
        + b"group.version"
        + bytes.fromhex("0001 0001 00")
    )


def test_version_5_says_whom_the_client_means_to_reach() -> None:
    frame = bytes.fromhex("0012 0005 00000001 ffff 00") + b"\x05java\x044.4\x08cluster\x00\x00\x00\x03\x00"
    request = decode_api_versions(parse_header(frame), frame)
    assert request == ApiVersionsRequest("java", "4.4", "cluster", 3)


@pytest.mark.parametrize(
    ("version", "request_", "expected"),
    [
        (0, ApiVersionsRequest(), ErrorCode.NONE),
        (3, ApiVersionsRequest("librdkafka", "2.15.0"), ErrorCode.NONE),
        (3, ApiVersionsRequest("a", "1"), ErrorCode.NONE),
        (3, ApiVersionsRequest("", "1"), ErrorCode.INVALID_REQUEST),
        (3, ApiVersionsRequest("kafka client", "1"), ErrorCode.INVALID_REQUEST),
        (3, ApiVersionsRequest("client", "1-"), ErrorCode.INVALID_REQUEST),
        (3, ApiVersionsRequest("client\n", "1"), ErrorCode.INVALID_REQUEST),
        (5, ApiVersionsRequest("java", "4.4"), ErrorCode.NONE),
        (5, ApiVersionsRequest("java", "4.4", *HERE), ErrorCode.NONE),
        (5, ApiVersionsRequest("java", "4.4", "cluster", -1), ErrorCode.INVALID_REQUEST),
        (5, ApiVersionsRequest("java", "4.4", None, 3), ErrorCode.INVALID_REQUEST),
        (5, ApiVersionsRequest("java", "4.4", "cluster", 4), ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, ApiVersionsRequest("java", "4.4", "another", 3), ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_requests_are_judged_as_kafka_does(version: int, request_: ApiVersionsRequest, expected: ErrorCode) -> None:
    assert request_.error_code(version, *HERE) is expected
