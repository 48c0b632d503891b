"""Random schedules of transactional writers on a broker that dies: the seed of every failure that was found stays."""

import os

import pytest
from simulation.transaction_game import play
from tests.seeds import SOAKING, seeds

# Seeds that once failed. What they play changes with the broker, so each bug also has a test of its own with the
# log's tests or in test_transactions_and_compaction.py.

SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "8"))

LOST_TRANSACTION_INDEX = (94, 186)
"""The power went after a producer snapshot had reached the disk and before the transaction index had."""

COMPACTED_ABOVE_THE_SAVED_RECOVERY_POINT = (192,)
"""The process died after compaction had left gaps that the saved recovery point did not cover."""

INDEX_WITHOUT_ITS_MARKER = (2628,)
"""The power went after the transaction index had reached the disk and before the marker had."""

FOUND = (*LOST_TRANSACTION_INDEX, *COMPACTED_ABOVE_THE_SAVED_RECOVERY_POINT, *INDEX_WITHOUT_ITS_MARKER)


@pytest.mark.parametrize("seed", [*seeds(SEEDS), *FOUND])
def test_no_schedule_tears_a_transaction(seed: int) -> None:
    outcome = play(seed)
    if not SOAKING:
        assert outcome.committed > 0
        assert outcome.aborted > 0
        assert outcome.lives > 1


def test_the_same_seed_plays_the_same_game() -> None:
    assert play(3) == play(3)
