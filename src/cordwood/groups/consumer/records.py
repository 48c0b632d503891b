"""The records of a consumer-protocol group in __consumer_offsets, in Apache Kafka's own formats.

Types: 3 the group's epoch, 5 a member, 6 the epoch of the target assignment, 7 a member's target, 8 a member's current
assignment, 16 the topics that a regular expression matches. Values are version 0, which is flexible. A null value
removes.

One tagged field of type 3 is ours, since Kafka skips tags that it does not know: the time when the last member left.
"""

import struct
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from cordwood.groups.consumer.member import ClassicPart, Current, MemberState, Profile
from cordwood.groups.consumer.partition_sets import NOTHING, Share, mask_of, numbers_in
from cordwood.groups.consumer.since import Since, latest_since
from cordwood.groups.state.record_fields import (
    FieldReader,
    UnreadableRecord,
    compact_string,
    one_tag,
    string,
    two_tags,
    uvarint,
)
from cordwood.records.written import Written

GROUP_TYPE = 3
MEMBER_TYPE = 5
TARGET_EPOCH_TYPE = 6
TARGET_TYPE = 7
CURRENT_TYPE = 8
EXPRESSION_TYPE = 16
CONSUMER_GROUP_KEY_TYPES = (GROUP_TYPE, MEMBER_TYPE, TARGET_EPOCH_TYPE, TARGET_TYPE, CURRENT_TYPE, EXPRESSION_TYPE)
_TYPES_WITH_SUBJECT = (MEMBER_TYPE, TARGET_TYPE, CURRENT_TYPE, EXPRESSION_TYPE)
_METADATA_HASH, _EMPTIED_MS = 0, 10_000
_CLASSIC_PART = 0

MAX_PARTITIONS = 1 << 24
"""Beyond the partitions of any topic: a record that names more is damaged, and its share would fill memory."""

MAX_MASK_BITS = 1 << 30
"""The most bits of all masks of one topic in one record, one mask for each epoch: room for thousands of epochs of the
largest topics."""


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int
    emptied_ms: int = -1
    """When the last member left; -1 while the group has members, or if unknown."""


class Resolution(NamedTuple):
    """The topics that a regular expression matched, with the version of the metadata and the time of the match."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class RecordKey(NamedTuple):
    type: int
    group_id: str
    subject: str
    """A member's id, or a regular expression; empty if the record is about the whole group."""


def encode_consumer_key(kind: int, group_id: str, subject: str = "") -> bytes:
    # Keys of members are cached, because records repeat them. Expressions can be long, and seldom change.
    return _encode_key(kind, group_id, subject) if kind == EXPRESSION_TYPE else _kept_key(kind, group_id, subject)


@lru_cache(maxsize=4096)
def _kept_key(kind: int, group_id: str, subject: str) -> bytes:
    return _encode_key(kind, group_id, subject)


def _encode_key(kind: int, group_id: str, subject: str) -> bytes:
    key = struct.pack(">h", kind) + string(group_id)
    if kind in _TYPES_WITH_SUBJECT:
        return Written(key + string(subject), RecordKey(kind, group_id, subject))
    return Written(key, RecordKey(kind, group_id, ""))


def decode_consumer_key(key: bytes) -> RecordKey:
    if isinstance(key, Written) and isinstance(key.says, RecordKey):
        return key.says
    fields = FieldReader(key)
    kind = fields.int16()
    return RecordKey(kind, fields.string(), fields.string() if kind in _TYPES_WITH_SUBJECT else "")


# Values


def encode_group_epoch(value: GroupEpoch) -> bytes:
    hashed = struct.pack(">q", value.metadata_hash)
    tags = (
        one_tag(hashed) if value.emptied_ms < 0 else two_tags(hashed, _EMPTIED_MS, struct.pack(">q", value.emptied_ms))
    )
    return Written(struct.pack(">hi", 0, value.epoch) + tags, value)


