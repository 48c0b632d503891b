"""The messages between the server of a store and its clients: a length of four bytes, then JSON.

A client begins with `["hello", protocol, cluster name]` and the server answers `[0, "done", protocol]` or an error.
After that:

    client: [id, method, argument, ...]     id is above 0, and new in the connection
            [id, "next"]                    asks the watch with that id for one more step
            [id, "cancel"]                  ends the watch with that id
    server: [id, "part", items]             one part of a long answer; all parts come before its end
            [id, "done", result]            the end of an answer; of a watch, of one step
            [id, "error", kind, text, number]

Bytes travel as the text of their Latin-1 characters: nearly all values are JSON, which stays readable.
"""

import asyncio
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cordwood.cluster.stores.interface import (
    Compacted,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    InvalidTransaction,
    KeyValue,
    LeaseEnded,
    Operation,
    OutcomeUnknown,
    Put,
    Relation,
    StoreClosed,
    StoreFailure,
    StoreUnavailable,
    Target,
)

PROTOCOL = 1
HELLO = "hello"
PART, DONE, ERROR = "part", "done", "error"
NEXT, CANCEL = "next", "cancel"

MAX_FRAME_BYTES = 32 * 2**20
"""The largest transaction is 1.5 MiB, and JSON writes some bytes as six characters."""
_PART_BYTES = 2**20
"""Long answers go in parts of about this size."""
_LENGTH = struct.Struct(">I")


class BrokenFrame(StoreUnavailable):
    """The peer sent bytes that are no message."""


def encode(message: Sequence[Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    assert len(body) <= MAX_FRAME_BYTES, "a message is larger than a frame"
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> list[Any]:
    """The next message. Raises IncompleteReadError at the end, BrokenFrame."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise BrokenFrame(f"a message of {length} bytes on the socket of a metadata store")
    try:
        message = json.loads(await reader.readexactly(length))
    except ValueError as error:
        raise BrokenFrame(f"no message on the socket of a metadata store: {error}") from None
    if not isinstance(message, list) or len(message) < 2:
        raise BrokenFrame("no message on the socket of a metadata store")
    return message


def text_of(value: bytes) -> str:
    return value.decode("latin-1")


def bytes_of(text: str) -> bytes:
    return text.encode("latin-1")


def compare_to_json(compare: Compare) -> list[Any]:
    operand = compare.operand
    return [
        compare.key,
        compare.target.value,
        compare.relation.value,
        text_of(operand) if isinstance(operand, bytes) else operand,
    ]


def compare_from_json(fields: Sequence[Any]) -> Compare:
    key, target, relation, operand = fields
    return Compare(key, Target(target), Relation(relation), bytes_of(operand) if isinstance(operand, str) else operand)


def operation_to_json(operation: Operation) -> list[Any]:
    match operation:
        case Put(key, value, lease):
            return ["put", key, text_of(value), lease]
        case Delete(key):
            return ["delete", key]
        case DeletePrefix(prefix):
            return ["delete-prefix", prefix]


def operation_from_json(fields: Sequence[Any]) -> Operation:
    match fields:
        case ["put", key, value, lease]:
            return Put(key, bytes_of(value), lease)
        case ["delete", key]:
            return Delete(key)
        case ["delete-prefix", prefix]:
            return DeletePrefix(prefix)
    raise BrokenFrame(f"{fields!r:.80} is no operation of a metadata store")


def item_to_json(item: KeyValue | Event) -> list[Any]:
    """The fields of a key or of an event. Only a deletion has no value."""
    key, value, *rest = item
    return [key, None if value is None else text_of(value), *rest]


def key_value_from_json(fields: Sequence[Any]) -> KeyValue:
    key, value, create_revision, mod_revision, lease = fields
    return KeyValue(key, bytes_of(value), create_revision, mod_revision, lease)


def event_from_json(fields: Sequence[Any]) -> Event:
    key, value, create_revision, mod_revision = fields
    return Event(key, None if value is None else bytes_of(value), create_revision, mod_revision)


def parts_of(items: Sequence[KeyValue | Event]) -> Iterator[list[list[Any]]]:
    """The items as JSON, in parts that fit into a frame; at least one part, the last of them to be sent with the end of
    the answer."""
    part: list[list[Any]] = []
    size = 0
    for item in items:
        if size > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(item_to_json(item))
        size += len(item.key) + len(item.value or b"")
    yield part


def error_to_json(error: Exception) -> list[Any]:
    """Kind, text and number of an error that the contract names."""
    number = error.compact_revision if isinstance(error, Compacted) else 0
    kind = next((name for name, (expected, _) in _KINDS.items() if isinstance(error, expected)), "StoreFailure")
    return [kind, str(error), number]


def error_from_json(kind: str, text: str, number: int) -> Exception:
    _, make = _KINDS.get(kind, _KINDS["StoreFailure"])
    return make(text, number)


_KINDS: dict[str, tuple[type[Exception], Callable[[str, int], Exception]]] = {
    "Compacted": (Compacted, lambda text, number: Compacted(number)),
    "InvalidTransaction": (InvalidTransaction, lambda text, number: InvalidTransaction(text)),
    "ValueError": (ValueError, lambda text, number: ValueError(text)),
    "LeaseEnded": (LeaseEnded, lambda text, number: LeaseEnded(text)),
    "OutcomeUnknown": (OutcomeUnknown, lambda text, number: OutcomeUnknown(text)),
    # The store was closed at the server: the client's own connection to a store is still open.
    "StoreClosed": (StoreClosed, lambda text, number: StoreUnavailable(text)),
    "StoreUnavailable": (StoreUnavailable, lambda text, number: StoreUnavailable(text)),
    "StoreFailure": (StoreFailure, lambda text, number: StoreFailure(text)),
}
"""Errors by kind: the exception at the server, and the client's exception. Particular kinds stand first."""
