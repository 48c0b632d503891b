"""Readers of messages: one function for each message in each version, as `codec` describes.

Nested structs and arrays are written out in place, as loops of the one function: a call for each struct took longer
than reading it. A reader in steps is the same function with a `yield` in its loops.
"""

from collections.abc import Callable, Generator, Mapping
from struct import Struct as Layout
from typing import Any

from cordwood.wire.encoding.bad_messages import BadRequest
from cordwood.wire.encoding.primitives import (
    LONGEST_STRING,
    MAX_TAGS,
    Elements,
    Frame,
    cut_short,
    read_topic_id,
    read_uvarint,
    too_long,
    too_many_tags,
)
from cordwood.wire.encoding.schema import Entity, Field, Struct
from cordwood.wire.encoding.source import FIXED, Source, is_fixed, layout_of, plain_fields, tagged_fields_of

ReadCounting = Callable[[Frame, int, Elements], tuple[Any, int]]
"""Reads a value at a position; returns it with the position after it."""
ReadInSteps = Callable[[Frame, int, Elements], Generator[None, None, tuple[Any, int]]]
Slot = tuple[str, str]
"""The target of a number, and its format letter for `struct`."""

_WITH_LENGTH = ("string", "bytes", "records")

ELEMENTS_PER_STEP = 500
"""Elements in one step, at one to two microseconds each."""

BYTES_PER_STEP = 2 * 1024 * 1024
"""Bytes in one step: names of 32 KB are read at 1.5 ns a byte."""


