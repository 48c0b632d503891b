"""Shares are sets of partitions; holders follow from all members' records, in whatever order they come."""

import uuid

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.consumer_stage import GROUP, ORDERS, REFUNDS, partitions_of

from cordwood.groups.consumer.group import ConsumerGroup
from cordwood.groups.consumer.member import Current, MemberState
from cordwood.groups.consumer.partition_sets import (
    NOTHING,
    Share,
    by_topic_id,
    mask_of,
    numbers_in,
    partitions_in,
    share_of,
)
from cordwood.groups.consumer.records import CURRENT_TYPE, RecordKey, encode_current
from cordwood.groups.consumer.since import had_all_in, since_now, since_within
from cordwood.model.identifiers import TopicId

Plain = frozenset[tuple[TopicId, int]]

topics = st.sampled_from([ORDERS, REFUNDS, uuid.UUID(int=2**128 - 1)])
plain_shares = st.frozensets(st.tuples(topics, st.integers(0, 20) | st.integers(0, 3000)), max_size=30)
numbers = st.one_of(
    st.sets(st.integers(0, 40), min_size=1),
    st.sets(st.integers(0, 200), min_size=60, max_size=150),
    st.sets(st.integers(0, 20_000), min_size=1, max_size=5),
    st.builds(lambda start, count: set(range(start, start + count)), st.integers(0, 300), st.integers(1, 300)),
)


def plain(share: Share) -> Plain:
    return frozenset(partitions_of(share))


@given(plain_shares, plain_shares)
def test_shares_are_sets(one: Plain, other: Plain) -> None:
    a, b = share_of(one), share_of(other)
    assert plain(a) == one
    assert (plain(a & b), plain(a | b), plain(a - b)) == (one & other, one | other, one - other)
    assert (a <= b, a < b, a == b, a != b) == (one <= other, one < other, one == other, one != other)
    assert a & b <= a <= a | b
    assert a.isdisjoint(b) == one.isdisjoint(other)
    assert (len(a), bool(a)) == (len(one), bool(one))
    assert a - b | a & b == a
    assert hash(a - b | a & b) == hash(a)
    assert (a == NOTHING) == (not one)
    assert all(share.masks.keys() == {topic for topic, mask in share.masks.items() if mask} for share in (a & b, a - b))
    if one.isdisjoint(other):
        assert a - b is a


@given(plain_shares)
def test_shares_are_listed_by_topic_and_number(one: Plain) -> None:
    listed = by_topic_id(share_of(one))
    assert [(topic_id, number) for topic_id, found in listed for number in found] == sorted(one)
    assert len({topic_id for topic_id, _ in listed}) == len(listed)


@given(numbers)
def test_bits_are_numbers(some: set[int]) -> None:
    mask = sum(1 << number for number in some)
    assert [*numbers_in(mask)] == sorted(some)
    assert mask_of(sorted(some)) == mask
    assert mask_of([*some, *sorted(some, reverse=True)]) == mask


# Since when


@given(plain_shares, plain_shares, plain_shares)
def test_what_is_kept_counts_from_its_own_epoch(first: Plain, second: Plain, kept: Plain) -> None:
    then = since_now((), NOTHING, share_of(first), 3)
    assert then == (((3, share_of(first)),) if first else ())
    both = since_now(then, share_of(first & kept), share_of(first & kept | second), 5)
    epochs = {partition: epoch for epoch, share in both for partition in partitions_of(share)}
    assert epochs == dict.fromkeys(second, 5) | dict.fromkeys(first & kept, 3)
    assert sum(len(share) for _, share in both) == len(epochs)
    assert had_all_in(both, 5, share_of(first & kept | second))
    assert had_all_in(both, 4, share_of(kept)) == (kept <= first)
    assert had_all_in(both, 2, share_of(kept)) == (not kept)
    assert since_within(both, share_of(second - first)) == (((5, share_of(second - first)),) if second - first else ())


# Holdings

MEMBERS = ("a", "b", "c")


class DumbGroup:
    """A twin that computes everything again from the holdings of each member."""

    def __init__(self) -> None:
        self.group = ConsumerGroup(GROUP)
        self.held: dict[str, Plain] = {}

    def replay(self, member_id: str, assigned: Plain | None, revoking: Plain = frozenset()) -> None:
        value = None
        self.held.pop(member_id, None)
        if assigned is not None:
            share = share_of(assigned | revoking)
            since = ((1, share),) if share else ()
            current = Current(1, 0, MemberState.STABLE, share_of(assigned), share_of(revoking), since)
            value = encode_current(current)
            self.held[member_id] = assigned | revoking
        self.group.replay(RecordKey(CURRENT_TYPE, GROUP, member_id), value)

    def check(self, wanted: Plain) -> None:
        for own in [(), ("a",), ("b", None), ("a", "c"), MEMBERS]:
            others = [held for member_id, held in self.held.items() if member_id not in own]
            expected = wanted & frozenset().union(*others)
            assert plain(self.group.held_by_others(share_of(wanted), own)) == expected


few = st.frozensets(st.tuples(st.sampled_from([ORDERS, REFUNDS]), st.integers(0, 5)))
replays = st.tuples(st.sampled_from(MEMBERS), st.none() | few, few, few)


@given(st.lists(replays, max_size=12))
def test_what_others_hold_is_told_whatever_the_order_of_records(steps: list[tuple[str, Plain, Plain, Plain]]) -> None:
    dumb = DumbGroup()
    for member_id, assigned, revoking, wanted in steps:
        dumb.replay(member_id, assigned, revoking)
        dumb.check(wanted)
    for member_id in MEMBERS:
        dumb.replay(member_id, None)
    assert not dumb.group.holdings.contested
    assert not dumb.group.held_by_others(partitions_in(ORDERS, range(6)) | partitions_in(REFUNDS, range(6)), ())


def test_who_gives_back_what_another_was_said_to_have_first_takes_nothing_from_that_one() -> None:
    """The record of the new holder may precede those of the former holder."""
    group = DumbGroup()
    partition = frozenset({(ORDERS, 0)})
    group.replay("b", partition)
    group.replay("a", partition)
    group.replay("a", frozenset())
    assert plain(group.group.held_by_others(share_of(partition), ["c"])) == partition
    assert not group.group.held_by_others(share_of(partition), ["b"])
    group.replay("b", None)
    assert not group.group.held_by_others(share_of(partition), ["c"])
