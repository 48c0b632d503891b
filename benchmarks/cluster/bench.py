"""A run with clusters: the same rounds and figures as with single brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from benchmarks.bench import Bench, dispose
from benchmarks.cluster.clusters import Cluster, CordwoodCluster, KafkaCluster
from benchmarks.figures import KAFKA
from benchmarks.systems import System


class ClusterBench(Bench):
    """Its systems are clusters of three nodes."""

    def new_system(self, name: str, *, heap: str | None = None, as_shipped: bool = False) -> System:
        self._counter += 1
        directory = self.directory / f"{name}-{self._counter}"
        directory.mkdir(parents=True)
        if name == KAFKA:
            assert self.jars is not None
            system: Cluster = KafkaCluster(directory, self.jars)
        else:
            system = CordwoodCluster(directory)
        self.labels[name] = system.label
        return system

    def clusters(self) -> list[Cluster]:
        return cast("list[Cluster]", self.pair())

    def renew(self, systems: Sequence[System]) -> None:
        """Ends the kept clusters of these systems: the next scenario starts new ones."""
        for system in systems:
            if system in self._kept:
                self._kept.remove(system)
                dispose(system)
