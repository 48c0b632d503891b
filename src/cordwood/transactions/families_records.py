"""What a family remembers, as a record of __transaction_state.

Key: record type 10,000, as int16, and the name with its length as int16. Value: int16 version 0, int64 batch that was
decided last, int64 when, int8 flags (1: may be forgotten). A null value forgets the family. Bytes that follow are of a
later version and passed over.

The record has no partner that it could lose to compaction: it is the only one of its key, and it never expires.
"""

import struct
from dataclasses import dataclass

from cordwood.transactions.log_records import Record, UnreadableRecord
from cordwood.transactions.transaction import NO_BATCH_ID, NO_TIMESTAMP_MS

FAMILY_KEY_TYPE = 10_000
_KEY_START = struct.Struct(">hh")
_VALUE = struct.Struct(">hqqb")
_VERSION = 0
_FORGOTTEN = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """What there is to know of a family beside its slots."""

    last_batch_id: int = NO_BATCH_ID
    """The highest batch id that was decided to be committed."""
    decided_ms: int = NO_TIMESTAMP_MS
    forgotten: bool = False
    """Nobody will ask about it any more: it goes away after a while."""


NOTHING_DECIDED = Memory()


def family_key(name: str) -> bytes:
    raw = name.encode()
    return _KEY_START.pack(FAMILY_KEY_TYPE, len(raw)) + raw


def family_record(name: str, memory: Memory) -> Record:
    flags = _FORGOTTEN if memory.forgotten else 0
    return family_key(name), _VALUE.pack(_VERSION, memory.last_batch_id, memory.decided_ms, flags)


def decode_family_key(key: bytes) -> str:
    kind, length = _KEY_START.unpack_from(key)
    name = key[_KEY_START.size :]
    if kind != FAMILY_KEY_TYPE or len(name) != length:
        raise UnreadableRecord(f"{key!r} is not the key of a family")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecord(f"a family's name is garbled: {error}") from None


def decode_memory(value: bytes) -> Memory:
    if len(value) < _VALUE.size:
        raise UnreadableRecord(f"a family's record has {len(value)} bytes")
    version, last_batch_id, decided_ms, flags = _VALUE.unpack_from(value)
    if version != _VERSION:
        raise UnreadableRecord(f"version {version} of a family's record is not known")
    return Memory(last_batch_id, decided_ms, bool(flags & _FORGOTTEN))
