"""Who guards the guards: a coordinator with a bug built in does not get through many games."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from simulation.transaction_game import play
from tests.simulation.sabotage import Patch, assert_found_out, writes_one_marker_of_many

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
from cordwood.transactions import adding, ending
from cordwood.transactions.transaction import State, Transaction


def vouches_for_everybody(patch: Patch) -> None:
    def verify(_: Any, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]) -> Any:
        return dict.fromkeys(partitions, ErrorCode.NONE)

    patch.setattr(adding, "verify_partitions", verify)


def aborts_without_fencing(patch: Patch) -> None:
    def fenced(transaction: Transaction, wall_ms: int, **_: int) -> Transaction:
        return replace(transaction, state=State.PREPARE_ABORT, updated_ms=wall_ms)

    patch.setattr(Transaction, "fenced", fenced)


def forgets_at_a_restart_what_was_decided(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "_look", lambda *arguments: iter(()))


def listens_to_an_end_of_any_epoch(patch: Patch) -> None:
    patch.setattr(ending, "owner_problem", lambda *arguments: ErrorCode.NONE)


@pytest.mark.parametrize(
    "sabotage",
    [
        vouches_for_everybody,
        writes_one_marker_of_many,
        aborts_without_fencing,
        forgets_at_a_restart_what_was_decided,
        listens_to_an_end_of_any_epoch,
    ],
)
def test_a_coordinator_with_a_bug_is_found_out(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    assert_found_out(play)
