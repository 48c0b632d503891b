"""A classic group's record in __consumer_offsets, in Apache Kafka's own format.

Key: record type 2 and the group. Value: version 3 (0 to 4 are read). A null value removes the group.
"""

import struct
from typing import NamedTuple

from cordwood.groups.state.record_fields import FieldReader, UnreadableRecord, nullable_string, octets, string
from cordwood.records.written import Written

GROUP_METADATA_KEY_TYPE = 2

_VALUE_VERSION = 3
_FIRST_FLEXIBLE_VERSION = 4


class StoredMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """The part of a group that survives the broker: its last complete generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def encode_group_key(group_id: str) -> bytes:
    return struct.pack(">h", GROUP_METADATA_KEY_TYPE) + string(group_id)


def decode_group_key(key: bytes) -> str:
    fields = FieldReader(key)
    if fields.int16() != GROUP_METADATA_KEY_TYPE:
        raise UnreadableRecord("this is not the key of a group")
    return fields.string()


def encode_group(group: StoredGroup) -> bytes:
    parts = [
        struct.pack(">h", _VALUE_VERSION),
        string(group.protocol_type),
        struct.pack(">i", group.generation),
        nullable_string(group.protocol),
        nullable_string(group.leader),
        struct.pack(">qi", group.state_timestamp_ms, len(group.members)),
    ]
    for member in group.members:
        parts += (
            string(member.member_id),
            nullable_string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            octets(member.subscription),
            octets(member.assignment),
        )
    value = b"".join(parts)
    if any(member.rebalance_timeout_ms < 0 for member in group.members):
        return value  # readers take the session timeout
    return Written(value, group)


def decode_group(value: bytes) -> StoredGroup:
    if isinstance(value, Written) and isinstance(value.says, StoredGroup):
        return value.says
    fields = FieldReader(value)
    version = fields.int16()
    if not 0 <= version <= _FIRST_FLEXIBLE_VERSION:
        raise UnreadableRecord(f"version {version} of a group's value is not known")
    fields.flexible = version >= _FIRST_FLEXIBLE_VERSION
    protocol_type = fields.string()
    generation = fields.int32()
    protocol = fields.nullable_string()
    leader = fields.nullable_string()
    timestamp_ms = fields.int64() if version >= 2 else -1
    members = tuple(_member(fields, version) for _ in range(fields.count()))
    return StoredGroup(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _member(fields: FieldReader, version: int) -> StoredMember:
    member_id = fields.string()
    instance_id = fields.nullable_string() if version >= 3 else None
    client_id = fields.string()
    client_host = fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    subscription = fields.octets()
    assignment = fields.octets()
    fields.end_of_struct()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
