"""Request headers, and the requests and responses that have no codec of their own: these follow their schemas.

Schemas are read, and codecs made from them, when a request first needs them: a broker that only sees producers never
touches them.
"""

from collections.abc import Generator, Mapping
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.wire.apis import APIS, FLEXIBLE_FROM, ApiKey, flexible
from cordwood.wire.encoding.bad_messages import AnswerTooLarge, BadRequest
from cordwood.wire.encoding.primitives import (
    INT32_PAIR,
    MALFORMED,
    Elements,
    Frame,
    cut_short,
    not_understood,
    read_tagged_fields,
    read_uvarint64,
    trailing_bytes,
)
from cordwood.wire.widths import max_elements

if TYPE_CHECKING:
    from cordwood.wire.encoding.codec import ReadCounting, ReadInSteps, Write, WriteInSteps
    from cordwood.wire.encoding.schema import Message

_HEADER: Final = Struct(">hhih")
_SIZE_CORRELATION_NO_TAGS: Final = Struct(">iix")
_SENDER: Final = Struct(">iQ")

IMAGE_REVISION_TAG: Final = 10000
"""The tag of the sender's image revision in the header of a request between brokers. Kafka skips it."""
SENDER_TAG: Final = 10001
"""The tag of the `Sender` in the header of a request between brokers."""

MAX_ANSWER_BYTES: Final = 100 * 1024 * 1024
"""The largest response: librdkafka takes no larger one (receive.message.max.bytes)."""


class Sender(NamedTuple):
    """The broker that sent a request, by its own claim. The key of its registration proves it."""

    broker_id: int
    key: int

    def encoded(self) -> bytes:
        return _SENDER.pack(*self)

    def __repr__(self) -> str:
        # A key must not get into a log.
        return f"Sender({self.broker_id})"


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int
    """The position of the body in the frame."""
    image_revision: int = 0
    """The revision of the metadata that the sender knew, if the sender is a broker that tells it."""
    sender: Sender | None = None
    """The broker that claims to have sent the request."""


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
        image_revision, sender = 0, None
        if api_version >= FLEXIBLE_FROM[api_key]:
            if frame[position]:
                image_revision, sender, position = _read_tags(frame, position)
            else:
                position += 1
    except UnicodeDecodeError:
        raise BadRequest("The client id is not UTF-8.") from None
    except MALFORMED:
        raise BadRequest(f"The header of a request of {len(frame)} bytes cannot be read.") from None
    except KeyError:
        raise BadRequest(f"There is no API with key {api_key}.") from None
    # RequestHeader() with one call less: this runs for every request.
    return tuple.__new__(
        RequestHeader, (api_key, api_version, correlation_id, client_id, position, image_revision, sender)
    )


def _read_tags(frame: Frame, position: int) -> tuple[int, Sender | None, int]:
    """The image revision of the sender, 0 if it tells none; the sender; and the position after the tags."""
    places, position = read_tagged_fields(frame, position)
    image_revision, sender = 0, None
    if (place := places.get(IMAGE_REVISION_TAG)) is not None:
        image_revision = read_uvarint64(frame[: place[1]], place[0])[0]
    if (place := places.get(SENDER_TAG)) is not None:
        sender = Sender(*_SENDER.unpack(frame[place[0] : place[1]]))
    return image_revision, sender, position


def decode_request(header: RequestHeader, frame: Frame) -> Any:
    """The request as an entity with the fields in `messages/` as attributes, also those of later versions, with their
    defaults. Nothing in it refers to the frame."""
    key, version = header.api_key, header.api_version
    read, elements = _request_reader(key, version)
    elements.count = 0
    try:
        entity, end = read(frame, header.body_start, elements)
    except MALFORMED as reason:
        raise not_understood(APIS[key].name, version, reason) from None
    if end != len(frame) and not _is_extra_of_librdkafka(key, frame, end):
        raise trailing_bytes(APIS[key].name, version, len(frame) - end)
    return entity


def decode_in_steps(header: RequestHeader, frame: Frame) -> Generator[None, None, Any]:
    """Like `decode_request`, with pauses. The frame must stay until the first pause."""
    key, version = header.api_key, header.api_version
    size = len(frame)
    has_extra = _is_extra_of_librdkafka(key, frame, size - 1)
    read = _request_reader_in_steps(key, version)
    try:
        entity, end = yield from read(frame, header.body_start, Elements(max_elements(key)))
    except MALFORMED as reason:
        raise not_understood(APIS[key].name, version, reason) from None
    if end != size and not (has_extra and end == size - 1):
        raise trailing_bytes(APIS[key].name, version, size - end)
    return entity


