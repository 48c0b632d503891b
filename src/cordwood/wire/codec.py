"""Readers and writers of one version of a message, made from its schema when they are first needed.

A reader takes a frame and a position and gives the value and the next position; it may raise what
`primitives.MALFORMED` lists. A writer takes a value and appends its bytes. Values are what attributes of an `Entity`
hold: ints, str, bytes, lists, and None for null and for the zero id. A struct is written from a mapping or an entity;
what it does not have gets its default, and what the version does not have is left out, so that one answer serves every
version.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from struct import Struct as Layout
from typing import Any, Final

from cordwood.wire.errors import BadRequest
from cordwood.wire.primitives import (
    INT32,
    MAX_ELEMENTS,
    MAX_TAGS,
    Frame,
    array_count,
    check_elements,
    compact_array_count,
    compact_string,
    cut_short,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_topic_id,
    read_uvarint,
    string,
    tagged_fields,
    too_many_tags,
    topic_id_bytes,
    uvarint,
)
from cordwood.wire.schema import Entity, Field, Message, Struct

Read = Callable[[Frame, int], tuple[Any, int]]
Append = Callable[[bytes], None]
Write = Callable[[Any, Append], None]
Values = Mapping[str, Any] | Entity

_FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def reader(message: Message, version: int, max_elements: int = MAX_ELEMENTS) -> Read:
    """A reader that takes messages of at most so many array elements in all."""
    assert version in message.versions, (message.versions, version)
    elements = _Elements(max_elements)
    read_body, _ = _struct_reader(message.body, version, version >= message.flexible_from, elements)

    def read_message(frame: Frame, position: int) -> tuple[Any, int]:
        elements.count = 0
        return read_body(frame, position)

    return read_message


class _Elements:
    """How many array elements the message at hand has had so far, and how many it may have."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit


def writer(message: Message, version: int) -> Write:
    assert version in message.versions, (message.versions, version)
    return _struct_writer(message.body, version, version >= message.flexible_from)


def _is_fixed(field: Field) -> bool:
    return field.type in _FIXED and not field.is_array


def _plain_fields(struct: Struct, version: int) -> list[Field]:
    return [field for field in struct.fields if version in field.versions and field.tag is None]


def _tagged_fields(struct: Struct, version: int) -> list[Field]:
    tagged = [field for field in struct.fields if version in field.versions and field.tag is not None]
    return sorted(tagged, key=lambda field: field.tag or 0)


# Reading. Every maker gives the reader and the least number of bytes that a value takes: an array's count is checked
# against it before anything is made.


def _struct_reader(struct: Struct, version: int, flexible: bool, elements: _Elements) -> tuple[Read, int]:
    steps: list[tuple[tuple[str, ...], Layout | None, Read | None]] = []
    least = 0
    for fixed, run in groupby(_plain_fields(struct, version), _is_fixed):
        if fixed:
            fields = list(run)
            layout = Layout(">" + "".join(_FIXED[field.type] for field in fields))
            steps.append((tuple(field.name for field in fields), layout, None))
            least += layout.size
        else:
            for field in run:
                read, size = _field_reader(field, version, flexible, elements)
                steps.append(((field.name,), None, read))
                least += size
    tags = {
        field.tag: (field.name, _field_reader(field, version, flexible, elements)[0])
        for field in _tagged_fields(struct, version)
    }
    entity_type = struct.entity

    def read_struct(frame: Frame, position: int) -> tuple[Entity, int]:
        entity = entity_type()
        values = entity.__dict__
        for names, layout, read in steps:
            if layout is not None:
                values.update(zip(names, layout.unpack_from(frame, position), strict=True))
                position += layout.size
            elif read is not None:
                values[names[0]], position = read(frame, position)
        if flexible:
            position = _read_tags(frame, position, tags, values)
        return entity, position

    return read_struct, least + flexible


def _read_tags(frame: Frame, position: int, tags: Mapping[int | None, tuple[str, Read]], values: dict[str, Any]) -> int:
    count, position = read_uvarint(frame, position)
    if count > MAX_TAGS:
        raise too_many_tags()
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        end = position + size
        if end > len(frame):
            raise cut_short()
        if tag in tags:
            name, read = tags[tag]
            values[name], position = read(frame, position)
            if position != end:
                raise BadRequest(f"The tagged field {name} does not fill its tag.")
        position = end
    return position


def _field_reader(field: Field, version: int, flexible: bool, elements: _Elements) -> tuple[Read, int]:
    nullable = version in field.nullable
    if field.is_array:
        return _array_reader(field, version, flexible, nullable, elements), 1 if flexible else 4
    read, least = _value_reader(field, version, flexible, elements)
    if field.struct is not None:
        return (_nullable_struct_reader(read), 1) if nullable else (read, least)
    if nullable or field.type in _FIXED or field.type == "uuid":
        return read, least
    return partial(_read_present, read), least


def _value_reader(field: Field, version: int, flexible: bool, elements: _Elements) -> tuple[Read, int]:
    """One value, or one element of an array."""
    if field.struct is not None:
        return _struct_reader(field.struct, version, flexible, elements)
    if field.type in _FIXED:
        layout = Layout(">" + _FIXED[field.type])
        return partial(_read_fixed, layout), layout.size
    if field.type == "string":
        return (read_compact_string, 1) if flexible else (read_string, 2)
    if field.type == "uuid":
        return _read_id, 16
    assert field.type in ("bytes", "records"), field
    return (_read_compact_bytes, 1) if flexible else (_read_bytes, 4)


