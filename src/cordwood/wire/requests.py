"""Request headers, and the requests and responses that have no codec of their own: these go through kio.

kio costs a process 80 to 350 ms and 27 MB when it is first imported, and some milliseconds for each version of a
message, so nothing of it is touched before a request needs it.
"""

from functools import cache
from importlib import import_module
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.errors import BadRequest
from cordwood.wire.primitives import (
    INT32_PAIR,
    MALFORMED,
    Frame,
    cut_short,
    not_understood,
    skip_tagged_fields,
    trailing_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER: Final = Struct(">hhih")
_SIZE_CORRELATION_TAGS: Final = Struct(">iiB")


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
        if flexible(api_key, api_version):
            position = skip_tagged_fields(frame, position)
    except MALFORMED as reason:
        raise BadRequest(f"The request header cannot be read: {reason}") from None
    except KeyError:
        raise BadRequest(f"There is no API with key {api_key}.") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_start(api_key: int, api_version: int, correlation_id: int, body_size: int) -> bytes:
    """Size prefix and header of a response with a body of this size."""
    if flexible(api_key, api_version) and api_key != ApiKey.API_VERSIONS:
        return _SIZE_CORRELATION_TAGS.pack(body_size + 5, correlation_id, 0)
    return INT32_PAIR.pack(body_size + 4, correlation_id)


def decode_request(header: RequestHeader, frame: Frame) -> Any:
    """The request as kio's entity of exactly this version. The frame is copied: kio refuses writable buffers."""
    body = bytes(frame[header.body_start :])
    read = _reader(header.api_key, header.api_version)
    try:
        entity, size = read(body, 0)
    except Exception as reason:
        raise not_understood(APIS[header.api_key].name, header.api_version, reason) from None
    if size != len(body):
        raise trailing_bytes(APIS[header.api_key].name, header.api_version, len(body) - size)
    return entity


def encode_response(header: RequestHeader, entity: Any) -> bytes:
    """The whole frame, with its size, of kio's response entity of the request's version."""
    assert entity.__api_key__ == header.api_key, entity
    assert entity.__version__ == header.api_version, entity
    body = BytesIO()
    entity_type: type = type(entity)
    _writer(entity_type)(body, entity)
    encoded = body.getvalue()
    return response_start(header.api_key, header.api_version, header.correlation_id, len(encoded)) + encoded


def response_module(api_key: int, api_version: int) -> Any:
    """kio's module with the response class of this version and the classes nested in it."""
    return _module(api_key, api_version, "response")


def request_module(api_key: int, api_version: int) -> Any:
    """kio's module with the request class of this version and the classes nested in it."""
    return _module(api_key, api_version, "request")


@cache
def _module(api_key: int, api_version: int, kind: str) -> Any:
    name = ApiKey(api_key).name.lower()
    return import_module(f"kio.schema.{name}.v{api_version}.{kind}")


@cache
def _reader(api_key: int, api_version: int) -> "Callable[[bytes, int], tuple[Any, int]]":
    api = APIS.get(api_key)
    if api is None or not api.serves(api_version):
        raise BadRequest(f"There is no codec for version {api_version} of the API with key {api_key}.")
    from kio.serial import entity_reader

    reader: Callable[[bytes, int], tuple[Any, int]] = entity_reader(
        getattr(request_module(api_key, api_version), f"{api.name}Request")
    )
    return reader


@cache
def _writer(entity_type: type) -> "Callable[[BytesIO, Any], None]":
    from kio.serial import entity_writer

    writer: Callable[[BytesIO, Any], None] = entity_writer(entity_type)
    return writer
