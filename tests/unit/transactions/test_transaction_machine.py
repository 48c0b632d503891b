"""The transaction coordinator's transitions: who may write, how transactions end, and what a late request can do."""

from dataclasses import replace

import pytest
from tests.moments import at

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.transactions.adding import add_partitions, verify_partitions
from cordwood.transactions.beginning import Beginning, init_producer
from cordwood.transactions.ending import complete, end_transaction, time_out
from cordwood.transactions.log_records import record_of
from cordwood.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    NeedsProducerId,
    NewProducerId,
    State,
    Step,
    Transaction,
    no_producer_id,
)
from cordwood.transactions.transactional_ids import Transactions

NAME = "writer"
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)
EMPTY = Transaction(NAME, 7, 3, 60_000, State.EMPTY, 1000)
OPEN = replace(EMPTY, state=State.ONGOING, partitions=frozenset({ORDERS}), started_ms=1000, client_version=2)
OPEN_V1 = replace(OPEN, client_version=1)
FRESH = Beginning(NAME, 60_000)


def fresh_id() -> int:
    return 99


def end(
    found: Transaction | None,
    epoch: int,
    *,
    commit: bool = True,
    version: int = 2,
    producer_id: int = 7,
    new_id: NewProducerId = no_producer_id,
) -> Step:
    return end_transaction(
        found, producer_id, epoch, commit=commit, client_version=version, new_producer_id=new_id, wall_ms=2000
    )


def changed(step: Step) -> Transaction:
    assert step.changed is not None, step.error
    return step.changed


# Beginning


def test_an_unknown_id_gets_a_new_producer_with_epoch_0() -> None:
    with pytest.raises(NeedsProducerId):
        init_producer(None, FRESH, no_producer_id, 1000)
    step = init_producer(None, FRESH, fresh_id, 1000)
    assert (step.error, step.producer_id, step.producer_epoch) == (ErrorCode.NONE, 99, 0)
    assert changed(step).state is State.EMPTY


def test_a_new_producer_of_a_known_id_gets_a_higher_epoch() -> None:
    step = init_producer(EMPTY, FRESH._replace(timeout_ms=500), no_producer_id, 2000)
    assert (step.producer_id, step.producer_epoch) == (7, 4)
    assert changed(step).timeout_ms == 500


def test_an_open_transaction_is_aborted_before_the_next_producer_begins() -> None:
    step = init_producer(OPEN, FRESH, no_producer_id, 2000)
    assert step.error is ErrorCode.CONCURRENT_TRANSACTIONS
    aborting = changed(step)
    assert (aborting.state, aborting.producer_epoch) == (State.PREPARE_ABORT, 4)
    assert init_producer(aborting, FRESH, no_producer_id, 2000) == Step(ErrorCode.CONCURRENT_TRANSACTIONS)
    step = init_producer(complete(aborting, 2100), FRESH, no_producer_id, 2200)
    assert (step.error, step.producer_epoch) == (ErrorCode.NONE, 5)


def test_a_producer_resumes_with_the_epoch_it_has_and_may_ask_twice() -> None:
    mine = Beginning(NAME, 60_000, 7, 3)
    raised = changed(init_producer(EMPTY, mine, no_producer_id, 2000))
    assert raised.producer_epoch == 4
    again = init_producer(raised, mine, no_producer_id, 2000)
    assert (again.error, again.producer_epoch) == (ErrorCode.NONE, 4)


def test_a_producer_that_was_replaced_does_not_resume() -> None:
    replaced = changed(init_producer(EMPTY, FRESH, no_producer_id, 2000))
    for producer_id, epoch in ((7, 3), (7, 2), (8, 4)):
        step = init_producer(replaced, Beginning(NAME, 60_000, producer_id, epoch), no_producer_id, 2000)
        assert step == Step(ErrorCode.PRODUCER_FENCED)


def test_a_producer_that_resumes_in_its_own_open_transaction_gets_through() -> None:
    mine = Beginning(NAME, 60_000, 7, 3)
    aborted = complete(changed(init_producer(OPEN, mine, no_producer_id, 2000)), 2100)
    step = init_producer(aborted, mine, no_producer_id, 2200)
    assert (step.error, step.producer_id, step.producer_epoch) == (ErrorCode.NONE, 7, 4)


def test_an_id_whose_epochs_are_used_up_is_followed_by_a_new_one() -> None:
    used_up = replace(EMPTY, producer_epoch=LAST_CLIENT_EPOCH)
    with pytest.raises(NeedsProducerId):
        init_producer(used_up, FRESH, no_producer_id, 2000)
    step = init_producer(used_up, FRESH, fresh_id, 2000)
    assert (step.producer_id, step.producer_epoch, changed(step).previous_producer_id) == (99, 0, 7)


