"""The protocol's building blocks: strings, lengths, ids and tagged fields, in their old and their compact form.

A reader takes the frame and a position and returns the value and the next position. Readers may raise any of
`MALFORMED`; each decoder turns these into `BadRequest` at its one boundary. Slices of a memoryview do not fail at its
end, so every length is checked here before it is used.
"""

import struct
import uuid
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId
from cordwood.wire.encoding.bad_messages import BadRequest, TextTooLong, TooManyElements

MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError)
"""The exceptions of a read beyond the end, and of text that is not UTF-8."""

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
INT32_PAIR: Final = Struct(">ii")

NO_TAGS: Final = b"\x00"

Frame = memoryview | bytes
"""A request without its size prefix. A memoryview makes records views into it instead of copies."""

MAX_ELEMENTS: Final = 250_000
"""The most elements of an array. `widths` bounds the elements of a whole request."""

MAX_TAGS: Final = 32
"""The most tagged fields of a struct. Kafka has at most four."""

LONGEST_STRING: Final = 32_767
"""The most bytes of a string. The old form has no room for more, and Kafka refuses more in the compact form, too: a
text of megabytes would be looked at, quoted, stored and kept in caches as a name."""

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def cut_short() -> BadRequest:
    return BadRequest("The request ends in the middle of a field.")


def too_long() -> BadRequest:
    return BadRequest(f"A string has more than {LONGEST_STRING} bytes.")


def too_many_tags() -> BadRequest:
    return BadRequest(f"A struct has more than {MAX_TAGS} tagged fields.")


def not_understood(what: str, version: int, reason: Exception) -> BadRequest:
    why = "a text in it is not UTF-8" if isinstance(reason, UnicodeDecodeError) else "it ends in the middle of a field"
    return BadRequest(f"{what} v{version} cannot be read: {why}.")


def trailing_bytes(what: str, version: int, count: int) -> BadRequest:
    return BadRequest(f"{what} v{version} is followed by {count} bytes that are not part of it.")


def check_elements(count: int, limit: int) -> None:
    """Refuses too many elements. Decoders of nested arrays call this with the sum so far."""
    if count > limit:
        raise TooManyElements(f"A request of this API has at most {limit} elements, this one has {count} or more.")


class Elements:
    """The number of array elements of a message so far, and its limit."""

    __slots__ = ("count", "limit")

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit

    def check(self) -> None:
        check_elements(self.count, self.limit)


def read_uvarint(frame: Frame, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    value = frame[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise BadRequest("A varint has more than 32 bits.")


def read_uvarint64(frame: Frame, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 63 bits."""
    value = 0
    for shift in range(0, 63, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BadRequest("A varint has more than 63 bits.")


def read_string(frame: Frame, position: int) -> tuple[str | None, int]:
    (length,) = INT16.unpack_from(frame, position)
    position += 2
    if length < 0:
        if length < -1:
            raise BadRequest("A string has a negative length.")
        return None, position
    end = position + length
    if end > len(frame):
        raise cut_short()
    return str(frame[position:end], "utf-8"), end


def read_compact_string(frame: Frame, position: int) -> tuple[str | None, int]:
    length = frame[position]
    position += 1
    if length > 0x7F:
        length, position = read_uvarint(frame, position - 1)
        if length - 1 > LONGEST_STRING:
            raise too_long()
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(frame):
        raise cut_short()
    return str(frame[position:end], "utf-8"), end


def present(text: str | None) -> str:
    """A string for a field without null."""
    if text is None:
        raise BadRequest("A string is null where it must not be.")
    return text


def read_array_count(frame: Frame, position: int, element_size: int) -> tuple[int, int]:
    """The number of elements that follow, checked against the available bytes; -1 for a null array."""
    (count,) = INT32.unpack_from(frame, position)
    position += 4
    if count * element_size > len(frame) - position:
        raise BadRequest(f"An array of {count} elements does not fit into the request.")
    if not -1 <= count <= MAX_ELEMENTS:
        raise BadRequest(f"An array has {count} elements.")
    return count, position


def read_compact_array_count(frame: Frame, position: int, element_size: int) -> tuple[int, int]:
    """Like `read_array_count`, for the compact form."""
    count, position = read_uvarint(frame, position)
    count -= 1
    if count * element_size > len(frame) - position:
        raise BadRequest(f"An array of {count} elements does not fit into the request.")
    if count > MAX_ELEMENTS:
        raise BadRequest(f"An array has {count} elements.")
    return count, position


@lru_cache(maxsize=4096)
def topic_id_from(raw: bytes) -> TopicId:
    """The id of these 16 bytes, cached: making a UUID costs more than all the rest of a small request."""
    return uuid.UUID(bytes=raw)


def read_topic_id(frame: Frame, position: int) -> tuple[TopicId, int]:
    end = position + 16
    if end > len(frame):
        raise cut_short()
    return topic_id_from(bytes(frame[position:end])), end


def skip_tagged_fields(frame: Frame, position: int) -> int:
    """The position after a tag buffer. A peer may send tags that this release does not know."""
    count = frame[position]
    position += 1
    if count == 0:
        return position
    if count > MAX_TAGS:
        raise too_many_tags()
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise cut_short()
    return position


def read_tagged_fields(frame: Frame, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """The place of each tagged field, as tag -> (start, end), and the position after the tag buffer."""
    count, position = read_uvarint(frame, position)
    if count > MAX_TAGS:
        raise too_many_tags()
    found: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        end = position + size
        if end > len(frame):
            raise cut_short()
        found[tag] = (position, end)
        position = end
    return found, position


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def cannot_be_sent(size: int) -> TextTooLong:
    return TextTooLong(f"a message has no room for a text of {size} bytes: a string has at most {LONGEST_STRING}")


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > LONGEST_STRING:
        raise cannot_be_sent(len(encoded))
    return INT16.pack(len(encoded)) + encoded


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    encoded = text.encode()
    if len(encoded) > LONGEST_STRING:
        raise cannot_be_sent(len(encoded))
    return uvarint(len(encoded) + 1) + encoded


def array_count(count: int) -> bytes:
    return INT32.pack(count)


def compact_array_count(count: int) -> bytes:
    return uvarint(count + 1)


def tagged_fields(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """A tag buffer of these (tag, encoded value) pairs, which come in the order of their tags."""
    parts = [uvarint(len(fields))]
    for tag, encoded in fields:
        parts += (uvarint(tag), uvarint(len(encoded)), encoded)
    return b"".join(parts)


def topic_id_bytes(topic_id: TopicId | None) -> bytes:
    return (topic_id or ZERO_TOPIC_ID).bytes