def decode_group_epoch(value: bytes) -> GroupEpoch:
    if isinstance(value, Written) and isinstance(value.says, GroupEpoch):
        return value.says
    fields = _fields(value)
    epoch = fields.int32()
    tags = fields.tagged()
    hashed, emptied = tags.get(_METADATA_HASH), tags.get(_EMPTIED_MS)
    return GroupEpoch(
        epoch,
        0 if hashed is None else FieldReader(hashed).int64(),
        -1 if emptied is None else FieldReader(emptied).int64(),
    )


def encode_target_epoch(epoch: int) -> bytes:
    return Written(struct.pack(">hi", 0, epoch) + b"\0", epoch)


def decode_target_epoch(value: bytes) -> int:
    if isinstance(value, Written) and isinstance(value.says, int):
        return value.says
    return _fields(value).int32()


def encode_profile(profile: Profile) -> bytes:
    value = b"".join(
        (
            struct.pack(">h", 0),
            compact_string(profile.instance_id),
            compact_string(profile.rack_id),
            compact_string(profile.client_id),
            compact_string(profile.client_host),
            uvarint(len(profile.topics) + 1),
            *map(compact_string, sorted(profile.topics)),
            compact_string(profile.expression),
            struct.pack(">i", profile.rebalance_timeout_ms),
            compact_string(profile.assignor),
            b"\0" if profile.classic is None else one_tag(_classic_part(profile.classic)),
        )
    )
    return Written(value, profile)


def _classic_part(part: ClassicPart) -> bytes:
    fields = [b"\1", struct.pack(">i", part.session_timeout_ms), uvarint(len(part.protocols) + 1)]
    for name, subscription in part.protocols:
        fields += (compact_string(name), uvarint(len(subscription) + 1), subscription, b"\0")
    return b"".join(fields) + b"\0"


def _read_classic_part(raw: bytes) -> ClassicPart | None:
    fields = FieldReader(raw, flexible=True)
    if fields.int8() < 0:
        return None
    session_timeout_ms, protocols = fields.int32(), []
    for _ in range(fields.count()):
        protocols.append((fields.string(), fields.octets()))
        fields.end_of_struct()
    if not protocols:
        raise UnreadableRecord("a member of the classic protocol supports no protocol")
    return ClassicPart(session_timeout_ms, tuple(protocols))


def decode_profile(value: bytes) -> Profile:
    if isinstance(value, Written) and isinstance(value.says, Profile):
        return value.says
    fields = _fields(value)
    instance_id = fields.nullable_string()
    rack_id = fields.nullable_string()
    client_id = fields.string()
    client_host = fields.string()
    topics = frozenset(fields.string() for _ in range(fields.count()))
    expression = fields.nullable_string() or None  # Kafka writes an empty string for none
    timeout_ms = fields.int32()
    assignor = fields.nullable_string()
    tag = fields.tagged().get(_CLASSIC_PART)
    classic = None if tag is None else _read_classic_part(tag)
    return Profile(instance_id, rack_id, client_id, client_host, topics, timeout_ms, assignor, expression, classic)


def encode_target(share: Share) -> bytes:
    return Written(struct.pack(">h", 0) + _share(share) + b"\0", share)


def decode_target(value: bytes) -> Share:
    if isinstance(value, Written) and isinstance(value.says, Share):
        return value.says
    return _share_of(_read_epochs(_fields(value), 0))


def encode_current(current: Current) -> bytes:
    head = struct.pack(">hiib", 0, current.epoch, current.previous_epoch, current.state)
    shares = _share(current.assigned, current.since) + _share(current.revoking, current.since)
    return Written(head + shares + b"\0", current)


def decode_current(value: bytes) -> Current:
    if isinstance(value, Written) and isinstance(value.says, Current):
        return value.says
    fields = _fields(value)
    epoch, previous_epoch, state = fields.int32(), fields.int32(), MemberState(fields.int8())
    assigned = _read_epochs(fields, epoch)
    revoking = _read_epochs(fields, epoch)
    share = _share_of(assigned)
    since = latest_since([*revoking, *assigned])
    if len(since) == 1 and since[0][1] == share:
        since = ((since[0][0], share),)  # shared objects
    return Current(epoch, previous_epoch, state, share, _share_of(revoking), since)