def test_no_producer_is_given_the_last_epoch_which_only_fences() -> None:
    mine = Beginning(NAME, 60_000, 7, LAST_CLIENT_EPOCH)
    at_the_end = replace(OPEN, producer_epoch=LAST_CLIENT_EPOCH)
    aborted = complete(changed(init_producer(at_the_end, mine, no_producer_id, 2000)), 2100)
    assert aborted.producer_epoch == MAX_EPOCH
    step = init_producer(aborted, mine, fresh_id, 2200)
    assert (step.producer_id, step.producer_epoch) == (99, 0)


# Partitions


def test_the_first_partition_opens_the_transaction_and_starts_its_clock() -> None:
    opened = changed(add_partitions(EMPTY, 7, 3, [ORDERS], client_version=1, wall_ms=2000, max_partitions=10))
    assert (opened.state, opened.partitions, opened.started_ms) == (State.ONGOING, frozenset({ORDERS}), 2000)
    more = changed(add_partitions(opened, 7, 3, [BILLS], client_version=1, wall_ms=3000, max_partitions=10))
    assert (more.partitions, more.started_ms) == (frozenset({ORDERS, BILLS}), 2000)
    assert add_partitions(more, 7, 3, [ORDERS], client_version=1, wall_ms=3000, max_partitions=10) == Step()


def test_partitions_of_the_last_transaction_are_not_those_of_the_next() -> None:
    done = complete(changed(end(OPEN, 3)), 2100)
    assert verify_partitions(done, 7, 4, [ORDERS]) == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    assert changed(
        add_partitions(done, 7, 4, [BILLS], client_version=2, wall_ms=3000, max_partitions=10)
    ).partitions == {BILLS}


