"""Readers and writers of one version of a message, made from its schema when they are first needed.

A reader takes a frame and a position and returns the value and the next position; it may raise the errors in
`primitives.MALFORMED`. A writer takes a value and appends its bytes. Values, the attributes of an `Entity`, are ints,
str, bytes, lists, and None for null and for the zero id. A struct is written from a mapping or an entity; missing
fields get their defaults, and fields that the version does not have are left out, so that one answer serves every
version.

Each message becomes a function whose source is written and compiled here: straight lines for its fields instead of a
loop over them. No byte of a request gets into a source, only names and numbers of the schemas in `messages/`.
"""

from collections.abc import Callable
from typing import Any, Final

from cordwood.wire.encoding.primitives import Elements, Frame
from cordwood.wire.encoding.schema import Message, Struct
from cordwood.wire.encoding.struct_readers import ReadCounting, ReaderMaker, ReadInSteps
from cordwood.wire.encoding.struct_writers import Append, Values, Write, WriteInSteps, WriterMaker

__all__ = [
    "Append",
    "Read",
    "ReadCounting",
    "ReadInSteps",
    "Values",
    "Write",
    "WriteInSteps",
    "counting_reader",
    "has_arrays",
    "reader",
    "reader_in_steps",
    "writer",
    "writer_in_steps",
]

Read = Callable[[Frame, int], tuple[Any, int]]

MANY_ELEMENTS: Final = 20_000_000
"""The limit for a client that reads its own answers: metadata of a million partitions with their replicas."""


def reader(message: Message, version: int, max_elements: int = MANY_ELEMENTS, *, in_place: bool = False) -> Read:
    """A reader for messages of at most `max_elements` array elements in all. `in_place`: its frames are views, and
    records are parts of their frame instead of copies."""
    read = _reader_maker(message, version, in_place=in_place).struct_reader(message.body)
    return lambda frame, position: read(frame, position, Elements(max_elements))


def counting_reader(message: Message, version: int) -> ReadCounting:
    """A reader that gets, with each message, the number of elements that the message may have."""
    return _reader_maker(message, version).struct_reader(message.body)


def reader_in_steps(message: Message, version: int) -> ReadInSteps:
    """Like `counting_reader`, as a generator that pauses after each step of elements."""
    return _reader_maker(message, version).struct_reader_in_steps(message.body)


def _reader_maker(message: Message, version: int, *, in_place: bool = False) -> ReaderMaker:
    assert version in message.versions, (message.versions, version)
    return ReaderMaker(version, version >= message.flexible_from, in_place=in_place)


def writer(message: Message, version: int) -> Write:
    return _writer_maker(message, version).struct_writer(message.body)


def writer_in_steps(message: Message, version: int) -> WriteInSteps:
    """Like `writer`, as a generator that pauses after each step of elements."""
    return _writer_maker(message, version).struct_writer_in_steps(message.body)


def has_arrays(message: Message, version: int) -> bool:
    """True if messages of this version may have array elements: messages without are written in one go."""
    return _has_arrays(message.body, version)


def _has_arrays(struct: Struct, version: int) -> bool:
    return any(
        field.is_array or (field.struct is not None and _has_arrays(field.struct, version))
        for field in struct.fields
        if version in field.versions
    )


def _writer_maker(message: Message, version: int) -> WriterMaker:
    assert version in message.versions, (message.versions, version)
    return WriterMaker(version, version >= message.flexible_from)
