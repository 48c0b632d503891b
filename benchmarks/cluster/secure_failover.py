"""The time without a leader of a secure cluster, beside that of a plain one.

    python -m benchmarks.cluster.secure_failover [--rounds 9]

Two clusters of `cordwood cluster up`, each of three brokers and three members of etcd, stand beside each other; one was
made with `--secure`: clients come by SASL_SSL, and brokers reach each other by TLS. In turn a broker of each is killed
by kill -9, and comes back. Printed: the time from the signal until each partition that it led has acknowledged a record
with acks=all, as a client sees it that is connected to the other brokers, and one that logs in after the fault.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.etcd.finding import find_etcd

from benchmarks.cluster.clusters import EVIDENCE_AGAIN_S
from benchmarks.cluster.probe import Probe
from cordwood.client.settings import Address
from cordwood.security.connection_settings import parse_security

TOPIC = "orders"
PARTITIONS = 3
NODES = (1, 2, 3)
REST_S = 12.0
"""Leaderships go back to a broker no earlier than 10 s after its return."""
CREATED_WITHIN_S = 60
WAYS = ("connected before", "connects after")


class Side:
    """One of the two clusters, and its clients."""

    def __init__(self, directory: Path, *options: str) -> None:
        path = {"PATH": f"{Path(find_etcd().path).parent}:{os.environ['PATH']}"}
        self.cluster = LocalCluster(directory, "--metadata", "etcd", *options, environment=path)
        self._files = directory / "secure/librdkafka.properties"
        self._killed_at_s = dict.fromkeys(NODES, -EVIDENCE_AGAIN_S)

    def create(self) -> None:
        admin = AdminClient({**self._settings(), "bootstrap.servers": self.cluster.bootstrap})
        settings = {"min.insync.replicas": "2", "ack.durability": "os"}
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(NODES), config=settings)])[TOPIC].result(CREATED_WITHIN_S)

    def _settings(self) -> dict[str, Any]:
        lines = self._files.read_text().splitlines() if self._files.exists() else ()
        return dict(line.split("=", 1) for line in lines)

    def _probe(self, *without: int) -> Probe:
        addresses = {node: Address("127.0.0.1", self.cluster.port(node)) for node in NODES if node not in without}
        settings = self._settings()
        settings.pop("bootstrap.servers", None)
        return Probe(addresses, TOPIC, parse_security(settings))

    def without_a_leader_s(self, *, connected: bool) -> float:
        """Kills the broker that was spared for longest, and brings it back."""
        victim = min(NODES, key=self._killed_at_s.__getitem__)
        with self._probe() as all_nodes:
            all_nodes.until_in_sync(len(NODES))
            time.sleep(max(REST_S, self._killed_at_s[victim] + EVIDENCE_AGAIN_S - time.monotonic()))
            led = [partition for partition, place in all_nodes.places().items() if place.leader == victim]
        assert led, f"broker {victim} leads nothing"
        with self._probe(victim) as probe:
            if connected:
                for node in set(NODES) - {victim}:
                    probe.places(node)
            began_s = self._killed_at_s[victim] = time.monotonic()
            os.kill(self.cluster.pids[victim], signal.SIGKILL)
            restored = probe.until_served(led)
        self.cluster.restart(victim)
        return restored.acked_at_s - began_s


def in_words(times_s: list[float]) -> str:
    return f"{1000 * statistics.median(times_s):.0f} ({1000 * min(times_s):.0f} to {1000 * max(times_s):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    figures: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        sides = {"plain": Side(Path(directory) / "plain"), "secure": Side(Path(directory) / "secure", "--secure")}
        for side in sides.values():
            stack.enter_context(side.cluster)
            side.create()
        for number in range(rounds):
            for way in WAYS:
                for name in list(sides)[:: 1 if number % 2 else -1]:
                    time_s = sides[name].without_a_leader_s(connected=way == WAYS[0])
                    figures.setdefault((name, way), []).append(time_s)
                    print(f"round {number + 1}, {name}, {way}: {1000 * time_s:.0f} ms", flush=True)
    print(f"{rounds} rounds, ms, medians (lowest to highest); load {os.getloadavg()[1]:.1f}")
    for way in WAYS:
        plain, secure = figures["plain", way], figures["secure", way]
        ratio = statistics.median(secure) / statistics.median(plain)
        print(f"{way:18}{'plain':>8} {in_words(plain):>20}{'secure':>10} {in_words(secure):>20}{ratio:>8.2f}x")


if __name__ == "__main__":
    main()
