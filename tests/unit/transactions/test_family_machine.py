"""Families: who gets a slot, what a decision does to each, and what late, repeated and wrong requests change."""

from dataclasses import replace
from functools import partial

import pytest
from tests.unit.transactions.family_table import MAX_BYTES, NAME, Table, winner

from cordwood.model.errors import ErrorCode
from cordwood.model.families import slot_id
from cordwood.transactions import families_joining
from cordwood.transactions.families_deciding import FORGET_AFTER_MS, Asked, decide
from cordwood.transactions.families_records import NO_PLAN, Plan, family_key
from cordwood.transactions.log_records import encode_key, record_of
from cordwood.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, State, Transaction


@pytest.fixture
def table() -> Table:
    return Table()


def states(table: Table) -> list[State]:
    return [slot.state for _, slot in sorted(table.family.slots.items())]


def unchanged(table: Table, length_before: int) -> bool:
    return len(table.log) == length_before


# Joining


def test_writers_get_the_lowest_slots_that_nobody_has(table: Table) -> None:
    joined = [table.joins(0) for _ in range(3)]
    assert [each.transactional_id for each in joined] == [slot_id(NAME, number) for number in range(3)]
    assert {each.producer_epoch for each in joined} == {0}
    assert len({each.producer_id for each in joined}) == 3


def test_a_slot_is_used_again_with_a_higher_epoch_once_its_batch_is_decided(table: Table) -> None:
    first, second = table.joins_and_writes(0), table.joins_and_writes(0)
    table.commits(0, first, second)
    assert table.joins(1).transactional_id == slot_id(NAME, 2), "the markers of the first two are still on their way"
    table.marks()
    again = table.joins(1)
    assert again.transactional_id == first.transactional_id
    assert again.producer_id == first.producer_id
    assert again.producer_epoch > first.producer_epoch
    assert table.producer_ids_given == 3


def test_who_joins_for_a_batch_that_is_decided_is_told_to_write_nothing(table: Table) -> None:
    table.commits(5, table.joins_and_writes(5))
    for batch_id in (0, 4, 5):
        length = len(table.log)
        joined = table.asks_to_join(batch_id)
        assert (joined.decided, joined.last_batch_id, joined.slot) == (True, 5, None)
        assert unchanged(table, length)
    assert not table.asks_to_join(6).decided


def test_a_batch_that_was_aborted_can_be_joined_again(table: Table) -> None:
    table.joins_and_writes(3)
    table.aborts(3)
    assert table.joins(3).state is State.EMPTY


