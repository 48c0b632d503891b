"""A node on the simulator's machine: real handlers, logs and metadata writer; time and disk stand still until told."""

from collections.abc import Iterator

import pytest
from simulation.world.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1).start()
    yield world
    world.kill()
