"""The time without a leader: from a fault to the first record that the next leader acknowledges with acks=all.

A killed process's connections are refused at once. A lost machine is a frozen one: its connections stay open, and
nobody answers. Each fault meets a topic of its own, whose partitions have their leaders on all nodes; the probe writes
to those of the broken node. Then the node comes back, and the next fault waits until all replicas are in sync.
"""

from __future__ import annotations

import time
from typing import NamedTuple, cast

from benchmarks.bench import Bench, Sample
from benchmarks.cluster.clusters import Cluster, Role
from benchmarks.cluster.probe import Probe
from benchmarks.figures import KAFKA, Metric, Target
from benchmarks.systems import System

LEASE_S = 3.0
"""Cordwood's default broker.lease.ms."""
_KILLED = Target(0.5, at_least=False, of_own_value=True)
_LOST = Target(LEASE_S + 1.5, at_least=False, of_own_value=True)
_HALF = Target(0.5, at_least=False)
_REST_S = 1.0
"""After all replicas are in sync again: leaders move back to the first replicas."""
MANY = 1000


class Fault(NamedTuple):
    case: str
    role: Role
    lost: bool
    with_store_leader: bool


FAULTS = (
    Fault("kill -9 of a leader", Role.PLAIN, False, False),
    Fault("kill -9 of a leader that is the controller", Role.CONTROLLER, False, False),
    Fault("kill -9 of a leader, and of etcd's leader (Kafka: of the controller)", Role.PLAIN, False, True),
    Fault("lost machine", Role.PLAIN, True, False),
    Fault("lost machine with etcd's leader (Kafka: the controller)", Role.STORE_LEADER, True, False),
)


def failover(bench: Bench) -> None:
    """Default settings on both sides."""
    of_controller: list[Sample] = []
    for fault in FAULTS:
        limit = _LOST if fault.lost else _KILLED
        metrics = (
            Metric("without a leader", "s", limit),
            Metric("the same, beside Kafka's", "s", _HALF),
            Metric("leader named after", "s"),
        )

        def measure(system: System, fault: Fault = fault) -> Sample:
            cluster = cast("Cluster", system)
            theirs = system.name == KAFKA
            if theirs and fault.with_store_leader and of_controller:
                return of_controller.pop(0)  # Kafka's controller and the leader of its quorum are one process
            with bench.topic(cluster, partitions=3, durability="os") as topic:
                acked_s, led_s = _break(cluster, topic, fault)
            sample = Sample((acked_s, acked_s, led_s))
            if theirs and fault.role is Role.CONTROLLER:
                of_controller.append(sample)
            return sample

        bench.alternate(fault.case, metrics, bench.pair(), measure, rounds=2 if bench.plan.quick else 5)


def _break(cluster: Cluster, topic: str, fault: Fault) -> tuple[float, float]:
    with Probe(cluster.addresses, topic) as all_nodes:
        all_nodes.until_in_sync(3)
        time.sleep(_REST_S)
        victim = cluster.machine_of(fault.role)
        if not fault.lost and (rest_s := cluster.rest_needed_s(victim)) > 0:
            time.sleep(rest_s)
            victim = cluster.machine_of(fault.role)
        led = [partition for partition, place in all_nodes.places().items() if place.leader == victim]
    survivors = {node: address for node, address in cluster.addresses.items() if node != victim}
    with Probe(survivors, topic) as probe:
        probe.places()  # connections are made before the fault
        began_s = (
            cluster.lose(victim) if fault.lost else cluster.kill(victim, with_store_leader=fault.with_store_leader)
        )
        try:
            restored = probe.until_served(led)
        finally:
            cluster.bring_back(victim)
    with Probe(cluster.addresses, topic) as all_nodes:
        all_nodes.until_in_sync(3)
    return restored.acked_at_s - began_s, restored.led_at_s - began_s


def many(bench: Bench) -> None:
    """kill -9 of a broker that leads a third of 1,000 partitions."""
    fault = FAULTS[0]

    def measure(system: System) -> Sample:
        cluster = cast("Cluster", system)
        with bench.topic(cluster, partitions=MANY, durability="os") as topic:
            acked_s, led_s = _break(cluster, topic, fault)
        return Sample((acked_s, acked_s, led_s))

    metrics = (
        Metric("all written to again after", "s", _KILLED),
        Metric("the same, beside Kafka's", "s", _HALF),
        Metric("all leaders named after", "s"),
    )
    bench.alternate(f"{MANY:,} partitions, kill -9 of a leader of a third", metrics, bench.pair(), measure, rounds=1)
