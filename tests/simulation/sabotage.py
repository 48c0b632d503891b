"""Who guards the guards: bugs that are built into a broker, and the games that have to find them out."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from simulation.game import SimulationFailed
from tests.simulation.telling_seeds import telling_first

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.coordinators.transaction_markers import MarkerWriter

Patch = pytest.MonkeyPatch


def assert_found_out(
    play: Callable[[int], object], games: int = 40, found: str | None = None, *, telling: int = 0
) -> None:
    """Plays games until one fails, with the words `found` if given. The game that told before is played first."""

    def play_many() -> None:
        for seed in telling_first(telling, games):
            play(seed)

    with pytest.raises(SimulationFailed, match=found):
        play_many()


def writes_one_marker_of_many(patch: Patch) -> None:
    real = MarkerWriter.write

    def write(markers: MarkerWriter, how: Any, partitions: Iterable[TopicPartition], done: Any) -> None:
        wanted = list(partitions)
        real(markers, how, wanted[:1], lambda _: done(dict.fromkeys(wanted, ErrorCode.NONE)))

    patch.setattr(MarkerWriter, "write", write)
