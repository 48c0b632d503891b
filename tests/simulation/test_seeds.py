"""Games of the simulator: clients, faults, time and the order of everything by a seed, and nothing is ever wrong.

CORDWOOD_SIM_SEEDS=2000 plays more of them. A failure names its seed; `python -m simulation --seed N` plays it
again.
"""

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from simulation.log_game import play
from tests.seeds import seeds

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "60"))

PRINT_DIGEST = "from simulation.log_game import play; print(play({seed}).digest)"

played = cache(play)
"""A game is played once, and looked at by several tests."""


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_whatever_happens_promises_are_kept_and_everything_comes_to_its_end(seed: int) -> None:
    played(seed)


def test_the_games_are_about_something() -> None:
    total = Counter[str]()
    for seed in range(12):
        outcome = played(seed)
        total += outcome.events + Counter(
            promises=outcome.promises, records=outcome.records_read, requests=outcome.requests, lives=outcome.lives
        )
    assert total["requests"] > 1000
    assert total["promises"] > 200
    assert total["records"] > 1000
    assert total["lives"] > 36
    assert total["died: kill -9"] > 0
    assert total["died: power cut"] > 0


@pytest.mark.parametrize(("seed", "hash_seed"), [(3, "1"), (8, "2")])
def test_the_same_seed_is_the_same_game_in_every_process(seed: int, hash_seed: str) -> None:
    elsewhere = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST.format(seed=seed)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout == f"{played(seed).digest}\n"