def _array_reader(field: Field, version: int, flexible: bool, nullable: bool, elements: _Elements) -> Read:
    read_element, least = _value_reader(field, version, flexible, elements)
    if field.type == "string":
        read_element = partial(_read_present, read_element)
    read_count = read_compact_array_count if flexible else read_array_count

    def read_array(frame: Frame, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_count(frame, position, max(least, 1))
        if count < 0:
            if not nullable:
                raise BadRequest(f"{field.name} is null.")
            return None, position
        elements.count += count
        check_elements(elements.count, elements.limit)
        found = []
        for _ in range(count):
            element, position = read_element(frame, position)
            found.append(element)
        return found, position

    return read_array


def _nullable_struct_reader(read: Read) -> Read:
    def read_nullable(frame: Frame, position: int) -> tuple[Entity | None, int]:
        # A signed byte: negative for null.
        if frame[position] > 0x7F:
            return None, position + 1
        return read(frame, position + 1)

    return read_nullable


def _read_present(read: Read, frame: Frame, position: int) -> tuple[Any, int]:
    value, position = read(frame, position)
    return present(value), position


def _read_fixed(layout: Layout, frame: Frame, position: int) -> tuple[Any, int]:
    return layout.unpack_from(frame, position)[0], position + layout.size


def _read_id(frame: Frame, position: int) -> tuple[Any, int]:
    found, position = read_topic_id(frame, position)
    return (found if found.int else None), position


def _read_bytes(frame: Frame, position: int) -> tuple[bytes | None, int]:
    (length,) = INT32.unpack_from(frame, position)
    return _take(frame, position + 4, length)


def _read_compact_bytes(frame: Frame, position: int) -> tuple[bytes | None, int]:
    length, position = read_uvarint(frame, position)
    return _take(frame, position, length - 1)


def _take(frame: Frame, position: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        if length < -1:
            raise BadRequest("A field has a negative length.")
        return None, position
    end = position + length
    if end > len(frame):
        raise cut_short()
    return bytes(frame[position:end]), end


# Writing.


def _struct_writer(struct: Struct, version: int, flexible: bool) -> Write:
    steps: list[tuple[list[tuple[str, Any]], Layout | None, Write | None]] = []
    for fixed, run in groupby(_plain_fields(struct, version), _is_fixed):
        if fixed:
            fields = list(run)
            layout = Layout(">" + "".join(_FIXED[field.type] for field in fields))
            steps.append(([(field.name, field.default) for field in fields], layout, None))
        else:
            steps += [([(field.name, field.default)], None, _field_writer(field, version, flexible)) for field in run]
    tags = [_tag_writer(field, version, flexible) for field in _tagged_fields(struct, version)]
    known = frozenset(field.name for field in struct.fields)

    def write_struct(values: Values, append: Append) -> None:
        given = values.__dict__ if isinstance(values, Entity) else values
        assert known.issuperset(given), f"no such field: {set(given) - known}"
        for fields, layout, write in steps:
            if layout is not None:
                append(layout.pack(*[given.get(name, default) for name, default in fields]))
            elif write is not None:
                name, default = fields[0]
                write(given.get(name, default), append)
        if flexible:
            append(tagged_fields([tag for encode in tags if (tag := encode(given)) is not None]))

    return write_struct


def _tag_writer(field: Field, version: int, flexible: bool) -> Callable[[Mapping[str, Any]], tuple[int, bytes] | None]:
    write = _field_writer(field, version, flexible)
    name, default, tag = field.name, field.default, field.tag
    assert tag is not None

    def encoded(value: Any) -> bytes:
        parts: list[bytes] = []
        write(value, parts.append)
        return b"".join(parts)

    # Null is the default wherever a tagged field may be null, and the way to say that an id is not there.
    absent = None if default is None and field.type != "uuid" else encoded(default)

    def encode_tag(values: Mapping[str, Any]) -> tuple[int, bytes] | None:
        value = values.get(name, default)
        if value is None and absent is None:
            return None
        content = encoded(value)
        return None if content == absent else (tag, content)

    return encode_tag


def _field_writer(field: Field, version: int, flexible: bool) -> Write:
    nullable = version in field.nullable
    if field.is_array:
        return _array_writer(field, version, flexible, nullable)
    write = _value_writer(field, version, flexible)
    if field.struct is not None:
        return _nullable_struct_writer(write) if nullable else write
    if nullable or field.type in _FIXED or field.type == "uuid":
        return write

    def write_present(value: Any, append: Append) -> None:
        assert value is not None, f"{field.name} cannot be null in version {version}"
        write(value, append)

    return write_present


def _value_writer(field: Field, version: int, flexible: bool) -> Write:
    if field.struct is not None:
        return _struct_writer(field.struct, version, flexible)
    if field.type in _FIXED:
        return partial(_write_with, Layout(">" + _FIXED[field.type]).pack)
    if field.type == "string":
        return partial(_write_with, compact_string if flexible else string)
    if field.type == "uuid":
        return partial(_write_with, topic_id_bytes)
    return partial(_write_with, _compact_bytes if flexible else _bytes)


def _write_with(encode: Callable[[Any], bytes], value: Any, append: Append) -> None:
    append(encode(value))


def _array_writer(field: Field, version: int, flexible: bool, nullable: bool) -> Write:
    write_element = _value_writer(field, version, flexible)
    count = compact_array_count if flexible else array_count

    def write_array(elements: Sequence[Any] | None, append: Append) -> None:
        if elements is None:
            assert nullable, f"{field.name} cannot be null in version {version}"
            append(count(-1))
            return
        append(count(len(elements)))
        for element in elements:
            write_element(element, append)

    return write_array


def _nullable_struct_writer(write: Write) -> Write:
    def write_nullable(value: Values | None, append: Append) -> None:
        if value is None:
            append(b"\xff")
        else:
            append(b"\x01")
            write(value, append)

    return write_nullable


def _bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value


def _compact_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value
