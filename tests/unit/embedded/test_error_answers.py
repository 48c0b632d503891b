"""An error answer to any request of any version can be read, has the code, and names the rows of the request."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.embedded.error_answers import named_partitions, names_topics, refusal
from cordwood.model.errors import ErrorCode
from cordwood.node.apis import SERVED
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.schema import Entity, Field, Struct, load
from cordwood.wire.requests import RequestHeader, decode_request, encode_response

CODE = ErrorCode.NOT_ENOUGH_REPLICAS
TOPIC_ID = uuid.UUID(int=7)


def example(struct: Struct, version: int) -> dict[str, Any]:
    """A request that has everything: one element in each array."""
    return {field.name: value_of(field, version) for field in struct.fields if version in field.versions}


def value_of(field: Field, version: int) -> Any:
    one: Any
    if field.struct is not None:
        one = example(field.struct, version)
    else:
        one = {"string": f"a {field.name}", "uuid": TOPIC_ID, "bytes": b"", "records": b"", "bool": False}.get(
            field.type, 1
        )
    return [one] if field.is_array else one


def codes_in(value: Any) -> Iterator[int]:
    for name, inner in vars(value).items():
        if name in ("error_code", "partition_error_code"):
            yield inner
        elif isinstance(inner, list | tuple):
            for row in inner:
                if isinstance(row, Entity):
                    yield from codes_in(row)


def answered(api_key: int, version: int, code: int) -> tuple[Any, Any]:
    """A full request, and the answer that refuses it, as a client reads it."""
    message = load(APIS[api_key].name)
    parts: list[bytes] = []
    writer(message["request"], version)(example(message["request"].body, version), parts.append)
    body = b"".join(parts)
    header = RequestHeader(api_key, version, 7, None, 0)
    request = decode_request(header, memoryview(body))
    frame = encode_response(header, refusal(api_key, request, code))
    has_tags = flexible(api_key, version) and api_key != ApiKey.API_VERSIONS
    response, end = reader(message["response"], version)(memoryview(frame), 9 if has_tags else 8)
    assert end == len(frame)
    return request, response


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(key, version, id=f"{api.name} v{version}")
        for key, api in sorted(SERVED.items())
        for version in range(api.min_version, api.max_version + 1)
    ],
)
def test_every_request_can_be_refused(api_key: int, version: int) -> None:
    _, response = answered(api_key, version, CODE)
    only_inside = api_key in (ApiKey.FETCH, ApiKey.METADATA) and "error_code" in vars(response)
    found = list(codes_in(response))
    if only_inside:
        assert response.error_code == 0
        found.remove(0)
    assert set(found) == {CODE}


@pytest.mark.parametrize(("version", "field"), [(9, "name"), (13, "topic_id")])
def test_a_refused_produce_names_topic_and_partition(version: int, field: str) -> None:
    request, response = answered(ApiKey.PRODUCE, version, CODE)
    [topic], [asked] = response.responses, request.topic_data
    assert getattr(topic, field) == getattr(asked, field) not in (None, "")
    [partition] = topic.partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (1, CODE, -1)


def test_an_error_of_a_fetch_session_stands_on_top() -> None:
    _, response = answered(ApiKey.FETCH, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not response.responses


@pytest.mark.parametrize("api_key", [key for key in sorted(SERVED) if names_topics(key)])
def test_the_topics_of_a_request_are_found(api_key: int) -> None:
    version = SERVED[api_key].max_version
    request, _ = answered(api_key, version, CODE)
    found = set(named_partitions(request, lambda topic_id: "by id" if topic_id == TOPIC_ID else None))
    assert found
    assert all(
        topic in ("a name", "a topic", "a topics", "by id", "a topic_name", "a topic_names") for topic, _ in found
    )
    assert all(partition in (None, 1) for _, partition in found)
