"""No schedule of joins, writes, renewals, timeouts, decisions, zombies and crashes breaks a family's promises.

CORDWOOD_FAMILY_SCHEDULES sets how many are played.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.seeds import seeds
from tests.unit.transactions.family_schedule import Broken, Played, Schedule

from cordwood.model.moment import Moment
from cordwood.model.state_tables import Moves
from cordwood.transactions import families_deciding, transaction
from cordwood.transactions.families import Family
from cordwood.transactions.families_deciding import Decision
from cordwood.transactions.transaction import State, Transaction

Patch = pytest.MonkeyPatch
SCHEDULES = int(os.environ.get("CORDWOOD_FAMILY_SCHEDULES", "100"))
MOST_SCHEDULES = 60


@pytest.mark.landing
@pytest.mark.soak
def test_no_schedule_breaks_a_promise() -> None:
    total = Played()
    for seed in seeds(SCHEDULES):
        try:
            played = Schedule(seed).play()
        except Broken as broken:
            pytest.fail(f"seed {seed}: {broken}")
        total = Played(*(a + b for a, b in zip(asdict(total).values(), asdict(played).values(), strict=True)))
    assert all(count > SCHEDULES / 10 for count in asdict(total).values()), f"too little happened: {total}"


def test_the_same_seed_plays_the_same_schedule() -> None:
    assert Schedule(7).play() == Schedule(7).play()


# Who guards the guards


def decides_in_parts(patch: Patch) -> None:
    commit = families_deciding._commit

    def in_parts(*arguments: Any) -> Decision:
        decision = commit(*arguments)
        return decision._replace(appends=[[record] for append in decision.appends for record in append])

    patch.setattr(families_deciding, "_commit", in_parts)


def ends_without_fencing(patch: Patch) -> None:
    end = families_deciding.end

    def unfenced(slot: Transaction, *, commit: bool, wall_ms: int) -> Transaction:
        return replace(end(slot, commit=commit, wall_ms=wall_ms), producer_epoch=slot.producer_epoch)

    patch.setattr(families_deciding, "end", unfenced)


def forgets_what_was_decided(patch: Patch) -> None:
    patch.setattr(Family, "has_decided", lambda family, batch_id: False)


def decides_about_the_next_batch_too(patch: Patch) -> None:
    joined = Family.joined
    patch.setattr(Family, "joined", lambda family, batch_id: joined(family, batch_id + 1))


def believes_every_winner(patch: Patch) -> None:
    patch.setattr(families_deciding, "_refusal", lambda *arguments: None)


def lets_losers_win(patch: Patch) -> None:
    end = families_deciding.end
    patch.setattr(families_deciding, "end", lambda slot, *, commit, wall_ms: end(slot, commit=True, wall_ms=wall_ms))


def lets_nobody_time_out(patch: Patch) -> None:
    patch.setattr(families_deciding, "time_out", lambda *arguments: [])


def does_not_see_renewals(patch: Patch) -> None:
    def time_out(family: Family, leases: Any, now: Moment) -> list[Transaction]:
        return [
            families_deciding.end(slot, commit=False, wall_ms=now.wall_ms)
            for slot in family.joined(1 << 62)
            if slot.updated_ms + slot.timeout_ms <= now.wall_ms
        ]

    patch.setattr(families_deciding, "time_out", time_out)


def gives_a_slot_that_is_in_use(patch: Patch) -> None:
    gives_away_slot_0_again(patch)
    anything = Moves("slot", {state: list(State) for state in State})
    patch.setattr(transaction, "SLOT_MOVES", anything)


def gives_away_slot_0_again(patch: Patch) -> None:
    patch.setattr(Family, "free_slot", lambda family: 0 if 0 in family.slots and _idle(family) else len(family.slots))


def _idle(family: Family) -> bool:
    return family.slots[0].state in (State.EMPTY, State.COMPLETE_ABORT, State.COMPLETE_COMMIT)


@pytest.mark.parametrize(
    "sabotage",
    [
        decides_in_parts,
        ends_without_fencing,
        forgets_what_was_decided,
        decides_about_the_next_batch_too,
        believes_every_winner,
        lets_losers_win,
        lets_nobody_time_out,
        does_not_see_renewals,
        gives_a_slot_that_is_in_use,
    ],
)
def test_a_machine_with_a_bug_is_found_out(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Broken):
        play_many()


def test_the_table_of_slots_finds_a_slot_that_is_given_away_twice(monkeypatch: Patch) -> None:
    gives_away_slot_0_again(monkeypatch)
    with pytest.raises(AssertionError, match="the slot family:query/0 cannot move from EMPTY to EMPTY"):
        play_many()


def play_many() -> None:
    for seed in range(MOST_SCHEDULES):
        Schedule(seed).play()
