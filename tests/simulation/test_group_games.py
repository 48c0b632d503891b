"""Random schedules of group members on a broker that dies: whatever happens, work is shared and positions hold.

CORDWOOD_SIM_SEEDS=2000 plays more of them. `python -m simulation --game groups --seed N` plays one again.
"""

import os
from collections import Counter
from dataclasses import asdict
from functools import cache

import pytest
from simulation.group_game import play
from tests.seeds import seeds

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "12"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_no_schedule_gives_a_partition_to_two_or_takes_a_position_back(seed: int) -> None:
    played(seed)


def test_a_static_member_leads_without_being_told_while_the_topic_grows() -> None:
    play(72)


@pytest.mark.parametrize("seed", [2267, 2349])
def test_a_heartbeat_waits_for_its_coordinator_while_the_clock_is_set(seed: int) -> None:
    """Its member's session was counted from before that, and was over at once: others got what it still had."""
    play(seed, 3000)


def test_an_old_commit_comes_after_its_partition_was_given_to_another() -> None:
    """The member that sent it was still in its epoch, because it had more to give back."""
    play(30562, 3000)


def test_the_games_are_about_something() -> None:
    total = Counter[str]()
    for seed in range(7):
        total += Counter(asdict(played(seed)))
    assert total["rounds"] > 15
    assert total["taken"] > 10
    assert total["commits"] > 200
    assert total["fenced_commits"] > 0
    assert total["lives"] > 16


def test_the_same_seed_plays_the_same_game() -> None:
    assert play(3) == played(3)