class ReaderMaker:
    def __init__(self, version: int, flexible: bool, *, in_place: bool = False) -> None:
        """`in_place`: frames are views, and records are parts of their frame instead of copies."""
        self._version = version
        self._flexible = flexible
        self._in_place = in_place
        self._in_steps = False

    def struct_reader(self, struct: Struct) -> ReadCounting:
        return self._message_reader(struct)  # type: ignore[no-any-return]

    def struct_reader_in_steps(self, struct: Struct) -> ReadInSteps:
        self._in_steps = True
        return self._message_reader(struct)  # type: ignore[no-any-return]

    def _message_reader(self, struct: Struct) -> Any:
        source = self._source()
        if self._in_steps:
            source.line(f"left, pause = {ELEMENTS_PER_STEP}, {BYTES_PER_STEP}")
            # A function with a `yield` is a generator, whether or not its message has arrays.
            source.line("if False:")
            source.line("yield", 1)
        if not self._in_place:
            # Pieces of bytes are made and read faster than pieces of a view.
            source.line("frame = bytes(frame)")
        self._read_struct(source, struct, "found", 0)
        return self._function(source, struct.entity.__name__)

    def _field_reader(self, field: Field) -> ReadCounting:
        """The reader of a tagged field. It reads in one step: no request has an array in a tag."""
        source = self._source()
        maker = ReaderMaker(self._version, self._flexible, in_place=self._in_place)
        maker._read_field(source, field, "found", 0, [])
        return self._function(source, field.name)  # type: ignore[no-any-return]

    def _source(self) -> Source:
        source = Source(
            "frame, position, elements",
            {
                "new": object.__new__,
                "cut_short": cut_short,
                "too_long": too_long,
                "null": _null,
                "negative": _negative,
                "unfit": _unfit,
                "read_uvarint": read_uvarint,
                "read_id": _read_id,
                "read_numbers": _read_numbers,
                "read_tags": _read_tags,
            },
        )
        source.line("size = len(frame)")
        return source

    def _function(self, source: Source, name: str) -> Any:
        source.line("return found, position")
        return source.function(name)

    # Lines that read a value into a target, at a depth of indentation

    def _read_struct(self, source: Source, struct: Struct, target: str, depth: int) -> None:
        entity = source.variable("entity")
        source.line(f"{entity} = {target} = new({source.name(struct.entity)})", depth)
        fixed: list[Slot] = []
        for field in plain_fields(struct, self._version):
            if is_fixed(field):
                fixed.append((f"{entity}.{field.name}", FIXED[field.type]))
            else:
                self._read_field(source, field, f"{entity}.{field.name}", depth, fixed)
                fixed = []
        self._read_fixed(source, fixed, depth)
        if self._flexible:
            tags = {
                field.tag: (field.name, self._field_reader(field)) for field in tagged_fields_of(struct, self._version)
            }
            source.line("if frame[position]:", depth)
            source.line(f"position = read_tags(frame, position, {source.name(tags)}, {entity}, elements)", depth + 1)
            source.line("else:", depth)
            source.line("position += 1", depth + 1)

    def _read_fixed(self, source: Source, slots: list[Slot], depth: int) -> None:
        if slots:
            layout = Layout(">" + "".join(kind for _, kind in slots))
            names = "".join(f"{target}, " for target, _ in slots)
            source.line(f"{names}= {source.name(layout.unpack_from)}(frame, position)", depth)
            source.line(f"position += {layout.size}", depth)

    def _read_field(self, source: Source, field: Field, target: str, depth: int, before: list[Slot]) -> None:
        """Lines that read one field. `before` are the numbers before it, which are read together with its length if
        possible."""
        nullable = self._version in field.nullable
        if field.is_array:
            self._read_array(source, field, nullable, target, depth, before)
        elif field.struct is not None and nullable:
            self._read_fixed(source, before, depth)
            # A signed byte: negative for null.
            source.line("position += 1", depth)
            source.line("if frame[position - 1] > 0x7F:", depth)
            source.line(f"{target} = None", depth + 1)
            source.line("else:", depth)
            self._read_struct(source, field.struct, target, depth + 1)
        else:
            self._read_value(source, field, nullable, target, depth, before)

    def _read_value(
        self, source: Source, field: Field, nullable: bool, target: str, depth: int, before: list[Slot]
    ) -> None:
        """Lines that read one value, or one element of an array."""
        if field.type in _WITH_LENGTH:
            self._read_text(source, field, nullable, target, depth, before)
            return
        self._read_fixed(source, before, depth)
        if field.struct is not None:
            self._read_struct(source, field.struct, target, depth)
        elif field.type in FIXED:
            self._read_fixed(source, [(target, FIXED[field.type])], depth)
        else:
            source.line(f"{target}, position = read_id(frame, position)", depth)

    def _read_text(
        self, source: Source, field: Field, nullable: bool, target: str, depth: int, before: list[Slot]
    ) -> None:
        """A string, or bytes, which are the same but for the size of their length."""
        is_text = field.type == "string"
        self._read_length(source, "length", "h" if is_text else "i", depth, before)
        source.line("if length < 0:", depth)
        source.line("if length < -1:", depth + 1)
        source.line("raise negative()", depth + 2)
        source.line(f"{target} = None" if nullable else "raise null()", depth + 1)
        source.line("else:", depth)
        source.line("end = position + length", depth + 1)
        source.line("if end > size:", depth + 1)
        source.line("raise cut_short()", depth + 2)
        piece = "frame[position:end]"
        if self._in_place and field.type != "records":
            piece = f"str({piece}, 'utf-8')" if is_text else f"bytes({piece})"
        elif is_text:
            piece += ".decode()"
        source.line(f"{target} = {piece}", depth + 1)
        source.line("position = end", depth + 1)

    def _read_array(
        self, source: Source, field: Field, nullable: bool, target: str, depth: int, before: list[Slot]
    ) -> None:
        count, elements, element = map(source.variable, ("count", "elements", "element"))
        self._read_length(source, count, "i", depth, before)
        # A count is checked against the available bytes before any element is made.
        source.line(f"if {count} < -1 or {count} * {max(self._least(field), 1)} > size - position:", depth)
        source.line(f"raise unfit({count})", depth + 1)
        source.line(f"if {count} < 0:", depth)
        source.line(f"{target} = None" if nullable else "raise null()", depth + 1)
        source.line("else:", depth)
        source.line(f"elements.count += {count}", depth + 1)
        source.line("if elements.count > elements.limit:", depth + 1)
        source.line("elements.check()", depth + 2)
        if field.type in FIXED:
            source.line(
                f"{target}, position = read_numbers(frame, position, {count}, {FIXED[field.type]!r})", depth + 1
            )
            return
        source.line(f"{elements} = {target} = []", depth + 1)
        source.line(f"for _ in range({count}):", depth + 1)
        self._read_value(source, field, False, element, depth + 2, [])
        source.line(f"{elements}.append({element})", depth + 2)
        if self._in_steps:
            source.line("left -= 1", depth + 2)
            source.line("if not left or position > pause:", depth + 2)
            source.line(f"left, pause = {ELEMENTS_PER_STEP}, position + {BYTES_PER_STEP}", depth + 3)
            source.line("yield", depth + 3)

    def _read_length(self, source: Source, name: str, kind: str, depth: int, before: list[Slot]) -> None:
        """Lines that read a length, -1 for null. `kind` is the format letter of the old form: h for a string, whose
        length is bounded."""
        if not self._flexible:
            self._read_fixed(source, [*before, (name, kind)], depth)
            return
        self._read_fixed(source, before, depth)
        source.line(f"{name} = frame[position] - 1", depth)
        source.line("position += 1", depth)
        source.line(f"if {name} > 0x7E:", depth)
        source.line(f"{name}, position = read_uvarint(frame, position - 1)", depth + 1)
        source.line(f"{name} -= 1", depth + 1)
        if kind == "h":
            source.line(f"if {name} > {LONGEST_STRING}:", depth + 1)
            source.line("raise too_long()", depth + 2)

    def _least(self, field: Field) -> int:
        """The least number of bytes that one element of an array takes."""
        if field.struct is not None:
            return self._flexible + sum(self._least_of(each) for each in plain_fields(field.struct, self._version))
        if field.type in FIXED:
            return layout_of([field]).size
        if field.type == "uuid":
            return 16
        if self._flexible:
            return 1
        return 2 if field.type == "string" else 4

    def _least_of(self, field: Field) -> int:
        if field.is_array:
            return 1 if self._flexible else 4
        if field.struct is not None and self._version in field.nullable:
            return 1
        return self._least(field)


def _null() -> BadRequest:
    return BadRequest("A string or an array is null where it must not be.")


def _negative() -> BadRequest:
    return BadRequest("A field has a negative length.")


def _unfit(count: int) -> BadRequest:
    return BadRequest(f"An array of {count} elements does not fit into the request.")


def _read_numbers(frame: Frame, position: int, count: int, kind: str) -> tuple[list[Any], int]:
    layout = Layout(f">{count}{kind}")
    return list(layout.unpack_from(frame, position)), position + layout.size


def _read_id(frame: Frame, position: int) -> tuple[Any, int]:
    found, position = read_topic_id(frame, position)
    return (found if found.int else None), position


def _read_tags(
    frame: Frame,
    position: int,
    tags: Mapping[int | None, tuple[str, ReadCounting]],
    entity: Entity,
    elements: Elements,
) -> int:
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
            value, position = read(frame, position, elements)
            if position != end:
                raise BadRequest(f"The tagged field {name} does not fill its tag.")
            setattr(entity, name, value)
        position = end
    return position