@pytest.mark.parametrize(
    ("found", "producer_id", "epoch", "error"),
    [
        (None, 7, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (OPEN, 8, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (OPEN, 7, 2, ErrorCode.PRODUCER_FENCED),
        (OPEN, 7, 4, ErrorCode.PRODUCER_FENCED),
        (replace(OPEN, state=State.PREPARE_COMMIT), 7, 3, ErrorCode.CONCURRENT_TRANSACTIONS),
        (replace(OPEN, state=State.PREPARE_ABORT), 7, 2, ErrorCode.PRODUCER_FENCED),
        (replace(OPEN, state=State.PREPARE_ABORT, next_producer_id=9), 9, 0, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_who_does_not_own_the_transaction_cannot_take_part(
    found: Transaction | None, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    assert add_partitions(found, producer_id, epoch, [ORDERS], client_version=1, wall_ms=0, max_partitions=10) == Step(
        error
    )
    assert verify_partitions(found, producer_id, epoch, [ORDERS]) == {ORDERS: error}


def test_verification_names_the_partitions_that_were_not_added() -> None:
    assert verify_partitions(OPEN, 7, 3, [ORDERS, BILLS]) == {
        ORDERS: ErrorCode.NONE,
        BILLS: ErrorCode.TRANSACTION_ABORTABLE,
    }


# The end, version 2


def test_every_end_raises_the_epoch() -> None:
    step = end(OPEN, 3)
    prepared = changed(step)
    assert (step.producer_id, step.producer_epoch) == (7, 4)
    assert (prepared.state, prepared.producer_epoch, prepared.partitions) == (
        State.PREPARE_COMMIT,
        4,
        frozenset({ORDERS}),
    )
    done = complete(prepared, 2100)
    assert (done.state, done.producer_epoch, done.partitions) == (State.COMPLETE_COMMIT, 4, frozenset())


def test_a_repeated_end_gets_the_same_answer() -> None:
    prepared = changed(end(OPEN, 3))
    assert end(prepared, 3) == Step(ErrorCode.CONCURRENT_TRANSACTIONS)
    again = end(complete(prepared, 2100), 3)
    assert (again.error, again.changed, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, None, 7, 4)


def test_a_repeated_end_cannot_change_the_outcome() -> None:
    prepared = changed(end(OPEN, 3))
    for found in (prepared, complete(prepared, 2100)):
        assert end(found, 3, commit=False) == Step(ErrorCode.INVALID_TXN_STATE)


def test_a_late_end_cannot_hit_the_next_transaction() -> None:
    done = complete(changed(end(OPEN, 3)), 2100)
    following = changed(add_partitions(done, 7, 4, [BILLS], client_version=2, wall_ms=2200, max_partitions=10))
    for commit in (True, False):
        assert end(following, 3, commit=commit) == Step(ErrorCode.PRODUCER_FENCED)


def test_the_next_end_waits_until_the_last_one_is_complete() -> None:
    assert end(changed(end(OPEN, 3)), 4, commit=False) == Step(ErrorCode.CONCURRENT_TRANSACTIONS)


def test_what_never_began_can_be_aborted_but_not_committed() -> None:
    for found in (EMPTY, complete(changed(end(OPEN, 3, commit=False)), 2100)):
        epoch = found.producer_epoch
        aborting = end(found, epoch, commit=False)
        assert changed(aborting).state is State.PREPARE_ABORT
        assert changed(aborting).partitions == frozenset()
        assert aborting.producer_epoch == epoch + 1
        assert end(found, epoch) == Step(ErrorCode.INVALID_TXN_STATE)


def test_the_last_epoch_of_an_id_ends_with_a_new_id() -> None:
    at_the_end = replace(OPEN, producer_epoch=LAST_CLIENT_EPOCH)
    with pytest.raises(NeedsProducerId):
        end(at_the_end, LAST_CLIENT_EPOCH)
    step = end(at_the_end, LAST_CLIENT_EPOCH, new_id=fresh_id)
    assert (step.producer_id, step.producer_epoch) == (99, 0)
    prepared = changed(step)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, MAX_EPOCH)
    done = complete(prepared, 2100)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (99, 0, 7)
    again = end(done, LAST_CLIENT_EPOCH)
    assert (again.error, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, 99, 0)


# The end, version 1


def test_clients_of_version_1_keep_their_epoch() -> None:
    prepared = changed(end(OPEN_V1, 3, version=1))
    assert (prepared.state, prepared.producer_epoch) == (State.PREPARE_COMMIT, 3)
    assert end(prepared, 3, version=1) == Step(ErrorCode.CONCURRENT_TRANSACTIONS)
    done = complete(prepared, 2100)
    assert end(done, 3, version=1) == Step()
    assert end(done, 3, version=1, commit=False) == Step(ErrorCode.INVALID_TXN_STATE)
    assert end(done, 2, version=1) == Step(ErrorCode.PRODUCER_FENCED)
    assert end(EMPTY, 3, version=1) == Step(ErrorCode.INVALID_TXN_STATE)


# Time


def test_a_timeout_aborts_and_fences() -> None:
    timed_out = time_out(OPEN_V1, 70_000)
    assert (timed_out.state, timed_out.producer_epoch) == (State.PREPARE_ABORT, 4)
    assert end(timed_out, 3, version=1) == Step(ErrorCode.PRODUCER_FENCED)
    assert end(complete(timed_out, 70_001), 3, version=1, commit=False) == Step(ErrorCode.PRODUCER_FENCED)


def test_after_a_timeout_a_client_of_version_2_can_still_abort_and_go_on() -> None:
    done = complete(time_out(OPEN, 70_000), 70_001)
    assert end(done, 3) == Step(ErrorCode.INVALID_TXN_STATE)
    step = end(done, 3, commit=False)
    assert (step.error, step.producer_id, step.producer_epoch) == (ErrorCode.NONE, 7, 4)


def test_a_transaction_has_so_many_partitions_and_no_more() -> None:
    def added(found: Transaction, *partitions: TopicPartition) -> Step:
        return add_partitions(found, 7, 3, partitions, client_version=1, wall_ms=2000, max_partitions=2)

    full = changed(added(EMPTY, ORDERS, BILLS))
    assert added(full, TopicPartition("third", 0)) == Step(ErrorCode.POLICY_VIOLATION)
    assert added(full, ORDERS) == Step()
    assert added(EMPTY, ORDERS, BILLS, TopicPartition("third", 0)) == Step(ErrorCode.POLICY_VIOLATION)
    # Positions are committed at the end: a consumer that has got so far can still commit them.
    assert len(changed(added(full, TopicPartition("__consumer_offsets", 7))).partitions) == 3


def test_only_open_transactions_time_out_and_only_unused_ids_expire() -> None:
    transactions = Transactions()
    for number, state in enumerate(State):
        each = replace(OPEN, transactional_id=f"id-{number}", state=state)
        transactions.replay(*record_of(each))
    assert [each.state for each in transactions.timed_out(at(61_000))] == [State.ONGOING]
    assert transactions.timed_out(at(60_999)) == []
    assert [each.state for each in transactions.prepared()] == [State.PREPARE_COMMIT, State.PREPARE_ABORT]
    for key, value in transactions.expired(11_000, 10_000):
        transactions.replay(key, value)
    left = {each.state for each in transactions}
    assert left.isdisjoint({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
    assert State.ONGOING in left
