"""Games of replication: brokers fail one by one and together, and the twelve rules hold after every step.

CORDWOOD_REPLICATION_SEEDS=10000 plays more of them. A failure names its seed; `python -m simulation --game
replication --nodes 3 --seed N` plays it again.
"""

import os
from collections import Counter
from dataclasses import asdict
from functools import cache

import pytest
from simulation.replication_game import play
from simulation.weather import Weather
from tests.seeds import seeds

SEEDS = int(os.environ.get("CORDWOOD_REPLICATION_SEEDS", "4"))

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_committed_records_outlive_the_faults_of_brokers_and_all_replicas_come_together_again(seed: int) -> None:
    played(seed)


def test_the_games_are_about_something() -> None:
    total = Counter[str]()
    for seed in range(5):
        counts = asdict(played(seed))
        del counts["events"]
        total += Counter(counts)
    assert total["acks"] > 50
    assert total["committed"] > 50
    assert total["records_read"] > 200
    assert total["elections"] > 10
    assert total["lives"] > 20


def test_bytes_rot_and_are_repaired() -> None:
    weather = Weather(("bit rot", "bit rot", "kill", "power"), 0.02, 0.9, deletes=False, store_fails=0.0, rots=True)
    assert sum(play(seed, weather=weather).rotten for seed in range(2)) > 2