def encode_resolution(resolution: Resolution) -> bytes:
    topics = sorted(resolution.topics)
    return b"".join(
        (
            struct.pack(">h", 0),
            uvarint(len(topics) + 1),
            *(compact_string(topic) for topic in topics),
            struct.pack(">qq", resolution.version, resolution.timestamp_ms),
            b"\0",
        )
    )


def decode_resolution(value: bytes) -> Resolution:
    fields = _fields(value)
    # Many expressions may match the same topics: their names are kept once.
    topics = frozenset(sys.intern(fields.string()) for _ in range(fields.count()))
    return Resolution(topics, fields.int64(), fields.int64())


def _fields(value: bytes) -> FieldReader:
    fields = FieldReader(value)
    version = fields.int16()
    if version != 0:
        raise UnreadableRecord(f"version {version} of a consumer group's record is not known")
    fields.flexible = True
    return fields


def _share(share: Share, since: Since | None = None) -> bytes:
    parts = [uvarint(len(share.masks) + 1)]
    for topic, mask in sorted(share.masks.items()):
        numbers = numbers_in(mask)
        count = uvarint(len(numbers) + 1)
        parts += (topic.to_bytes(16, "big"), count, struct.pack(f">{len(numbers)}i", *numbers))
        parts.append(b"\0" if since is None else one_tag(count + _epochs(topic, mask, numbers, since)))
    return b"".join(parts)


def _epochs(topic: int, mask: int, numbers: Sequence[int], since: Since) -> bytes:
    """The epochs of the topic's partitions, which are mostly equal."""
    told: dict[int, int] = {}
    for epoch, got in since:
        both = mask & got.masks.get(topic, 0)
        if both == mask:
            return struct.pack(">i", epoch) * len(numbers)
        told.update(dict.fromkeys(numbers_in(both), epoch))
    return struct.pack(f">{len(numbers)}i", *[told[number] for number in numbers])


def _read_epochs(fields: FieldReader, epoch: int) -> list[tuple[int, int, int]]:
    """Epochs, topics, and masks of the partitions assigned in each epoch; `epoch` if the record names none."""
    found: list[tuple[int, int, int]] = []
    room = MAX_PARTITIONS
    for _ in range(fields.count()):
        topic = int.from_bytes(fields.raw(16), "big")
        numbers = fields.int32s()
        raw = fields.tagged().get(0)
        epochs = () if raw is None else FieldReader(raw, flexible=True).int32s()
        if epochs and len(epochs) != len(numbers):
            raise UnreadableRecord(f"{len(epochs)} epochs for {len(numbers)} partitions")
        if not numbers:
            continue
        room -= max(numbers) + 1
        if room < 0 or min(numbers) < 0:
            raise UnreadableRecord(f"no topic has partitions {min(numbers)} to {max(numbers)}")
        if not epochs or epochs.count(epochs[0]) == len(epochs):
            found.append((epochs[0] if epochs else epoch, topic, mask_of(numbers)))
            continue
        by_epoch: dict[int, list[int]] = {}
        for number, each in dict(zip(numbers, epochs, strict=True)).items():
            by_epoch.setdefault(each, []).append(number)
        if len(by_epoch) * max(numbers) > MAX_MASK_BITS:
            raise UnreadableRecord(f"{len(by_epoch)} epochs of partitions up to {max(numbers)} are too many")
        found += [(each, topic, mask_of(same)) for each, same in by_epoch.items()]
    return found


def _share_of(told: Iterable[tuple[int, int, int]]) -> Share:
    masks: dict[int, int] = {}
    for _, topic, mask in told:
        masks[topic] = masks.get(topic, 0) | mask
    return Share(masks) if masks else NOTHING
