"""Readers of structs: one function for each struct in each version, as `codec` describes."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from struct import Struct as Layout
from typing import Any

from cordwood.wire.errors import BadRequest
from cordwood.wire.primitives import (
    INT16,
    INT32,
    MAX_TAGS,
    Frame,
    check_elements,
    cut_short,
    present,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_topic_id,
    read_uvarint,
    too_many_tags,
)
from cordwood.wire.schema import Entity, Field, Struct
from cordwood.wire.source import FIXED, Source, is_fixed, layout_of, plain_fields, tagged_fields_of

Read = Callable[[Frame, int], tuple[Any, int]]


class Elements:
    """How many array elements the message at hand has had so far, and how many it may have."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit

    def add(self, count: int) -> None:
        self.count += count
        if self.count > self.limit:
            check_elements(self.count, self.limit)


def _null() -> BadRequest:
    return BadRequest("A string is null where it must not be.")


def _negative() -> BadRequest:
    return BadRequest("A field has a negative length.")


class ReaderMaker:
    """Makes readers, each with the least number of bytes that a value takes: an array's count is checked against it
    before anything is made."""

    def __init__(self, version: int, flexible: bool, elements: Elements) -> None:
        self._version = version
        self._flexible = flexible
        self._elements = elements

    def struct_reader(self, struct: Struct) -> tuple[Read, int]:
        source = Source(
            "frame, position",
            {
                "new": object.__new__,
                "entity_type": struct.entity,
                "cut_short": cut_short,
                "null": _null,
                "negative": _negative,
                "int16": INT16.unpack_from,
                "int32": INT32.unpack_from,
                "read_uvarint": read_uvarint,
            },
        )
        source.line("entity = new(entity_type)")
        source.line("values = entity.__dict__")
        least = 0
        for fixed, run in groupby(plain_fields(struct, self._version), is_fixed):
            if fixed:
                least += self._read_fixed(source, list(run))
            else:
                least += sum(self._read_field(source, field) for field in run)
        if self._flexible:
            self._read_tags(source, struct)
        source.line("return entity, position")
        return source.function(struct.entity.__name__), least + self._flexible

    def _read_fixed(self, source: Source, fields: list[Field]) -> int:
        layout = layout_of(fields)
        targets = "".join(f"values[{field.name!r}], " for field in fields)
        source.line(f"{targets}= {source.name(layout.unpack_from)}(frame, position)")
        source.line(f"position += {layout.size}")
        return layout.size

    def _read_field(self, source: Source, field: Field) -> int:
        """Lines that read one field; the least that it takes."""
        nullable = self._version in field.nullable
        if field.type in ("string", "bytes", "records") and not field.is_array:
            return self._read_text(source, field, nullable)
        read, least = self._field_reader(field, nullable)
        source.line(f"values[{field.name!r}], position = {source.name(read)}(frame, position)")
        return least

    def _read_text(self, source: Source, field: Field, nullable: bool) -> int:
        """A string, or bytes, which are the same but for the size of their length."""
        is_text = field.type == "string"
        if self._flexible:
            source.line("length = frame[position]")
            source.line("position += 1")
            source.line("if length > 0x7F:")
            source.line("length, position = read_uvarint(frame, position - 1)", 1)
            source.line("length -= 1")
        else:
            source.line(f"(length,) = {'int16' if is_text else 'int32'}(frame, position)")
            source.line(f"position += {2 if is_text else 4}")
        source.line("if length < 0:")
        source.line("if length < -1:", 1)
        source.line("raise negative()", 2)
        source.line(f"values[{field.name!r}] = None" if nullable else "raise null()", 1)
        source.line("else:")
        source.line("end = position + length", 1)
        source.line("if end > len(frame):", 1)
        source.line("raise cut_short()", 2)
        value = 'str(frame[position:end], "utf-8")' if is_text else "bytes(frame[position:end])"
        source.line(f"values[{field.name!r}] = {value}", 1)
        source.line("position = end", 1)
        if self._flexible:
            return 1
        return 2 if is_text else 4

    def _read_tags(self, source: Source, struct: Struct) -> None:
        tags = {
            field.tag: (field.name, self._field_reader(field, self._version in field.nullable)[0])
            for field in tagged_fields_of(struct, self._version)
        }
        source.line("if frame[position]:")
        source.line(f"position = {source.name(_read_tags)}(frame, position, {source.name(tags)}, values)", 1)
        source.line("else:")
        source.line("position += 1", 1)

    def _field_reader(self, field: Field, nullable: bool) -> tuple[Read, int]:
        if field.is_array:
            return self._array_reader(field, nullable), 1 if self._flexible else 4
        read, least = self._value_reader(field)
        if field.struct is not None:
            return (partial(_read_nullable_struct, read), 1) if nullable else (read, least)
        if nullable or field.type in FIXED or field.type == "uuid":
            return read, least
        return partial(_read_present, read), least

    def _value_reader(self, field: Field) -> tuple[Read, int]:
        """One value, or one element of an array."""
        if field.struct is not None:
            return self.struct_reader(field.struct)
        if field.type in FIXED:
            layout = layout_of([field])
            return partial(_read_fixed, layout), layout.size
        if field.type == "uuid":
            return _read_id, 16
        if field.type == "string":
            return (read_compact_string, 1) if self._flexible else (read_string, 2)
        assert field.type in ("bytes", "records"), field
        return (_read_compact_bytes, 1) if self._flexible else (_read_bytes, 4)

    def _array_reader(self, field: Field, nullable: bool) -> Read:
        read_element, least = self._value_reader(field)
        if field.type == "string":
            read_element = partial(_read_present, read_element)
        fixed = FIXED.get(field.type)
        read_count = read_compact_array_count if self._flexible else read_array_count
        elements = self._elements

        def read_array(frame: Frame, position: int) -> tuple[list[Any] | None, int]:
            count, position = read_count(frame, position, max(least, 1))
            if count < 0:
                if not nullable:
                    raise BadRequest(f"{field.name} is null.")
                return None, position
            elements.add(count)
            if fixed is not None:
                layout = Layout(f">{count}{fixed}")
                return list(layout.unpack_from(frame, position)), position + layout.size
            found = []
            for _ in range(count):
                element, position = read_element(frame, position)
                found.append(element)
            return found, position

        return read_array


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


def _read_nullable_struct(read: Read, frame: Frame, position: int) -> tuple[Entity | None, int]:
    # A signed byte: negative for null.
    if frame[position] > 0x7F:
        return None, position + 1
    return read(frame, position + 1)


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
            raise _negative()
        return None, position
    end = position + length
    if end > len(frame):
        raise cut_short()
    return bytes(frame[position:end]), end
