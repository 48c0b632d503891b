"""The memory of a family, as a record of __transaction_state.

Key: record type 10,000, as int16, and the name with its length as int16. Value: int16 version 0, int64 batch that was
decided last, int64 when, int8 flags (1: may be forgotten, 2: the batch's plan follows). The plan is int64 rows, int8
length and bytes of the digest, int32 length and bytes of the text. A null value forgets the family. Further bytes are
of a later version and skipped, as a broker that knows no plans skips the plan.

The record is complete by itself and never expires, so compaction cannot separate it from another record.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.model.identifiers import NO_TIMESTAMP_MS
from cordwood.transactions.log_records import Record, UnreadableRecord
from cordwood.transactions.transaction import NO_BATCH_ID

FAMILY_KEY_TYPE = 10_000
_KEY_START = struct.Struct(">hh")
_VALUE = struct.Struct(">hqqb")
_VERSION = 0
_FORGOTTEN = 1
_PLANNED = 2
_PLAN_START = struct.Struct(">qb")
_TEXT_LENGTH = struct.Struct(">i")


class Plan(NamedTuple):
    """The plan of a batch, as its decider described it. The coordinator stores it and never interprets it."""

    rows: int = -1
    """The number of committed rows; -1 if the decider gave none."""
    digest: bytes = b""
    """Identifies a repeated batch; empty if the decider gave none."""
    text: bytes = b""
    """The text from which the plan can be restored; empty: it was too long."""


NO_PLAN = Plan()


@dataclass(frozen=True, slots=True)
class Memory:
    """The state of a family beside its slots."""

    last_batch_id: int = NO_BATCH_ID
    """The highest batch id that was decided to be committed."""
    decided_ms: int = NO_TIMESTAMP_MS
    forgotten: bool = False
    """Whether the family is removed after a while: no client will ask about it any more."""
    plan: Plan = NO_PLAN
    """The plan of the last decided batch."""


NOTHING_DECIDED = Memory()


def family_key(name: str) -> bytes:
    raw = name.encode()
    return _KEY_START.pack(FAMILY_KEY_TYPE, len(raw)) + raw


def family_record(name: str, memory: Memory) -> Record:
    plan = memory.plan
    flags = (_FORGOTTEN if memory.forgotten else 0) | (_PLANNED if plan != NO_PLAN else 0)
    value = _VALUE.pack(_VERSION, memory.last_batch_id, memory.decided_ms, flags)
    if flags & _PLANNED:
        value += _PLAN_START.pack(plan.rows, len(plan.digest)) + plan.digest + _TEXT_LENGTH.pack(len(plan.text))
        value += plan.text
    return family_key(name), value


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
    plan = _decode_plan(value) if flags & _PLANNED else NO_PLAN
    return Memory(last_batch_id, decided_ms, bool(flags & _FORGOTTEN), plan)


def _decode_plan(value: bytes) -> Plan:
    try:
        rows, digest_length = _PLAN_START.unpack_from(value, _VALUE.size)
        digest_start = _VALUE.size + _PLAN_START.size
        (text_length,) = _TEXT_LENGTH.unpack_from(value, digest_start + digest_length)
    except struct.error as error:
        raise UnreadableRecord(f"the plan in a family's record is cut off: {error}") from None
    text_start = digest_start + digest_length + _TEXT_LENGTH.size
    if digest_length < 0 or text_length < 0 or text_start + text_length > len(value):
        raise UnreadableRecord(f"the plan in a family's record claims {digest_length} and {text_length} bytes")
    digest = value[digest_start : digest_start + digest_length]
    return Plan(rows, digest, value[text_start : text_start + text_length])
