"""Random schedules of micro-batches on a broker that dies: exactly once, as a whole, whoever is replaced."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from simulation.micro_batch_game import play
from tests.seeds import SOAKING, seeds
from tests.simulation.sabotage import Patch, assert_found_out, writes_one_marker_of_many

from cordwood.model.errors import ErrorCode
from cordwood.node.coordinators.family_coordinator import FamilyCoordinator
from cordwood.node.coordinators.transaction_coordinator import TransactionCoordinator
from cordwood.transactions import adding, families_deciding
from cordwood.transactions.families import Families
from cordwood.transactions.families_deciding import Decision
from cordwood.transactions.transaction import Transaction

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "8"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


ZEROS_IN_THE_TRANSACTION_INDEX = (72,)
"""The power went after an entry was written and before it was synced: zeros were taken for an entry."""

INDEX_EMPTIED_TO_BE_WRITTEN_AGAIN = (1032,)
"""The power went twice: while a damaged index was made again, it lacked entries below the recovery point."""

FOUND = (*ZEROS_IN_THE_TRANSACTION_INDEX, *INDEX_EMPTIED_TO_BE_WRITTEN_AGAIN)


@pytest.mark.parametrize("seed", [*seeds(SEEDS), *FOUND])
def test_every_batch_is_seen_once_and_whole(seed: int) -> None:
    outcome = played(seed)
    if not SOAKING:
        assert outcome.finished > 1
        assert outcome.attempts > 2 * outcome.finished
        assert outcome.drivers > 1
        assert outcome.lives > 1


def test_the_same_seed_plays_the_same_game() -> None:
    assert play(3) == played(3)


# Who guards the guards


def forgets_what_was_decided(patch: Patch) -> None:
    patch.setattr(Families, "replay_memory", lambda families, name, memory: None)


def decides_in_parts(patch: Patch) -> None:
    commit = families_deciding._commit

    def in_parts(*arguments: Any) -> Decision:
        decision = commit(*arguments)
        return decision._replace(appends=[[record] for append in decision.appends for record in append])

    patch.setattr(families_deciding, "_commit", in_parts)


def answers_before_the_markers(patch: Patch) -> None:
    patch.setattr(FamilyCoordinator, "_when_marked", lambda self, slots, timeout_ms, done: done(ErrorCode.NONE))


def ends_without_fencing(patch: Patch) -> None:
    end = families_deciding.end

    def unfenced(slot: Transaction, *, commit: bool, wall_ms: int) -> Transaction:
        return replace(end(slot, commit=commit, wall_ms=wall_ms), producer_epoch=slot.producer_epoch)

    patch.setattr(families_deciding, "end", unfenced)


def lets_losers_win(patch: Patch) -> None:
    end = families_deciding.end
    patch.setattr(families_deciding, "end", lambda slot, *, commit, wall_ms: end(slot, commit=True, wall_ms=wall_ms))


def believes_every_winner(patch: Patch) -> None:
    patch.setattr(families_deciding, "_refusal", lambda *arguments: None)


def leaves_what_was_decided_to_others_at_a_restart(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "_look_at_all", lambda *arguments: None)


def vouches_for_everybody(patch: Patch) -> None:
    patch.setattr(adding, "owner_problem", lambda *arguments: ErrorCode.NONE)


def lets_nobody_time_out(patch: Patch) -> None:
    patch.setattr(families_deciding, "time_out", lambda *arguments: [])


TELLING: dict[Callable[[Patch], None], int] = {
    decides_in_parts: 5,
    leaves_what_was_decided_to_others_at_a_restart: 7,
    vouches_for_everybody: 4,
    lets_nobody_time_out: 7,
}
"""Seeds whose games notice at once what the first games do not."""


@pytest.mark.parametrize(
    "sabotage",
    [
        forgets_what_was_decided,
        decides_in_parts,
        answers_before_the_markers,
        writes_one_marker_of_many,
        ends_without_fencing,
        lets_losers_win,
        believes_every_winner,
        leaves_what_was_decided_to_others_at_a_restart,
        vouches_for_everybody,
        lets_nobody_time_out,
    ],
)
def test_a_coordinator_with_a_bug_is_found_out(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    assert_found_out(play, telling=TELLING.get(sabotage, 0))
