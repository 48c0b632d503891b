"""Readers and writers of one version of a message, made from its schema when they are first needed.

A reader takes a frame and a position and gives the value and the next position; it may raise what
`primitives.MALFORMED` lists. A writer takes a value and appends its bytes. Values are what attributes of an `Entity`
hold: ints, str, bytes, lists, and None for null and for the zero id. A struct is written from a mapping or an entity;
what it does not have gets its default, and what the version does not have is left out, so that one answer serves every
version.

Each message becomes a function whose source is written and compiled here: straight lines for its fields instead of a
loop that looks each of them up. Nothing of a request gets into a source, only names and numbers of the schemas in
`messages/`.
"""

from cordwood.wire.primitives import MAX_ELEMENTS
from cordwood.wire.schema import Message
from cordwood.wire.struct_readers import Elements, Read, ReaderMaker
from cordwood.wire.struct_writers import Append, Values, Write, WriterMaker

__all__ = ["Append", "Read", "Values", "Write", "reader", "writer"]


def reader(message: Message, version: int, max_elements: int = MAX_ELEMENTS) -> Read:
    """A reader that takes messages of at most so many array elements in all."""
    assert version in message.versions, (message.versions, version)
    elements = Elements(max_elements)
    return ReaderMaker(version, version >= message.flexible_from, elements).struct_reader(message.body)


def writer(message: Message, version: int) -> Write:
    assert version in message.versions, (message.versions, version)
    return WriterMaker(version, version >= message.flexible_from).struct_writer(message.body)
