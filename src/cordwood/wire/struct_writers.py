"""Writers of structs: one function for each struct in each version, as `codec` describes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from struct import pack
from typing import Any

from cordwood.wire.primitives import (
    INT32,
    array_count,
    compact_array_count,
    compact_string,
    string,
    tagged_fields,
    topic_id_bytes,
    uvarint,
)
from cordwood.wire.schema import Entity, Field, Struct
from cordwood.wire.source import FIXED, Source, is_fixed, layout_of, plain_fields, tagged_fields_of

Append = Callable[[bytes], None]
Write = Callable[[Any, Append], None]
Values = Mapping[str, Any] | Entity
Encode = Callable[[Any], bytes]


class WriterMaker:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def struct_writer(self, struct: Struct) -> Write:
        source = Source("given, append", {"Entity": Entity, "known": frozenset(each.name for each in struct.fields)})
        source.line("if isinstance(given, Entity):")
        source.line("given = given.__dict__", 1)
        source.line('assert known.issuperset(given), f"no such field: {set(given) - known}"')
        source.line("get = given.get")
        for fixed, run in groupby(plain_fields(struct, self._version), is_fixed):
            if fixed:
                fields = list(run)
                values = ", ".join(_value(source, field) for field in fields)
                source.line(f"append({source.name(layout_of(fields).pack)}({values}))")
            else:
                for field in run:
                    self._write_field(source, field)
        if self._flexible:
            self._write_tags(source, struct)
        function: Write = source.function(struct.entity.__name__)
        return function

    def _write_field(self, source: Source, field: Field) -> None:
        nullable = self._version in field.nullable
        if field.is_array or field.struct is not None:
            source.line(f"{source.name(self._field_writer(field))}({_value(source, field)}, append)")
            return
        source.line(f"value = {_value(source, field)}")
        if not nullable and field.type != "uuid":
            source.line(f'assert value is not None, "{field.name} cannot be null in version {self._version}"')
        source.line(f"append({source.name(self._encoder(field))}(value))")

    def _write_tags(self, source: Source, struct: Struct) -> None:
        tags = [self._tag_encoder(field) for field in tagged_fields_of(struct, self._version)]
        if tags:
            source.line(f"append({source.name(partial(_encode_tags, tags))}(given))")
        else:
            source.line('append(b"\\x00")')

    def _tag_encoder(self, field: Field) -> Callable[[Mapping[str, Any]], tuple[int, bytes] | None]:
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

    def _field_writer(self, field: Field) -> Write:
        nullable = self._version in field.nullable
        if field.is_array:
            return self._array_writer(field, nullable)
        if field.struct is not None:
            write = self.struct_writer(field.struct)
            return partial(_write_nullable, write) if nullable else write
        return partial(_write_with, self._encoder(field))

    def _encoder(self, field: Field) -> Encode:
        """Of one value that is not a struct."""
        if field.type in FIXED:
            return layout_of([field]).pack
        if field.type == "string":
            return compact_string if self._flexible else string
        if field.type == "uuid":
            return topic_id_bytes
        return _compact_bytes if self._flexible else _bytes

    def _array_writer(self, field: Field, nullable: bool) -> Write:
        version, fixed = self._version, FIXED.get(field.type)
        if field.struct is not None:
            write_element = self.struct_writer(field.struct)
        else:
            write_element = partial(_write_with, self._encoder(field))
        count = compact_array_count if self._flexible else array_count

        def write_array(elements: Sequence[Any] | None, append: Append) -> None:
            if elements is None:
                assert nullable, f"{field.name} cannot be null in version {version}"
                append(count(-1))
                return
            append(count(len(elements)))
            if fixed is not None:
                append(pack(f">{len(elements)}{fixed}", *elements))
                return
            for element in elements:
                write_element(element, append)

        return write_array


def _value(source: Source, field: Field) -> str:
    """What the struct has for this field, or its default."""
    return f"get({field.name!r}, {source.name(field.default)})"


def _encode_tags(
    tags: list[Callable[[Mapping[str, Any]], tuple[int, bytes] | None]], values: Mapping[str, Any]
) -> bytes:
    return tagged_fields([tag for encode in tags if (tag := encode(values)) is not None])


def _write_with(encode: Encode, value: Any, append: Append) -> None:
    append(encode(value))


def _write_nullable(write: Write, value: Values | None, append: Append) -> None:
    if value is None:
        append(b"\xff")
    else:
        append(b"\x01")
        write(value, append)


def _bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value


def _compact_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else uvarint(len(value) + 1) + value
