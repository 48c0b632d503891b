"""Games of brokers with several data directories, between which a client moves partitions."""

import pytest
from tests.seeds import FIRST_SEED

from simulation import log_game, replication_game


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 6))
def test_nothing_is_lost_on_the_way_to_another_directory(seed: int) -> None:
    log_game.play(seed, directories=2)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 2))
def test_replicas_agree_while_each_broker_moves_its_own(seed: int) -> None:
    replication_game.play(seed, directories=2)


ONCE_FAILED = {
    "the old directory claimed the records of a log that was lost with its new directory": 5022,
    "the checker read from a disk whose failure the broker had not noticed": 9113,
}


@pytest.mark.parametrize("seed", ONCE_FAILED.values(), ids=ONCE_FAILED)
def test_seeds_that_once_failed(seed: int) -> None:
    replication_game.play(seed, directories=2)
