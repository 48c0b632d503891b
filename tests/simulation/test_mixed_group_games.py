"""Random schedules of members of both protocols in one group, which goes over from one to the other and back.

CORDWOOD_SIM_SEEDS=2000 plays more. `python -m simulation --game mixed-groups --seed N` plays one again.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import pytest
from simulation.mixed_group_game import play
from tests.seeds import seeds
from tests.simulation.sabotage import Patch, assert_found_out

from cordwood.groups.classic.group import Group
from cordwood.groups.classic.records import StoredGroup
from cordwood.groups.consumer import classic_members, migration
from cordwood.groups.consumer.member import MemberState
from cordwood.groups.consumer.partition_sets import NOTHING
from cordwood.model.errors import ErrorCode

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "12"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_no_schedule_gives_a_partition_to_two_or_takes_a_position_back(seed: int) -> None:
    played(seed)


def test_a_member_gives_back_in_time_and_is_not_heard_of_for_a_while() -> None:
    """It was taken out for not having given anything back."""
    played(4)


def test_a_static_member_was_taken_for_one_of_the_other_protocol_for_a_while() -> None:
    """Its deadline to join again outlived that, and it was taken out although it was heard of."""
    play(22017)


def test_the_games_are_about_something() -> None:
    total = Counter[str]()
    for seed in range(7):
        total += Counter(asdict(played(seed)))
    assert total["moves"] > 14
    assert total["taken"] > 10
    assert total["commits"] > 200
    assert total["lives"] > 16


def forgets_what_members_have(patch: Patch) -> None:
    real = migration._taken_over

    def taken_over(*arguments: Any) -> Any:
        profile, current = real(*arguments)
        return profile, current._replace(assigned=NOTHING, revoking=NOTHING, since=(), state=MemberState.STABLE)

    patch.setattr(migration, "_taken_over", taken_over)


def tells_nobody_to_join_again(patch: Patch) -> None:
    real = classic_members.standing

    def standing(*arguments: Any) -> ErrorCode:
        found = real(*arguments)
        return ErrorCode.NONE if found is ErrorCode.REBALANCE_IN_PROGRESS else found

    patch.setattr(classic_members, "standing", standing)


def takes_a_downgraded_group_for_a_settled_one(patch: Patch) -> None:
    real = Group.restore

    def restore(group: Group, stored: StoredGroup) -> None:
        leader = stored.members[0].member_id if stored.members else None
        real(group, stored._replace(leader=stored.leader or leader))

    patch.setattr(Group, "restore", restore)


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        (forgets_what_members_have, "was given to|still a member|fenced"),
        (tells_nobody_to_join_again, "after .* rounds"),
        (takes_a_downgraded_group_for_a_settled_one, "after .* rounds"),
    ],
)
def test_a_coordinator_with_a_bug_is_found_out(
    sabotage: Callable[[Patch], None], found: str, monkeypatch: Patch
) -> None:
    """A bug that one game in fifty finds has its steps in tests/unit/groups/test_group_migration.py instead."""
    sabotage(monkeypatch)
    telling = 6 if sabotage is tells_nobody_to_join_again else 0
    assert_found_out(play, 60, found=found, telling=telling)
