"""The tables of states: every pair of states is tried, and beside Kafka's tables each difference is named."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.moments import at

from cordwood.groups.classic.group import CLASSIC_GROUP_MOVES, Group
from cordwood.groups.classic.group import State as GroupState
from cordwood.groups.consumer.group import CONSUMER_GROUP_MOVES
from cordwood.groups.consumer.member import MEMBER_MOVES
from cordwood.model.families import slot_id
from cordwood.model.state_tables import Moves
from cordwood.pipelines.serving.served import STAGE_MOVES
from cordwood.pipelines.serving.serving import WORKER_MOVES
from cordwood.replication.in_sync import IN_SYNC_MOVES
from cordwood.transactions.ending import complete
from cordwood.transactions.families_deciding import end
from cordwood.transactions.log_records import removal_of
from cordwood.transactions.transaction import SLOT_MOVES, TRANSACTION_MOVES, State, Transaction

Pairs = set[tuple[str, str]]
"""Names of states, before and after."""

TABLES: list[Moves[Any]] = [
    CLASSIC_GROUP_MOVES,
    CONSUMER_GROUP_MOVES,
    MEMBER_MOVES,
    TRANSACTION_MOVES,
    SLOT_MOVES,
    IN_SYNC_MOVES,
    STAGE_MOVES,
    WORKER_MOVES,
]

KAFKAS_CLASSIC_GROUPS = {
    "EMPTY": "PREPARING_REBALANCE",
    "PREPARING_REBALANCE": "STABLE COMPLETING_REBALANCE EMPTY",
    "COMPLETING_REBALANCE": "PREPARING_REBALANCE",
    "STABLE": "COMPLETING_REBALANCE",
    "DEAD": "STABLE PREPARING_REBALANCE COMPLETING_REBALANCE EMPTY DEAD",
}
"""The valid previous states of ClassicGroupState, Apache Kafka 4.3."""

KAFKAS_TRANSACTIONS = {
    "EMPTY": "EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "ONGOING": "ONGOING EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "PREPARE_COMMIT": "ONGOING",
    "PREPARE_ABORT": "ONGOING PREPARE_EPOCH_FENCE EMPTY COMPLETE_COMMIT COMPLETE_ABORT",
    "COMPLETE_COMMIT": "PREPARE_COMMIT",
    "COMPLETE_ABORT": "PREPARE_ABORT",
    "DEAD": "EMPTY COMPLETE_ABORT COMPLETE_COMMIT",
    "PREPARE_EPOCH_FENCE": "ONGOING",
}
"""The valid previous states of TransactionState, Apache Kafka 4.3."""


def allowed(moves: Moves[Any]) -> Pairs:
    return {(before.name, after.name) for after, previous in moves.previous.items() for before in previous}


def kafkas(table: dict[str, str]) -> Pairs:
    return {(before, after) for after, previous in table.items() for before in previous.split()}


@pytest.mark.parametrize("moves", TABLES, ids=lambda moves: moves.kind)
def test_of_every_pair_of_states_exactly_the_moves_of_the_table_pass(moves: Moves[Any]) -> None:
    for before, after in product(moves.previous, repeat=2):
        if before in moves.previous[after]:
            assert moves.moved("x", before, after) is after
        else:
            with pytest.raises(AssertionError, match=f"cannot move from {before.name} to {after.name}"):
                moves.moved("x", before, after)


def test_classic_groups_move_as_kafkas_do_but_a_dead_group_does_not_exist() -> None:
    assert kafkas(KAFKAS_CLASSIC_GROUPS) - allowed(CLASSIC_GROUP_MOVES) == {("DEAD", "DEAD")}
    assert allowed(CLASSIC_GROUP_MOVES) <= kafkas(KAFKAS_CLASSIC_GROUPS)


def test_transactions_move_as_kafkas_do_but_a_fenced_producer_is_aborted_at_once() -> None:
    assert kafkas(KAFKAS_TRANSACTIONS) - allowed(TRANSACTION_MOVES) == {
        ("ONGOING", "PREPARE_EPOCH_FENCE"),
        ("PREPARE_EPOCH_FENCE", "PREPARE_ABORT"),
    }
    assert allowed(TRANSACTION_MOVES) <= kafkas(KAFKAS_TRANSACTIONS)


def test_a_slot_moves_as_a_transaction_but_its_empty_end_is_complete_at_once() -> None:
    more = allowed(SLOT_MOVES) - allowed(TRANSACTION_MOVES)
    assert more == {("EMPTY", "COMPLETE_COMMIT"), ("EMPTY", "COMPLETE_ABORT")}
    less = allowed(TRANSACTION_MOVES) - allowed(SLOT_MOVES)
    # Joining alone opens a slot that has ended, and a joined slot is neither joined again nor forgotten.
    assert less == {
        ("EMPTY", "EMPTY"),
        ("COMPLETE_COMMIT", "ONGOING"),
        ("COMPLETE_ABORT", "ONGOING"),
        ("EMPTY", "PREPARE_ABORT"),
        ("COMPLETE_COMMIT", "PREPARE_ABORT"),
        ("COMPLETE_ABORT", "PREPARE_ABORT"),
        ("EMPTY", "DEAD"),
    }


# The machines refuse a forbidden move


def test_a_classic_group_cannot_skip_the_round() -> None:
    group = Group("readers")
    with pytest.raises(AssertionError, match="the classic group readers cannot move from EMPTY to STABLE"):
        group.move_to(GroupState.STABLE, at(1))
    assert group.state is GroupState.EMPTY


def test_an_open_transaction_is_not_forgotten() -> None:
    with pytest.raises(AssertionError, match="the transaction writer cannot move from ONGOING to DEAD"):
        removal_of(Transaction("writer", 1, 0, 1000, State.ONGOING, 1))


def test_an_ended_slot_does_not_end_again() -> None:
    slot = Transaction(slot_id("query", 0), 1, 0, 1000, State.COMPLETE_COMMIT, 1)
    with pytest.raises(AssertionError, match="the slot family:query/0 cannot move from COMPLETE_COMMIT to"):
        end(slot, commit=False, wall_ms=2)


def test_a_transaction_without_a_decision_is_not_complete() -> None:
    decided = Transaction("writer", 1, 0, 1000, State.PREPARE_COMMIT, 1)
    assert complete(decided, 2).state is State.COMPLETE_COMMIT
    with pytest.raises(AssertionError):
        complete(replace(decided, state=State.ONGOING), 2)
