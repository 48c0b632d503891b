"""The assignors give every partition to one of its readers, evenly, and with few moves."""

import uuid

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.consumer_stage import ORDERS, REFUNDS, partitions_of

from cordwood.groups.consumer.assignors import assign_range, assign_uniform
from cordwood.groups.consumer.balancing import Subscriber
from cordwood.groups.consumer.partition_sets import NOTHING, by_topic_id, partitions_in, share_of
from cordwood.groups.consumer.topics import TopicShape

subscriptions = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.frozensets(st.sampled_from(["orders", "refunds"]), min_size=1),
    min_size=1,
)


@given(subscriptions, st.integers(1, 12), st.integers(1, 12))
def test_every_partition_goes_to_exactly_one_who_reads_it(
    readers: dict[str, frozenset[str]], orders: int, refunds: int
) -> None:
    topics = {"orders": TopicShape(ORDERS, orders), "refunds": TopicShape(REFUNDS, refunds)}
    subscribers = [Subscriber(name, None, read, NOTHING) for name, read in readers.items()]
    expected = {
        (shape.topic_id, partition)
        for name, shape in topics.items()
        if any(name in each.topics for each in subscribers)
        for partition in range(shape.partitions)
    }
    for assign in (assign_range, assign_uniform):
        assigned = assign(subscribers, topics)
        flat = [partition for share in assigned.values() for partition in partitions_of(share)]
        assert sorted(flat) == sorted(expected)
        for each in subscribers:
            allowed = {topics[name].topic_id for name in each.topics}
            assert {topic_id for topic_id, _ in by_topic_id(assigned[each.member_id])} <= allowed


@given(st.integers(1, 30), st.integers(1, 8))
def test_uniform_is_even_and_moves_no_more_than_it_must(partitions: int, count: int) -> None:
    topics = {"orders": TopicShape(ORDERS, partitions)}
    read = frozenset({"orders"})
    before = assign_uniform([Subscriber(f"m{n}", None, read, NOTHING) for n in range(count)], topics)
    assert max(map(len, before.values())) - min(map(len, before.values())) <= 1
    more = [Subscriber(f"m{n}", None, read, before.get(f"m{n}", NOTHING)) for n in range(count + 1)]
    after = assign_uniform(more, topics)
    moved = sum(len(after[name] - share) for name, share in before.items())
    assert moved == 0, "only the newcomer gets anything"
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1


@given(st.integers(1, 40), st.integers(2, 9), st.integers(1, 8), st.integers(0, 12))
def test_when_members_leave_or_topics_grow_those_who_stay_keep_what_they_have(
    partitions: int, count: int, leaving: int, growing: int
) -> None:
    read = frozenset({"orders", "refunds"})
    topics = {"orders": TopicShape(ORDERS, partitions), "refunds": TopicShape(REFUNDS, 3)}
    before = assign_uniform([Subscriber(f"m{n}", None, read, NOTHING) for n in range(count)], topics)
    stay = range(min(leaving, count - 1), count)
    grown = topics | {"orders": TopicShape(ORDERS, partitions + growing)}
    after = assign_uniform([Subscriber(f"m{n}", None, read, before[f"m{n}"]) for n in stay], grown)
    assert all(before[f"m{n}"] <= after[f"m{n}"] for n in stay)
    flat = [partition for share in after.values() for partition in partitions_of(share)]
    assert len(flat) == len(set(flat)) == partitions + growing + 3
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1


def test_a_thousand_members_share_ten_thousand_partitions_without_holding_up_the_loop() -> None:
    """Work grows with members and partitions, not with their product, which would take half a minute here."""
    topics = {"orders": TopicShape(ORDERS, 10_000)}
    read = frozenset({"orders"})
    before = assign_uniform([Subscriber(f"m{n}", None, read, NOTHING) for n in range(1000)], topics)
    after = assign_uniform([Subscriber(f"m{n}", None, read, before.get(f"m{n}", NOTHING)) for n in range(1001)], topics)
    assert {len(share) for share in before.values()} == {10}
    assert sum(len(share) for share in after.values()) == 10_000
    assert sum(before[name] != after[name] for name in before) == len(after["m1000"]) == 9


MIXED = {f"t{number}": TopicShape(uuid.UUID(int=100 + number), 1 + number * 2) for number in range(5)}


@given(st.data())
def test_with_mixed_subscriptions_no_single_move_would_make_shares_more_even(data: st.DataObject) -> None:
    """Members may have had anything before: too many partitions, deleted ones, unsubscribed ones, those of another
    member."""
    partitions = [(shape.topic_id, n) for shape in MIXED.values() for n in range(shape.partitions + 1)]
    read = st.frozensets(st.sampled_from([*MIXED, "gone"]))
    had = st.frozensets(st.sampled_from([*partitions, (ORDERS, 0)])).map(share_of)
    drawn = data.draw(st.lists(st.tuples(read, had), min_size=1, max_size=12))
    subscribers = [Subscriber(f"m{place}", None, *each) for place, each in enumerate(drawn)]
    shares = assign_uniform(subscribers, MIXED)
    owner = {partition: name for name, share in shares.items() for partition in partitions_of(share)}
    assert sum(map(len, shares.values())) == len(owner), "a partition has one reader"
    for name, (topic_id, count) in MIXED.items():
        readers = [each.member_id for each in subscribers if name in each.topics]
        there = [(topic_id, number) for number in range(count)]
        if not readers:
            assert owner.keys().isdisjoint(there)
        else:
            assert {owner[partition] for partition in there} <= set(readers)
            lightest = min(len(shares[reader]) for reader in readers)
            assert max(len(shares[owner[partition]]) for partition in there) - lightest < 2
    again = assign_uniform([each._replace(target=shares[each.member_id]) for each in subscribers], MIXED)
    assert all(again[name] is share or again[name] == share == NOTHING for name, share in shares.items())


def test_many_who_have_more_and_cannot_give_do_not_hold_up_those_who_can() -> None:
    """A search through all members with more partitions, for each partition that moves, would take minutes here."""
    topics = {"orders": TopicShape(ORDERS, 20_000), "refunds": TopicShape(REFUNDS, 5_000)}
    orders = [partitions_in(ORDERS, range(n, 20_000, 500)) for n in range(500)]
    refunds = [partitions_in(REFUNDS, range(n, 5_000, 250)) for n in range(250)]
    rich = [Subscriber(f"a{n}", None, frozenset({"orders"}), share) for n, share in enumerate(orders)]
    half = [Subscriber(f"b{n}", None, frozenset({"refunds"}), share) for n, share in enumerate(refunds)]
    poor = [Subscriber(f"c{n}", None, frozenset({"refunds"}), NOTHING) for n in range(250)]
    shares = assign_uniform([*rich, *half, *poor], topics)
    assert all(shares[each.member_id] is each.target for each in rich)
    assert {len(shares[each.member_id]) for each in half + poor} == {10}
    assert all(shares[each.member_id] < each.target for each in half), "nobody is given what it had not"
