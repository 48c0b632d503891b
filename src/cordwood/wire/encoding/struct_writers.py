"""Writers of messages: one function for each message in each version, as `codec` describes.

As in `struct_readers`, nested structs and arrays are written out in place, and a writer in steps is the same function
with a `yield` in its loops. An array is iterated once, after its length, so it may make its elements lazily.
"""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from itertools import groupby
from struct import pack
from typing import Any

from cordwood.wire.encoding.primitives import (
    INT32,
    compact_array_count,
    compact_string,
    string,
    tagged_fields,
    topic_id_bytes,
    uvarint,
)
from cordwood.wire.encoding.schema import Entity, Field, Struct
from cordwood.wire.encoding.source import FIXED, Source, is_fixed, layout_of, plain_fields, tagged_fields_of

Append = Callable[[bytes], None]
Write = Callable[[Any, Append], None]
WriteInSteps = Callable[[Any, Append], Generator[None, None, None]]
Values = Mapping[str, Any] | Entity
Encode = Callable[[Any], bytes]
EncodeTag = Callable[[Mapping[str, Any]], tuple[int, bytes] | None]


ELEMENTS_PER_STEP = 150
"""Elements in one step, at two to five microseconds each, including the time to make them."""

NUMBERS_PER_ELEMENT = 20
"""Numbers of an array that cost as much as an element of another kind."""


class WriterMaker:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = False

    def struct_writer(self, struct: Struct) -> Write:
        return self._message_writer(struct)  # type: ignore[no-any-return]

    def struct_writer_in_steps(self, struct: Struct) -> WriteInSteps:
        self._in_steps = True
        return self._message_writer(struct)  # type: ignore[no-any-return]

    def _message_writer(self, struct: Struct) -> Any:
        source = self._source()
        if self._in_steps:
            source.line(f"left = {ELEMENTS_PER_STEP}")
            # A function with a `yield` is a generator, whether or not its message has arrays.
            source.line("if False:")
            source.line("yield", 1)
        self._write_struct(source, struct, "value", 0)
        return self._function(source, struct.entity.__name__)

    def _field_writer(self, field: Field) -> Write:
        """The writer of a tagged field."""
        source = self._source()
        WriterMaker(self._version, self._flexible)._write_field(source, field, "value", 0)
        return self._function(source, field.name)  # type: ignore[no-any-return]

    def _source(self) -> Source:
        count = compact_array_count if self._flexible else INT32.pack
        return Source("value, append", {"array_count": count, "fields_of": _fields_of, "numbers": _numbers})

    def _function(self, source: Source, name: str) -> Any:
        return source.function(name)

    # Lines that write the value of an expression, at a depth of indentation

    def _write_struct(self, source: Source, struct: Struct, expression: str, depth: int) -> None:
        given, get = source.variable("given"), source.variable("get")
        known = source.name(frozenset(each.name for each in struct.fields))
        source.line(f"{given} = {expression}", depth)
        source.line(f"if type({given}) is not dict:", depth)
        source.line(f"{given} = fields_of({given})", depth + 1)
        source.line(f'assert {known}.issuperset({given}), f"no such field: {{set({given}) - {known}}}"', depth)
        source.line(f"{get} = {given}.get", depth)

        def value_of(field: Field) -> str:
            """The struct's value of this field, or the field's default."""
            return f"{get}({field.name!r}, {source.name(field.default)})"

        for fixed, run in groupby(plain_fields(struct, self._version), is_fixed):
            fields = list(run)
            if fixed:
                values = ", ".join(map(value_of, fields))
                source.line(f"append({source.name(layout_of(fields).pack)}({values}))", depth)
            else:
                for field in fields:
                    self._write_field(source, field, value_of(field), depth)
        if self._flexible:
            tags = [self._tag_encoder(field) for field in tagged_fields_of(struct, self._version)]
            encoded = f"{source.name(partial(_encode_tags, tags))}({given})" if tags else r'b"\x00"'
            source.line(f"append({encoded})", depth)

    def _write_field(self, source: Source, field: Field, expression: str, depth: int) -> None:
        nullable = self._version in field.nullable
        if not field.is_array and (field.struct is None or not nullable):
            self._write_value(source, field, nullable, expression, depth)
            return
        content = source.variable("content")
        source.line(f"{content} = {expression}", depth)
        if nullable:
            source.line(f"if {content} is None:", depth)
            source.line("append(array_count(-1))" if field.is_array else r'append(b"\xff")', depth + 1)
            source.line("else:", depth)
            depth += 1
        else:
            self._refuse_null(source, field, content, depth)
        if field.is_array:
            self._write_array(source, field, content, depth)
        else:
            assert field.struct is not None
            source.line(r'append(b"\x01")', depth)
            self._write_struct(source, field.struct, content, depth)

    def _write_array(self, source: Source, field: Field, elements: str, depth: int) -> None:
        source.line(f"append(array_count(len({elements})))", depth)
        if field.type in FIXED:
            source.line(f"append(numbers({elements}, {FIXED[field.type]!r}))", depth)
            if self._in_steps:
                source.line(f"left -= len({elements}) // {NUMBERS_PER_ELEMENT}", depth)
            return
        element = source.variable("element")
        source.line(f"for {element} in {elements}:", depth)
        self._write_value(source, field, False, element, depth + 1)
        if self._in_steps:
            source.line("left -= 1", depth + 1)
            source.line("if left <= 0:", depth + 1)
            source.line(f"left = {ELEMENTS_PER_STEP}", depth + 2)
            source.line("yield", depth + 2)

    def _write_value(self, source: Source, field: Field, nullable: bool, expression: str, depth: int) -> None:
        """Lines that write one value, or one element of an array."""
        if field.struct is not None:
            self._write_struct(source, field.struct, expression, depth)
            return
        if not nullable and field.type != "uuid":
            value = source.variable("value")
            source.line(f"{value} = {expression}", depth)
            self._refuse_null(source, field, value, depth)
            expression = value
        source.line(f"append({source.name(self._encoder(field))}({expression}))", depth)

    def _refuse_null(self, source: Source, field: Field, value: str, depth: int) -> None:
        source.line(f'assert {value} is not None, "{field.name} cannot be null in version {self._version}"', depth)

    def _encoder(self, field: Field) -> Encode:
        """The encoder of a value that is not a struct."""
        if field.type in FIXED:
            return layout_of([field]).pack
        if field.type == "string":
            return compact_string if self._flexible else string
        if field.type == "uuid":
            return topic_id_bytes
        return _compact_bytes if self._flexible else _bytes

    def _tag_encoder(self, field: Field) -> EncodeTag:
        write = self._field_writer(field)
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


def _fields_of(values: Values) -> Mapping[str, Any]:
    return values.__dict__ if isinstance(values, Entity) else values


def _encode_tags(tags: list[EncodeTag], values: Mapping[str, Any]) -> bytes:
    return tagged_fields([tag for encode in tags if (tag := encode(values)) is not None])


def _numbers(elements: Any, kind: str) -> bytes:
    return pack(f">{len(elements)}{kind}", *elements)


def _bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value


def _compact_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value
