"""The client's side of the wire: writes requests and reads responses.

`requests.py` is the broker's side of the same frames. Messages follow the schemas in `messages/`; `produce_request.py`
and `fetch_response.py` have hand-written codecs of hot messages. A response that cannot be read raises `BadResponse`
and nothing else: the connection is useless then.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final

from cordwood.wire.api_types import Response
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    Frame,
    skip_tagged_fields,
    tagged_fields,
    uvarint,
)
from cordwood.wire.requests import IMAGE_REVISION_TAG, SENDER_TAG, Sender

if TYPE_CHECKING:
    from cordwood.wire.api_types import KeyOf
    from cordwood.wire.encoding.codec import Read, Write
    from cordwood.wire.encoding.schema import Message

_SIZE_AND_HEADER: Final = Struct(">ihhih")


class BadResponse(Exception):
    """The bytes are not the response that they should be."""


def request_start(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: bytes,
    body_size: int,
    image_revision: int = 0,
    sender: Sender | None = None,
) -> bytes:
    """Size prefix and header of a request with a body of this size. A broker adds `image_revision`, the revision of the
    metadata that it knows, and `sender`, itself."""
    tags = header_tags(image_revision, sender) if flexible(api_key, api_version) else b""
    size = _SIZE_AND_HEADER.size - 4 + len(client_id) + len(tags) + body_size
    return _SIZE_AND_HEADER.pack(size, api_key, api_version, correlation_id, len(client_id)) + client_id + tags


def header_tags(image_revision: int, sender: Sender | None = None) -> bytes:
    """The tags of a request's header."""
    tags = [(IMAGE_REVISION_TAG, uvarint(image_revision))] if image_revision else []
    if sender is not None:
        tags.append((SENDER_TAG, sender.encoded()))
    return tagged_fields(tags) if tags else NO_TAGS


def encode_request(api_key: int, api_version: int, values: Mapping[str, Any]) -> bytes:
    """The body of a request made of these values. Missing fields get their defaults, and fields that this version does
    not have are left out; a name that no version has is our own mistake and fails. Raises ValueError if a value does
    not fit: a number beyond its bits, another type in place of a text."""
    parts: list[bytes] = []
    try:
        _request_writer(api_key, api_version)(values, parts.append)
    except (StructError, UnicodeEncodeError) as reason:
        raise ValueError(f"{APIS[api_key].name} has no room for a value: {reason}") from reason
    return b"".join(parts)


def correlation_id_of(frame: Frame) -> int:
    """The correlation id of a response frame without its size prefix."""
    try:
        (correlation_id,) = INT32.unpack_from(frame, 0)
    except MALFORMED:
        raise BadResponse(f"a response of {len(frame)} bytes has no correlation id") from None
    return int(correlation_id)


def response_body_start(api_key: int, api_version: int, frame: Frame) -> int:
    """The position of the body. ApiVersions has no tags in its header, so that every client can read it."""
    if api_key == ApiKey.API_VERSIONS or not flexible(api_key, api_version):
        return 4
    try:
        return skip_tagged_fields(frame, 4)
    except (*MALFORMED, BadRequest) as reason:
        raise unreadable(api_key, api_version, reason) from None


def decode_response(api_key: KeyOf[Response], api_version: int, frame: Frame) -> Response:
    """The response as an entity with the fields in `messages/` as attributes, also those of later versions, with their
    defaults. Nothing in it refers to the frame."""
    return _decoded(_response_reader(api_key, api_version), api_key, api_version, frame)


def decode_response_in_place(api_key: KeyOf[Response], api_version: int, frame: memoryview) -> Response:
    """Like `decode_response`, with records that are parts of the frame."""
    return _decoded(_response_reader(api_key, api_version, in_place=True), api_key, api_version, frame)


def _decoded(read: Read, api_key: KeyOf[Response], api_version: int, frame: Frame) -> Response:
    start = response_body_start(api_key, api_version, frame)
    try:
        entity, end = read(frame, start)
    except (*MALFORMED, BadRequest) as reason:
        raise unreadable(api_key, api_version, reason) from None
    if end != len(frame):
        raise unreadable(api_key, api_version, f"{len(frame) - end} bytes follow it that are not part of it")
    return entity  # type: ignore[no-any-return]


def unreadable(api_key: int, api_version: int, reason: object) -> BadResponse:
    return BadResponse(f"the response to {APIS[api_key].name} v{api_version} cannot be read: {reason}")


@cache
def _messages(api_key: int) -> dict[str, Message]:
    from cordwood.wire.encoding.schema import load

    return load(APIS[api_key].name)


@cache
def _request_writer(api_key: int, api_version: int) -> Write:
    from cordwood.wire.encoding.codec import writer

    return writer(_messages(api_key)["request"], api_version)


@cache
def _response_reader(api_key: int, api_version: int, *, in_place: bool = False) -> Read:
    from cordwood.wire.encoding.codec import reader

    return reader(_messages(api_key)["response"], api_version, in_place=in_place)
