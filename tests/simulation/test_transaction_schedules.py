"""Random schedules of transactional writers on a broker that dies: the seed of every failure that was found stays."""

import pytest

from cordwood.simulation.transaction_game import play

LOST_TRANSACTION_INDEX = (227, 561)
"""The power went after a producer snapshot had reached the disk and before the transaction index had."""


@pytest.mark.parametrize("seed", [*range(8), *LOST_TRANSACTION_INDEX])
def test_no_schedule_tears_a_transaction(seed: int) -> None:
    outcome = play(seed)
    assert outcome.committed > 0
    assert outcome.aborted > 0
    assert outcome.lives > 1


def test_the_same_seed_plays_the_same_game() -> None:
    assert play(3) == play(3)