def _is_extra_of_librdkafka(key: int, frame: Frame, end: int) -> bool:
    """True if one zero byte is left after an AlterUserScramCredentials: librdkafka (seen in 2.16) ends the request with
    two sets of tagged fields. Apache Kafka reads no byte beyond a request."""
    return key == ApiKey.ALTER_USER_SCRAM_CREDENTIALS and end == len(frame) - 1 and frame[end] == 0


def encode_response(header: RequestHeader, values: Mapping[str, Any]) -> bytes:
    """The whole frame of a response, as `begin_response` makes it."""
    frame = begin_response(header, values)
    if isinstance(frame, bytes):
        return frame
    while True:
        try:
            next(frame)
        except StopIteration as end:
            return b"".join(end.value)


def begin_response(header: RequestHeader, values: Mapping[str, Any]) -> bytes | Generator[int, None, list[bytes]]:
    """The frame, with its size, of the response made of these values: mappings for structs, sequences for arrays. For a
    wide response the first step is taken, and a generator takes the others and returns the parts of the frame. The
    generator yields the number of bytes so far.

    One set of values serves every version: missing fields get their defaults, and fields that the request's version
    does not have are left out. A name that no version has is our own mistake and fails. `AnswerTooLarge` is raised as
    soon as there are too many bytes, not at the end.
    """
    write, write_in_steps, start = _response_writers(header.api_key, header.api_version)
    parts: list[bytes] = []
    if write is not None:
        write(values, parts.append)
    else:
        writing = write_in_steps(values, parts.append)
        for _ in writing:
            return _continued(header, start, writing, parts)
    body = b"".join(parts)
    if len(body) > MAX_ANSWER_BYTES:
        raise _too_large()
    return start.pack(start.size - 4 + len(body), header.correlation_id) + body


def _continued(
    header: RequestHeader, start: Struct, writing: Generator[None, None, None], parts: list[bytes]
) -> Generator[int, None, list[bytes]]:
    """Takes the other steps of writing a response. `parts` has the bytes of the first."""
    written = [b"".join(parts)]
    size = len(written[0])
    parts.clear()
    for _ in writing:
        written.append(b"".join(parts))
        parts.clear()
        size += len(written[-1])
        if size > MAX_ANSWER_BYTES:
            raise _too_large()
        yield size
    written.append(b"".join(parts))
    size += len(written[-1])
    if size > MAX_ANSWER_BYTES:
        raise _too_large()
    written[0] = start.pack(start.size - 4 + size, header.correlation_id) + written[0]
    return written


def _too_large() -> AnswerTooLarge:
    return AnswerTooLarge(f"its answer would have more than {MAX_ANSWER_BYTES} bytes: ask for less at a time")


@cache
def _messages(api_key: int) -> "dict[str, Message]":
    from cordwood.wire.encoding.schema import load

    return load(APIS[api_key].name)


@cache
def _request_reader(api_key: int, api_version: int) -> "tuple[ReadCounting, Elements]":
    """A reader for requests in one go, and its counter, which is reused for every request."""
    from cordwood.wire.encoding.codec import counting_reader

    return counting_reader(_request_message(api_key, api_version), api_version), Elements(max_elements(api_key))


@cache
def _request_reader_in_steps(api_key: int, api_version: int) -> "ReadInSteps":
    from cordwood.wire.encoding.codec import reader_in_steps

    return reader_in_steps(_request_message(api_key, api_version), api_version)


def _request_message(api_key: int, api_version: int) -> "Message":
    api = APIS.get(api_key)
    if api is None or not api.serves(api_version):
        raise BadRequest(f"There is no codec for version {api_version} of the API with key {api_key}.")
    return _messages(api_key)["request"]


@cache
def _response_writers(api_key: int, api_version: int) -> "tuple[Write | None, WriteInSteps, Struct]":
    """The writers of the body, in one go if it has no arrays and in steps, and the layout of the header before it."""
    from cordwood.wire.encoding.codec import has_arrays, writer, writer_in_steps

    message = _messages(api_key)["response"]
    has_tags = flexible(api_key, api_version) and api_key != ApiKey.API_VERSIONS
    start = _SIZE_CORRELATION_NO_TAGS if has_tags else INT32_PAIR
    in_one_go = None if has_arrays(message, api_version) else writer(message, api_version)
    return in_one_go, writer_in_steps(message, api_version), start
