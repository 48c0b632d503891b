"""Request headers, and the requests and responses that have no codec of their own: these follow their schemas.

Schemas are read, and codecs made from them, when a request first needs them: a broker that only sees producers never
touches them.
"""

from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.wire.apis import APIS, FLEXIBLE_FROM, ApiKey, flexible
from cordwood.wire.errors import AnswerTooLarge, BadRequest
from cordwood.wire.primitives import (
    INT32_PAIR,
    MALFORMED,
    MAX_ELEMENTS,
    Frame,
    cut_short,
    not_understood,
    skip_tagged_fields,
    trailing_bytes,
)

if TYPE_CHECKING:
    from cordwood.wire.codec import Read, Write
    from cordwood.wire.schema import Message

_HEADER: Final = Struct(">hhih")
_SIZE_CORRELATION_NO_TAGS: Final = Struct(">iix")

MAX_ANSWER_BYTES: Final = 1 << 30

MAX_CHANGED: Final = 20_000
"""Elements in all of a request that changes many things: each costs more than a record does, and all are looked at in
one turn."""

_CHANGE_MANY: Final = frozenset((ApiKey.ALTER_CONFIGS, ApiKey.DELETE_TOPICS, ApiKey.INCREMENTAL_ALTER_CONFIGS))


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int
    """Where in the frame the body begins."""


def parse_header(frame: Frame) -> RequestHeader:
    """The header of a request. The version is not checked, so that ApiVersions of a future version can be answered."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame, 0)
        if length >= 0:
            position = 10 + length
            if position > len(frame):
                raise cut_short()
            client_id = str(frame[10:position], "utf-8")
        elif length == -1:
            client_id, position = None, 10
        else:
            raise BadRequest("The client id has a negative length.")
        if api_version >= FLEXIBLE_FROM[api_key]:
            position = skip_tagged_fields(frame, position)
    except MALFORMED as reason:
        raise BadRequest(f"The request header cannot be read: {reason}") from None
    except KeyError:
        raise BadRequest(f"There is no API with key {api_key}.") from None
    # As RequestHeader() does it, with a call less: this is done for every request.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


def decode_request(header: RequestHeader, frame: Frame) -> Any:
    """The request as an entity whose attributes are the fields in `messages/`: those of later versions too, with their
    defaults. Nothing in it refers to the frame."""
    key, version = header.api_key, header.api_version
    read = _request_reader(key, version)
    try:
        entity, end = read(frame, header.body_start)
    except MALFORMED as reason:
        raise not_understood(APIS[key].name, version, reason) from None
    if end != len(frame):
        raise trailing_bytes(APIS[key].name, version, len(frame) - end)
    return entity


def encode_response(header: RequestHeader, values: Mapping[str, Any]) -> bytes:
    """The whole frame, with its size, of the response made of these values: mappings for structs, sequences for arrays.

    One set of values serves every version: what is missing gets its default, and what the request's version does not
    have is left out. A name that no version has is our own mistake and fails.
    """
    write, start = _response_writer(header.api_key, header.api_version)
    parts: list[bytes] = []
    write(values, parts.append)
    body = b"".join(parts)
    if len(body) > MAX_ANSWER_BYTES:
        raise AnswerTooLarge(f"its answer would have {len(body)} bytes: ask for less at a time")
    return start.pack(start.size - 4 + len(body), header.correlation_id) + body


@cache
def _messages(api_key: int) -> "dict[str, Message]":
    from cordwood.wire.schema import load

    return load(APIS[api_key].name)


@cache
def _request_reader(api_key: int, api_version: int) -> "Read":
    from cordwood.wire.codec import reader

    api = APIS.get(api_key)
    if api is None or not api.serves(api_version):
        raise BadRequest(f"There is no codec for version {api_version} of the API with key {api_key}.")
    limit = MAX_CHANGED if api_key in _CHANGE_MANY else MAX_ELEMENTS
    return reader(_messages(api_key)["request"], api_version, limit)


@cache
def _response_writer(api_key: int, api_version: int) -> "tuple[Write, Struct]":
    """What writes the body, and the layout of what stands before it."""
    from cordwood.wire.codec import writer

    has_tags = flexible(api_key, api_version) and api_key != ApiKey.API_VERSIONS
    start = _SIZE_CORRELATION_NO_TAGS if has_tags else INT32_PAIR
    return writer(_messages(api_key)["response"], api_version), start
