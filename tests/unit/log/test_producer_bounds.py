"""How many producers a partition and a process remember, and what a producer that was forgotten hears."""

import pytest
from tests.unit.log.test_producer_states import NOW_MS, header

from cordwood.log.parts.producer_bounds import ProducerBounds
from cordwood.log.parts.producers import ProducerStates
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.segments.producer_snapshot import decode_snapshot, encode_snapshot

DAY_MS = 86_400_000


def append(
    states: ProducerStates, producer: int, sequence: int = 0, *, now_ms: int = NOW_MS, open_: bool = False
) -> None:
    states.check(header(sequence, producer=producer))
    states.appended(producer, 0, sequence, 0, 0, now_ms, now_ms, open_)


def test_a_partition_remembers_so_many_and_forgets_those_that_were_silent_for_longest() -> None:
    states = ProducerStates(ProducerBounds(in_partition=100, in_all=1000))
    append(states, 1, now_ms=NOW_MS)
    append(states, 2, now_ms=NOW_MS)
    for number in range(3, 1000):
        append(states, 1, number - 2, now_ms=NOW_MS + number)
        append(states, number, now_ms=NOW_MS + number)
        assert len(states) <= 100
    assert states.knows(1), "it went on"
    assert not states.knows(2)
    assert states.knows(999)


def test_all_partitions_together_remember_so_many_and_the_fullest_forgets_first() -> None:
    bounds = ProducerBounds(in_partition=1000, in_all=300)
    small, large = ProducerStates(bounds), ProducerStates(bounds)
    for number in range(20):
        append(small, number)
    for number in range(2000):
        append(large, number, now_ms=NOW_MS + number)
        assert len(small) + len(large) <= 300
    assert len(small) == 20


def test_partitions_that_are_gone_take_no_room() -> None:
    bounds = ProducerBounds(in_partition=100, in_all=150)
    for _ in range(5):
        gone = ProducerStates(bounds)
        for number in range(60):
            append(gone, number)
        del gone
    states = ProducerStates(bounds)
    for number in range(99):
        append(states, number)
    assert len(states) == 99


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = ProducerStates(ProducerBounds(in_partition=10, in_all=1000))
    append(states, 1, open_=True)
    for number in range(2, 100):
        append(states, number, now_ms=NOW_MS + number)
    assert states.knows(1)
    assert states.first_open_offset == 0


def test_a_producer_that_was_forgotten_is_told_so_and_one_that_begins_is_taken() -> None:
    states = ProducerStates(ProducerBounds(in_partition=10, in_all=1000))
    append(states, 1)
    for number in range(2, 20):
        append(states, number, now_ms=NOW_MS + number)
    assert not states.knows(1)
    with pytest.raises(ProtocolError) as refusal:
        append(states, 1, 1)
    assert refusal.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    append(states, 500)
    append(states, 1, 0)


def test_after_the_time_of_expiry_nobody_can_have_been_forgotten_too_early() -> None:
    states = ProducerStates(ProducerBounds(in_partition=10, in_all=1000))
    for number in range(1, 20):
        append(states, number, now_ms=NOW_MS)
    states.expire(NOW_MS + DAY_MS, DAY_MS)
    append(states, 1, 7, now_ms=NOW_MS + DAY_MS)
    assert states.knows(1)


def test_what_a_snapshot_holds_counts() -> None:
    bounds = ProducerBounds(in_partition=50, in_all=1000)
    full = ProducerStates(ProducerBounds())
    for number in range(100):
        append(full, number)
    restored = ProducerStates.from_snapshot(full.snapshot_entries(), NOW_MS, bounds)
    assert len(restored) <= 50


def test_a_producer_that_was_forgotten_is_told_so_after_a_restart_too() -> None:
    states = ProducerStates(ProducerBounds(in_partition=10, in_all=1000))
    for number in range(20):
        append(states, number, now_ms=NOW_MS + number)
    assert not states.knows(0)
    restarted_ms = NOW_MS + DAY_MS // 2
    entries = decode_snapshot(encode_snapshot(states.snapshot_entries()))
    again = ProducerStates.from_snapshot(entries, restarted_ms, ProducerBounds(in_partition=100, in_all=1000))
    assert len(again) == len(states)
    with pytest.raises(ProtocolError) as refused:
        again.check(header(1, producer=0))
    assert refused.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    again.expire(NOW_MS + DAY_MS + 20, DAY_MS)
    assert again.check(header(1, producer=0)) is None, (
        "the time counts from when it was forgotten, not from the restart"
    )
