"""Brokers of two metadata versions under faults: a version is finalised only over brokers that support it."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulation.game import SimulationFailed, play_out
from simulation.replication_game import ReplicationGame
from simulation.weather import Weather
from simulation.world.broken import InvariantBroken
from simulation.world.machine import Machine
from tests.seeds import FIRST_SEED

from cordwood.cluster.metadata.rows import METADATA_VERSION
from cordwood.cluster.metadata.versions import FEATURE, VersionRange
from cordwood.cluster.planner import finalising
from cordwood.cluster.stores.interface import has_mod_revision
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.wire.apis import ApiKey

OLD, NEW = "1", "0"
"""The values of metadata.version.max of the two releases."""
STEPS = 1200
GAMES = 6
STEPS_BETWEEN_REQUESTS = 40
LEFT_OUT = {"restored store"}
"""An older copy of the store may be of an older version: a case of its own."""


class UpgradeGame(ReplicationGame):
    """A replication game that begins with the older release. Each start picks a release, until a version is final."""

    def __init__(self, seed: int) -> None:
        weather = Weather.chosen_by(random.Random(seed))
        faults = tuple(fault for fault in weather.faults if fault not in LEFT_OUT) or ("kill",)
        super().__init__(seed, 3, replace(weather, faults=faults, starts_again=0.05))
        self.began = False
        self.mixed = False

    @property
    def finalised(self) -> int:
        item = self.world.store._items.get(METADATA_VERSION)
        return 1 if item is None else int(item.value)

    def releases(self) -> Iterator[str]:
        for machine in self.world.running:
            yield machine.setup.settings.texts["metadata.version.max"]

    def _begin(self) -> None:
        super()._begin()
        self.began = True

    def _start(self, machine: Machine) -> None:
        if not self.began:
            release = OLD
        else:
            release = NEW if self.finalised == 2 else self.chance.choice((OLD, NEW, NEW))
        texts = {**machine.setup.settings.texts, "metadata.version.max": release}
        machine.setup = replace(machine.setup, settings=BrokerSettings.from_texts(texts))
        super()._start(machine)

    def _take_step(self, number: int) -> None:
        super()._take_step(number)
        releases = set(self.releases())
        self.mixed |= len(releases) == 2
        if self.finalised == 2 and OLD in releases:
            raise InvariantBroken("a version is final, and a broker runs that does not support it")
        if number % STEPS_BETWEEN_REQUESTS == 0 and self.world.running:
            update = {"feature": FEATURE, "max_version_level": 2, "upgrade_type": 1}
            machine = self.chance.choice(self.world.running)
            machine.network.connect().request(ApiKey.UPDATE_FEATURES, 2, {"feature_updates": [update]})


def played(first_seed: int) -> list[UpgradeGame]:
    games = [UpgradeGame(seed) for seed in range(first_seed, first_seed + GAMES)]
    for game in games:
        play_out(game, STEPS)
    return games


def test_a_version_is_never_final_over_the_head_of_a_broker() -> None:
    games = played(FIRST_SEED)
    assert any(game.mixed for game in games)
    assert any(game.finalised == 2 for game in games)


def test_the_games_notice_a_finalisation_that_does_not_look_at_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalising, "authority_of", lambda broker_id, epoch: has_mod_revision("no such key", 0))
    monkeypatch.setattr(VersionRange, "__contains__", lambda self, version: True)
    with pytest.raises(SimulationFailed, match="a broker runs that does not support it"):
        played(0)
