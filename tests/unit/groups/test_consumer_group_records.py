"""Records of the consumer protocol read back as written, keep their bytes, and report damage."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.consumer_stage import ORDERS, REFUNDS

from cordwood.groups.consumer.member import ClassicPart, Current, MemberState, Profile
from cordwood.groups.consumer.partition_sets import NOTHING, Share, partitions_in, share_of
from cordwood.groups.consumer.records import (
    CONSUMER_GROUP_KEY_TYPES,
    MAX_PARTITIONS,
    GroupEpoch,
    Resolution,
    decode_consumer_key,
    decode_current,
    decode_group_epoch,
    decode_profile,
    decode_resolution,
    decode_target,
    decode_target_epoch,
    encode_consumer_key,
    encode_current,
    encode_group_epoch,
    encode_profile,
    encode_resolution,
    encode_target,
    encode_target_epoch,
)
from cordwood.groups.consumer.since import since_now
from cordwood.groups.state.record_fields import UnreadableRecord

names = st.text(max_size=12)
ints = st.integers(-(2**31), 2**31 - 1)
some_topics = st.sampled_from([ORDERS, REFUNDS]) | st.uuids()
shares = st.sets(st.tuples(some_topics, st.integers(0, 30) | st.integers(0, 50_000)), max_size=12).map(share_of)
protocols = st.tuples(names, st.binary(max_size=200))
profiles = st.builds(
    Profile,
    st.none() | names,
    st.none() | names,
    names,
    names,
    st.frozensets(names),
    ints,
    st.none() | names,
    st.none() | names.filter(bool),
    st.none() | st.builds(ClassicPart, ints, st.lists(protocols, min_size=1).map(tuple)),
)
resolutions = st.builds(Resolution, st.frozensets(names), st.integers(0, 2**62), st.integers(0, 2**62))


@given(names, names, st.sampled_from(CONSUMER_GROUP_KEY_TYPES))
def test_keys_read_back(group_id: str, member_id: str, kind: int) -> None:
    encoded = encode_consumer_key(kind, group_id, member_id)
    key = decode_consumer_key(bytes(encoded))
    assert decode_consumer_key(encoded) == key
    assert key[:2] == (kind, group_id)
    assert key.subject in (member_id, "")


@given(ints, st.integers(-(2**63), 2**63 - 1), st.integers(-1, 2**63 - 1), profiles, shares, shares)
def test_values_read_back(
    epoch: int, hashed: int, emptied_ms: int, profile: Profile, share: Share, other: Share
) -> None:
    group = GroupEpoch(epoch, hashed, emptied_ms)
    encoded = encode_group_epoch(group)
    assert decode_group_epoch(encoded) == decode_group_epoch(bytes(encoded)) == group
    encoded = encode_target_epoch(epoch)
    assert decode_target_epoch(encoded) == decode_target_epoch(bytes(encoded)) == epoch
    assert decode_profile(encode_profile(profile)) == decode_profile(bytes(encode_profile(profile))) == profile
    assert decode_target(encode_target(share)) == decode_target(bytes(encode_target(share))) == share
    since = since_now(((epoch, share),), share, share | other, abs(hashed) % 2**31)
    current = Current(epoch, epoch, MemberState.UNRELEASED_PARTITIONS, share, other, since)
    assert decode_current(encode_current(current)) == decode_current(bytes(encode_current(current))) == current


@given(resolutions)
def test_what_an_expression_matches_reads_back(resolution: Resolution) -> None:
    assert decode_resolution(encode_resolution(resolution)) == resolution


def test_shares_are_written_as_ever() -> None:
    """Topics are written by id, numbers sorted, one epoch for each: Kafka's tools read this."""
    share = partitions_in(REFUNDS, [4, 0]) | partitions_in(ORDERS, range(1, 4))
    orders, refunds = "04" + "000000010000000200000003" + "00", "03" + "0000000000000004" + "00"
    assert encode_target(share).hex() == "000003" + ORDERS.hex + orders + REFUNDS.hex + refunds + "00"
    newer = partitions_in(ORDERS, [2]) | partitions_in(REFUNDS, [0, 4])
    current = Current(9, 8, MemberState.STABLE, share, NOTHING, ((7, share - newer), (9, newer)))
    orders = "04" + "000000010000000200000003" + "01000d" + "04" + "000000070000000900000007"
    refunds = "03" + "0000000000000004" + "010009" + "03" + "0000000900000009"
    head = "0000" + "00000009" + "00000008" + "00"
    assert encode_current(current).hex() == head + "03" + ORDERS.hex + orders + REFUNDS.hex + refunds + "01" + "00"


