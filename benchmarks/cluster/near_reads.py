"""What consumers that read in their own rack save the leader.

    python -m benchmarks.cluster.near_reads [--megabytes 400]

Three brokers in three racks, one topic that one of them leads, and a consumer in each rack. The consumers read the
whole topic at the same time: first all from the leader (no `client.rack`), then each in its rack. The rounds alternate.
Printed: CPU of the leader and of the followers per GB consumed, and the throughput of all consumers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.local_cluster import LocalCluster

from benchmarks import load
from benchmarks.processes import Meter
from cordwood.model.settings.replication_settings import RACK_AWARE_SELECTOR

RACKS = ("a", "b", "c")
TOPIC = "fanout"
SIZE = 1024
ROUNDS = 5
TIMEOUT_S = 120
WAYS = {"all from the leader": ("", "", ""), "each in its rack": RACKS}


def fill(cluster: LocalCluster, messages: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (created,) = admin.create_topics([NewTopic(TOPIC, num_partitions=1, replica_assignment=[[1, 2, 3]])]).values()
    created.result(30)
    load.start(
        "produce", cluster.bootstrap, TOPIC, partitions=1, messages=messages, size=SIZE, timeout=TIMEOUT_S
    ).result(TIMEOUT_S)


def read(cluster: LocalCluster, racks: tuple[str, ...], messages: int) -> tuple[float, float, float]:
    """CPU seconds of the leader and of the followers per GB consumed, and MB/s of all consumers."""
    meters = {node: Meter(pid) for node, pid in cluster.pids.items()}
    runs = [
        load.start(
            "consume",
            cluster.bootstrap,
            TOPIC,
            properties={"client.rack": rack} if rack else {},
            partitions=1,
            messages=messages,
            timeout=TIMEOUT_S,
        )
        for rack in racks
    ]
    results = [run.result(TIMEOUT_S) for run in runs]
    used = {node: meter.usage().cpu_s for node, meter in meters.items()}
    gigabytes = sum(result.size_bytes for result in results) / 1e9
    seconds = max(result.ended_at_s for result in results) - min(result.began_at_s for result in results)
    return used[1] / gigabytes, (used[2] + used[3]) / gigabytes, 1000 * gigabytes / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400)
    messages = parser.parse_args().megabytes * 1_000_000 // SIZE
    options = ["--metadata", "supervisor", "--racks", ",".join(RACKS)]
    options += ["--set", f"replica.selector.class={RACK_AWARE_SELECTOR}"]
    figures: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as directory, LocalCluster(Path(directory) / "cluster", *options) as cluster:
        fill(cluster, messages)
        for number in range(ROUNDS):
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                figures[way].append(read(cluster, WAYS[way], messages))
    print(f"{len(RACKS)} consumers, {messages * SIZE / 1e6:.0f} MB each, {ROUNDS} rounds, medians (lowest to highest)")
    print(f"{'':22}{'leader CPU s/GB':>26}{'followers CPU s/GB':>26}{'MB/s':>22}")
    for way, rounds in figures.items():
        columns = [
            f"{statistics.median(each):.3g} ({min(each):.3g} to {max(each):.3g})" for each in zip(*rounds, strict=True)
        ]
        print(f"{way:22}{columns[0]:>26}{columns[1]:>26}{columns[2]:>22}")
    leader = [statistics.median(each[0] for each in figures[way]) for way in WAYS]
    print(f"CPU of the leader in its rack alone, to that with all readers: {leader[1] / leader[0]:.2f}x")


if __name__ == "__main__":
    main()
