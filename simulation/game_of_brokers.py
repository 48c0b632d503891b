"""A game in which brokers talk to each other about transactions: links between them are cut, too."""

from typing import TypeVar

from cordwood.cluster.stores.interface import StoreFailure
from simulation.game import Game
from simulation.world import cluster_faults
from simulation.world.machine import Machine

T = TypeVar("T")


class GameOfBrokers(Game[T]):
    def leaders_may_be_away(self) -> bool:
        """True if a reader may have to wait for a partition's leader."""
        if self.several and (self.world.links.cuts or any(machine.paused for machine in self.world.machines)):
            return True
        return self.replicas is not None and bool(self.replicas.unconverged())

    def _strike(self) -> None:
        if self.several and self.chance.random() < 0.25:
            one, other = self.chance.sample(self.world.machines, 2)
            self._note(cluster_faults.cut(self.world, self.chance, one, other.broker_id))
        else:
            super()._strike()

    def _start(self, machine: Machine) -> None:
        try:
            super()._start(machine)
        except StoreFailure as failure:
            self._cannot_register(machine, failure)