def topic_in_record(topic_id: uuid.UUID, *numbers: int, epochs: tuple[int, ...] | None = None) -> bytes:
    def array(values: tuple[int, ...]) -> bytes:
        return bytes([len(values) + 1]) + struct.pack(f">{len(values)}i", *values)

    tags = b"\0" if epochs is None else b"\1\0" + bytes([len(array(epochs))]) + array(epochs)
    return topic_id.bytes + array(numbers) + tags


def target_of(*topics: bytes) -> bytes:
    return b"\0\0" + bytes([len(topics) + 1]) + b"".join(topics) + b"\0"


def current_of(assigned: list[bytes], revoking: list[bytes]) -> bytes:
    shares = b"".join(bytes([len(topics) + 1]) + b"".join(topics) for topics in (assigned, revoking))
    return struct.pack(">hiib", 0, 5, 4, 0) + shares + b"\0"


@pytest.mark.parametrize(
    "topics",
    [
        [topic_in_record(ORDERS, 0, -1)],
        [topic_in_record(ORDERS, -(2**31))],
        [topic_in_record(ORDERS, 2**31 - 1)],
        [topic_in_record(ORDERS, MAX_PARTITIONS)],
        [topic_in_record(uuid.UUID(int=number), MAX_PARTITIONS // 100) for number in range(101)],
        [topic_in_record(ORDERS, 0, 1, epochs=(3,))],
        [topic_in_record(ORDERS, epochs=(3,))],
        [ORDERS.bytes + bytes([100]) + bytes(99)],
    ],
)
def test_partitions_that_nobody_can_have_make_a_record_unreadable(topics: list[bytes]) -> None:
    with pytest.raises(UnreadableRecord):
        decode_target(target_of(*topics))
    with pytest.raises(UnreadableRecord):
        decode_current(current_of([], topics))


def test_a_small_record_cannot_fill_the_memory_with_epochs() -> None:
    numbers = range(MAX_PARTITIONS - 70, MAX_PARTITIONS)
    whole = struct.pack(">70i", *numbers), struct.pack(">70i", *range(70))
    tag = bytes([71]) + whole[1]
    topic = ORDERS.bytes + bytes([71]) + whole[0] + b"\1\0" + bytes([len(tag) & 0x7F | 0x80, len(tag) >> 7]) + tag
    with pytest.raises(UnreadableRecord, match="70 epochs"):
        decode_current(current_of([topic], []))


def test_the_largest_number_that_there_can_be_is_readable() -> None:
    last = MAX_PARTITIONS - 1
    assert decode_target(target_of(topic_in_record(ORDERS, last))) == partitions_in(ORDERS, [last])


def test_a_record_need_not_be_as_tidy_as_ours() -> None:
    """A record may be unsorted, or have a topic twice or without partitions, a partition twice, no epochs: the last
    entry counts."""
    assigned = [
        topic_in_record(REFUNDS, 5, 2, epochs=(1, 3)),
        topic_in_record(ORDERS, 1, 0, 1, epochs=(1, 2, 3)),
        topic_in_record(ORDERS, 0, 9),
        topic_in_record(uuid.UUID(int=9)),
        topic_in_record(uuid.UUID(int=10), epochs=()),
    ]
    current = decode_current(current_of(assigned, [topic_in_record(REFUNDS, 7, 5, epochs=(2, 2))]))
    assert current.assigned == partitions_in(ORDERS, [0, 1, 9]) | partitions_in(REFUNDS, [2, 5])
    assert current.revoking == partitions_in(REFUNDS, [5, 7])
    assert current.since == (
        (1, partitions_in(REFUNDS, [5])),
        (2, partitions_in(REFUNDS, [7])),
        (3, partitions_in(ORDERS, [1]) | partitions_in(REFUNDS, [2])),
        (5, partitions_in(ORDERS, [0, 9])),
    )


def test_a_member_of_the_classic_protocol_that_supports_none_is_damage() -> None:
    profile = Profile(None, None, "", "", frozenset(), 1, None, None, ClassicPart(1, ()))
    with pytest.raises(UnreadableRecord, match="supports no protocol"):
        decode_profile(bytes(encode_profile(profile)))