def test_a_slot_whose_epochs_are_used_up_goes_on_with_a_new_producer_id(table: Table) -> None:
    slot = table.joins(0)
    last = replace(slot, producer_epoch=LAST_CLIENT_EPOCH)
    table.append([record_of(last)])
    assert table.writes(last) is ErrorCode.NONE
    assert table.commits(0, last).error is ErrorCode.NONE
    assert table.slot(slot.transactional_id).producer_epoch == MAX_EPOCH
    table.marks()
    again = table.joins(1)
    assert again.transactional_id == slot.transactional_id
    assert again.producer_id != slot.producer_id
    assert again.producer_epoch == 0
    assert table.writes(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_family_has_so_many_slots_and_no_more(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families_joining, "MAX_SLOTS", 2)
    for _ in range(2):
        table.joins(0)
    joined = table.asks_to_join(0)
    assert (joined.error, joined.slot) == (ErrorCode.POLICY_VIOLATION, None)
    assert "fewer tasks" in (joined.message or "")
    table.aborts(0)
    assert table.joins(0).transactional_id == slot_id(NAME, 0)


# Committing


def test_a_commit_ends_winners_and_losers_in_one_append(table: Table) -> None:
    won, lost, idle_winner, _ = (table.joins(4) for _ in range(4))
    for each in (won, lost):
        assert table.writes(each) is ErrorCode.NONE
    decision = table.commits(4, won, idle_winner)
    assert (decision.error, decision.already_decided, decision.last_batch_id) == (ErrorCode.NONE, False, 4)
    (append,) = decision.appends
    assert len(append) == 5, "the family's record and four slots"
    assert states(table) == [State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]
    assert table.family.last_batch_id == 4
    table.marks()
    assert table.family.at_rest


def test_a_batch_without_winners_is_decided_too(table: Table) -> None:
    assert table.commits(0).last_batch_id == 0
    assert table.asks_to_join(0).decided


def test_nobody_who_joined_before_the_decision_writes_after_it(table: Table) -> None:
    won, lost, idle = table.joins_and_writes(0), table.joins_and_writes(0), table.joins(0)
    table.commits(0, won)
    for marked in (False, True):
        if marked:
            table.marks()
        for each in (won, lost, idle):
            assert table.writes(each, partition=1) in (ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_not_even_with_the_epoch_that_the_decision_left(table: Table) -> None:
    """Nobody is told that epoch, and a slot is opened by joining it only."""
    idle = table.joins(0)
    table.commits(0)
    ended = table.slot(idle.transactional_id)
    assert ended.producer_epoch == idle.producer_epoch + 1
    assert table.writes(ended) is ErrorCode.PRODUCER_FENCED


def _ended(table: Table) -> Transaction:
    slot = table.joins_and_writes(2)
    table.aborts(2)
    return slot


def _taken_over(table: Table) -> Transaction:
    slot = table.joins_and_writes(2)
    table.aborts(2)
    table.marks()
    table.joins(2)
    return slot


def _timed_out(table: Table) -> Transaction:
    slot = table.joins_and_writes(2)
    table.now_ms += 100_000
    assert table.looks() == [slot.transactional_id]
    return slot


def _of_another_batch(table: Table) -> Transaction:
    return table.joins_and_writes(1)


def _of_another_family(table: Table) -> Transaction:
    return replace(table.joins_and_writes(2), transactional_id=slot_id("other", 0))


def _never_given_out(table: Table) -> Transaction:
    return replace(table.joins_and_writes(2), transactional_id=slot_id(NAME, 77))


def _of_nobody(table: Table) -> Transaction:
    return replace(table.joins_and_writes(2), transactional_id="writer")


def _with_another_producer(table: Table) -> Transaction:
    return replace(table.joins_and_writes(2), producer_id=1)


@pytest.mark.parametrize(
    "bad_winner",
    [
        _ended,
        _taken_over,
        _timed_out,
        _of_another_batch,
        _of_another_family,
        _never_given_out,
        _of_nobody,
        _with_another_producer,
    ],
)
def test_one_winner_that_is_not_open_any_more_refuses_the_decision_and_nothing_changes(bad_winner: object) -> None:
    table = Table()
    assert callable(bad_winner)
    bad = bad_winner(table)
    good = table.joins_and_writes(2)
    length = len(table.log)
    decision = table.commits(2, good, bad)
    assert (decision.error, decision.already_decided) == (ErrorCode.PRODUCER_FENCED, False)
    assert bad.transactional_id in (decision.message or "")
    assert unchanged(table, length)
    assert table.slot(good.transactional_id).state is State.ONGOING
    assert table.commits(2, good).error is ErrorCode.NONE


def test_a_winner_that_is_named_twice_wins_once(table: Table) -> None:
    slot = table.joins_and_writes(0)
    assert table.commits(0, slot, slot).error is ErrorCode.NONE
    assert states(table) == [State.PREPARE_COMMIT]


def test_a_decision_that_does_not_fit_into_one_batch_is_refused_before_anything_is_written(table: Table) -> None:
    slots = [table.joins_and_writes(0) for _ in range(20)]
    length = len(table.log)
    asked = Asked(0, True, [winner(each) for each in slots])
    decision = table.asks_to_decide(asked, max_bytes=2_000)
    assert decision.error is ErrorCode.MESSAGE_TOO_LARGE
    for word in ("20 slots", "max.message.bytes"):
        assert word in (decision.message or "")
    assert (decision.last_batch_id, unchanged(table, length)) == (-1, True)
    assert table.asks_to_decide(asked, max_bytes=10_000).error is ErrorCode.NONE


def test_losers_that_do_not_fit_into_the_decision_end_after_it(table: Table) -> None:
    slots = [table.joins_and_writes(0) for _ in range(20)]
    asked = Asked(0, True, [winner(each) for each in slots[:2]])
    decision = table.asks_to_decide(asked, max_bytes=1_000)
    assert decision.error is ErrorCode.NONE
    first, *rest = decision.appends
    assert rest
    assert first[0][0] == family_key(NAME)
    assert {key for key, _ in first} >= {encode_key(each.transactional_id) for each in slots[:2]}
    assert states(table) == [State.PREPARE_COMMIT] * 2 + [State.PREPARE_ABORT] * 18


def test_losers_whose_end_was_cut_off_win_nothing_and_end_with_the_next_decision(table: Table) -> None:
    won, *lost = [table.joins_and_writes(0) for _ in range(20)]
    decision = decide(table.family, Asked(0, True, [winner(won)]), max_bytes=1_000, wall_ms=table.now_ms)
    table.append(decision.appends[0])
    table.restart()
    assert State.ONGOING in states(table)
    again = table.commits(0, won, *lost)
    assert (again.error, again.already_decided) == (ErrorCode.NONE, True)
    assert states(table) == [State.PREPARE_COMMIT] + [State.PREPARE_ABORT] * 19


# What a decision keeps of its batch

PLAN = Plan(20, b"digest", b"the text of a plan " * 20)


def test_a_commit_keeps_the_plan_of_its_batch_until_the_next_one(table: Table) -> None:
    slot = table.joins_and_writes(0)
    table.asks_to_decide(Asked(0, True, [winner(slot)], plan=PLAN))
    table.asks_to_decide(Asked(0, True, plan=Plan(7, b"of a repeated batch", b"another text")))
    table.asks_to_decide(Asked(1, False, plan=Plan(7, b"of a batch that was aborted", b"another text")))
    table.restart()
    assert kept_plan(table) == PLAN
    assert table.machine.families.plan_bytes == len(PLAN.text)
    table.commits(1)
    assert kept_plan(table) == NO_PLAN
    assert table.machine.families.plan_bytes == 0


def test_a_plan_that_does_not_fit_is_kept_as_its_digest_and_the_batch_is_committed(table: Table) -> None:
    decide_with_room = partial(decide, table.family, max_bytes=MAX_BYTES, wall_ms=table.now_ms)
    decision = decide_with_room(Asked(0, True, plan=PLAN), plan_room_bytes=len(PLAN.text) - 1)
    table.append(decision.appends[0])
    assert kept_plan(table) == PLAN._replace(text=b"")
    slots = [table.joins_and_writes(1) for _ in range(5)]
    beside_winners = table.asks_to_decide(Asked(1, True, [winner(each) for each in slots], plan=PLAN), max_bytes=700)
    assert (beside_winners.error, len(beside_winners.appends)) == (ErrorCode.NONE, 1)
    assert kept_plan(table) == PLAN._replace(text=b"")
    assert states(table) == [State.PREPARE_COMMIT] * 5


def kept_plan(table: Table) -> Plan:
    memory = table.family.memory
    assert memory is not None
    return memory.plan


# Deciding again, late, or by somebody else


def test_a_decision_that_is_repeated_after_a_lost_answer_changes_nothing(table: Table) -> None:
    slot = table.joins_and_writes(0)
    table.commits(0, slot)
    for marked in (False, True):
        if marked:
            table.marks()
        length = len(table.log)
        decision = table.commits(0, slot)
        assert (decision.error, decision.already_decided, decision.last_batch_id) == (ErrorCode.NONE, True, 0)
        assert unchanged(table, length)


def test_whoever_decides_a_batch_second_commits_nothing_and_its_writers_are_aborted(table: Table) -> None:
    first, second = table.joins_and_writes(7), table.joins_and_writes(7)
    table.commits(7, first)
    table.marks()
    late = table.joins_and_writes(8)
    decision = table.commits(7, second)
    assert decision.already_decided
    assert table.slot(second.transactional_id).state is State.COMPLETE_ABORT
    assert table.slot(late.transactional_id).state is State.ONGOING, "the next batch is none of its business"


def test_a_writer_that_joined_before_the_decision_of_another_driver_is_aborted_by_its_own(table: Table) -> None:
    """Both replay the batch; one of them wins."""
    theirs = table.joins_and_writes(3)
    table.commits(2)
    mine = table.joins_and_writes(3)
    assert table.commits(3, theirs).error is ErrorCode.NONE
    assert table.slot(mine.transactional_id).state is State.PREPARE_ABORT
    assert table.commits(3, mine).already_decided


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_about_an_earlier_batch_than_the_last_is_no_news(table: Table, commit: bool) -> None:
    table.commits(9)
    running = table.joins_and_writes(10)
    decision = table.asks_to_decide(Asked(4, commit))
    assert (decision.error, decision.already_decided, decision.last_batch_id) == (ErrorCode.NONE, True, 9)
    assert table.family.last_batch_id == 9
    assert table.slot(running.transactional_id).state is State.ONGOING


def test_an_abort_does_not_undo_a_commit(table: Table) -> None:
    """Spark aborts a batch whose commit was decided and answered too late."""
    slot = table.joins_and_writes(0)
    table.commits(0, slot)
    assert table.aborts(0).already_decided
    assert states(table) == [State.PREPARE_COMMIT]


def test_an_abort_ends_all_of_the_batch_and_before_and_nothing_after(table: Table) -> None:
    for batch_id in (1, 2, 3):
        table.joins_and_writes(batch_id)
    table.joins(2)
    decision = table.aborts(2)
    assert (decision.already_decided, decision.last_batch_id) == (False, -1)
    assert states(table) == [State.PREPARE_ABORT, State.PREPARE_ABORT, State.ONGOING, State.COMPLETE_ABORT]
    assert not table.asks_to_join(2).decided


def test_an_abort_that_names_writers_ends_these_and_nobody_else(table: Table) -> None:
    failed, other, idle = table.joins_and_writes(1), table.joins_and_writes(1), table.joins(1)
    assert table.aborts(1, failed, idle).last_batch_id == -1
    assert states(table) == [State.PREPARE_ABORT, State.ONGOING, State.COMPLETE_ABORT]
    table.marks()
    again = table.joins_and_writes(1)
    assert again.transactional_id == failed.transactional_id
    assert table.aborts(1, failed).appends == [], "it has the slot no more, and takes nothing from who has"
    assert table.commits(1, other, again).error is ErrorCode.NONE


def test_an_abort_may_come_in_parts_where_a_commit_would_not_fit(table: Table) -> None:
    for _ in range(20):
        table.joins_and_writes(0)
    decision = table.asks_to_decide(Asked(0, False), max_bytes=1_000)
    assert decision.error is ErrorCode.NONE
    assert len(decision.appends) > 1
    assert set(states(table)) == {State.PREPARE_ABORT}


def test_a_batch_is_decided_while_the_markers_of_the_last_one_are_on_their_way(table: Table) -> None:
    first = table.joins_and_writes(0)
    table.commits(0, first)
    second = table.joins_and_writes(1)
    assert table.commits(1, second).error is ErrorCode.NONE
    completing = [slot.transactional_id for slot in table.family.completing(1)]
    assert completing == [first.transactional_id, second.transactional_id], "the answer waits for both"


# Time


def test_slots_that_nobody_renews_time_out_with_or_without_something_written(table: Table) -> None:
    wrote, idle = table.joins_and_writes(0, 1_000), table.joins(0, 2_000)
    table.now_ms += 999
    assert table.looks() == []
    table.now_ms += 1
    assert table.looks() == [wrote.transactional_id]
    table.now_ms += 1_000
    assert table.looks() == [idle.transactional_id]
    assert states(table) == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert table.writes(idle) is ErrorCode.PRODUCER_FENCED


def test_any_writer_renews_all_of_its_batch_and_only_that(table: Table) -> None:
    left_behind, running = table.joins_and_writes(0, 1_000), table.joins_and_writes(1, 1_000)
    for _ in range(5):
        table.now_ms += 600
        table.leases.renew(NAME, 1, table.now_ms)
        table.looks()
    assert table.slot(left_behind.transactional_id).state is State.PREPARE_ABORT
    assert table.slot(running.transactional_id).state is State.ONGOING


def test_everybody_has_the_full_timeout_again_after_a_restart(table: Table) -> None:
    slot = table.joins_and_writes(0, 1_000)
    table.now_ms += 5_000
    table.restart()
    assert table.looks() == []
    table.now_ms += 999
    assert table.looks() == []
    table.now_ms += 1
    assert table.looks() == [slot.transactional_id]


def test_leases_are_kept_only_for_batches_that_somebody_has_joined(table: Table) -> None:
    table.joins(0)
    table.joins(1)
    table.leases.renew(NAME, 2, table.now_ms)
    assert table.leases.batches() == [(NAME, 0), (NAME, 1)]
    table.leases.forget([(NAME, 0), (NAME, 2)])
    assert table.leases.batches() == [(NAME, 1)]


def test_slots_expire_and_the_family_does_not(table: Table) -> None:
    table.commits(41, table.joins_and_writes(41))
    table.marks()
    joined = table.joins(42)
    table.joins(42)
    table.now_ms += 1_000_000
    table.append(table.machine.expired(table.now_ms, 500_000))
    assert joined.transactional_id in [each.transactional_id for each in table.machine], "joined slots have leases"
    table.looks()
    table.now_ms += 1_000_000
    table.append(table.machine.expired(table.now_ms, 500_000))
    assert table.family.slots == {}
    table.compact()
    table.restart()
    assert table.asks_to_join(41).decided, "a restart after weeks still knows"
    assert table.joins(42).transactional_id == slot_id(NAME, 0)


def test_a_gap_that_expiry_left_is_filled(table: Table) -> None:
    for _ in range(4):
        table.joins(0)
    table.append([(key, None) for key, _ in [record_of(table.slot(slot_id(NAME, number))) for number in (1, 2)]])
    numbers = {table.joins(0).transactional_id for _ in range(3)}
    assert numbers == {slot_id(NAME, number) for number in (1, 2, 4)}


# Forgetting


def test_a_forgotten_family_answers_for_a_while_and_then_goes_with_its_slots(table: Table) -> None:
    table.commits(0, table.joins_and_writes(0), forget=True)
    assert table.commits(0).already_decided
    table.now_ms += FORGET_AFTER_MS
    assert table.forgets() == 0, "its markers are on their way"
    table.marks()
    assert table.forgets() == 2
    assert NAME not in table.machine.families
    assert list(table.machine) == []


def test_a_family_is_not_forgotten_before_its_time_or_without_being_asked(table: Table) -> None:
    table.commits(0, table.joins_and_writes(0))
    table.marks()
    table.now_ms += 100 * FORGET_AFTER_MS
    assert table.forgets() == 0
    table.commits(1, forget=True)
    table.now_ms += FORGET_AFTER_MS - 1
    assert table.forgets() == 0
    table.commits(2)
    table.now_ms += FORGET_AFTER_MS
    assert table.forgets() == 0, "somebody goes on with it"


def test_aborting_and_forgetting_leaves_nothing(table: Table) -> None:
    table.joins_and_writes(0)
    table.aborts(2**63 - 1, forget=True)
    table.marks()
    table.now_ms += FORGET_AFTER_MS
    table.forgets()
    assert NAME not in table.machine.families
    length = len(table.log)
    table.aborts(5, forget=True)
    assert unchanged(table, length), "nothing is written about a family that nobody knows"


# State comes from records


def test_everything_is_as_it_was_after_a_restart_compacted_or_not(table: Table) -> None:
    table.commits(0, table.joins_and_writes(0), table.joins(0))
    table.joins_and_writes(1)
    table.joins(1)
    before = (table.family.memory, dict(table.family.slots), table.family.free_slot())
    for compacted in (False, True):
        if compacted:
            table.compact()
        table.restart()
        assert (table.family.memory, dict(table.family.slots), table.family.free_slot()) == before
