"""`cordwood serve --workers N`: brokers of one machine on one data directory, as real processes with real clients."""

import json
import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import CORDWOOD, LocalCluster, clean_environment, is_alive
from tests.deadline import eventually

PARTITIONS = 6


class LocalWorkers(LocalCluster):
    """The workers of a test."""

    def __init__(self, directory: Path, workers: int, *options: str) -> None:
        super().__init__(directory, *options, nodes=workers)

    @property
    def command(self) -> Sequence[str]:
        options = ("--workers", str(self._nodes), "--data-dir", str(self.directory), "--json")
        return (*CORDWOOD, "serve", *options, "--listen", "127.0.0.1:0", *self._options)


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CORDWOOD, *words], env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
    )


def refused(directory: Path, *options: str) -> str:
    """What a start says that is refused."""
    ended = run("serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0", *options)
    assert ended.returncode != 0
    return ended.stderr


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Acknowledged by all: each value is in the partition of its number."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    failures: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(120) == 0
    assert failures == []


def produce_in_transaction(bootstrap: str, topic: str, values: Sequence[str], *, commit: bool = True) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one-writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def all_values(bootstrap: str, topic: str, count: int) -> list[str]:
    """The values of a topic as a reader of committed records sees them, in the order of each partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()

    def done() -> bool:
        for message in reader.consume(1000, 1.0):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                found.append((message.value() or b"").decode())
        return len(found) >= count and len(ended) == PARTITIONS

    eventually(done, what=f"{count} records; found {len(found)}")
    reader.close()
    return found


def commit_positions(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    positions = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
    eventually(lambda: _committed(consumer, positions), what="the commit")
    consumer.close()


def _committed(consumer: Consumer, positions: list[TopicPartition]) -> bool:
    done = consumer.commit(offsets=positions, asynchronous=False)
    return all(each.error is None for each in done or [])


def positions_of(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=60)
    consumer.close()
    return [each.offset for each in found]


def leaders(bootstrap: str, topic: str) -> Counter[int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics.get(topic)
    return Counter() if found is None else Counter(each.leader for each in found.partitions.values())


def test_the_number_of_workers_changes_and_nothing_is_lost(tmp_path: Path) -> None:
    """One broker alone, then three workers, then two, then alone again: records, positions, transactions, ids."""
    data = tmp_path / "data"
    written: list[str] = []

    def go_on(bootstrap: str, stage: str, workers: int) -> None:
        led_by = set(range(1, workers + 1))
        eventually(lambda: leaders(bootstrap, "orders").keys() == led_by, what="leaders on all workers")
        assert sorted(all_values(bootstrap, "orders", len(written))) == sorted(written)
        if written:
            assert positions_of(bootstrap, "orders") == [len(written) // 100] * PARTITIONS
        values = [f"{stage}-{number}" for number in range(60)]
        produce(bootstrap, "orders", values)
        decided = [f"{stage}-transaction-{number}" for number in range(12)]
        produce_in_transaction(bootstrap, "orders", decided)
        produce_in_transaction(bootstrap, "orders", ["never"] * PARTITIONS, commit=False)
        written.extend([*values, *decided])
        commit_positions(bootstrap, "orders", len(written) // 100)

    with BrokerProcess(data) as broker:
        create(broker.bootstrap, "orders")
        go_on(broker.bootstrap, "alone", 1)
        cluster_id = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).cluster_id
    with LocalWorkers(data, 3) as workers:
        go_on(workers.bootstrap, "three", 3)
        eventually(
            lambda: leaders(workers.bootstrap, "__consumer_offsets").keys(),
            to_be={1, 2, 3},
            what="groups on all workers",
        )
        assert workers.stop() == 0
    with LocalWorkers(data, 2) as workers:
        go_on(workers.bootstrap, "two", 2)
        # The next start finds logs that were not closed.
        os.kill(workers.supervisor.pid, signal.SIGKILL)
        for pid in workers.pids.values():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, workers.pids.values())), what="the end of all workers")
    with BrokerProcess(data) as broker:
        go_on(broker.bootstrap, "alone again", 1)
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).cluster_id
        assert found == cluster_id
        assert not (data / "workers").exists()


def test_a_directory_in_use_is_refused_and_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalWorkers(data, 2) as workers:
        create(workers.bootstrap, "orders")
        eventually(lambda: leaders(workers.bootstrap, "orders"), to_be={1: 3, 2: 3}, what="leaders on both workers")
        produce(workers.bootstrap, "orders", [str(number) for number in range(60)])
        assert "in use" in refused(data, "--workers", "2")
        assert "in use" in refused(data)
        workers.kill(2)
        eventually(lambda: "serves again" in workers.said, what="the second life of worker 2")
        assert f"worker 2 (pid {workers.pids[2]}) ended: killed by signal 9 (SIGKILL)" in workers.said
        assert sorted(map(int, all_values(workers.bootstrap, "orders", 60))) == list(range(60))
        admin = AdminClient({"bootstrap.servers": workers.bootstrap})
        with pytest.raises(KafkaException, match=r"replication\.factor\.max"):
            admin.create_topics([NewTopic("many", 1, 2)])["many"].result(60)


@pytest.mark.landing
def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with LocalWorkers(tmp_path / "data", 2) as workers:
        os.kill(workers.supervisor.pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, workers.pids.values())), what="the end of all workers")


def test_a_worker_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    with LocalWorkers(tmp_path / "data", 2) as workers:
        create(workers.bootstrap, "orders")
        workers.freeze(1)
        eventually(lambda: f"(pid {workers.pids[1]}) hangs" in workers.said, what="the notice of the hang")
        eventually(lambda: "worker 1" in workers.said and "serves again" in workers.said, what="its second life")
        produce(workers.bootstrap, "orders", [str(number) for number in range(60)])
        assert sorted(map(int, all_values(workers.bootstrap, "orders", 60))) == list(range(60))


def test_workers_listen_on_ports_that_follow_each_other(tmp_path: Path) -> None:
    base = free_range(3)
    with LocalWorkers(tmp_path / "data", 3, "--set", f"listeners=127.0.0.1:{base}") as workers:
        assert workers.bootstrap == ",".join(f"127.0.0.1:{base + place}" for place in range(3))


def free_range(count: int) -> int:
    for base in range(20_000, 30_000, 10):
        probes = []
        try:
            for port in range(base, base + count):
                probes.append(socket.create_server(("127.0.0.1", port)))
            return base
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free range of ports")


def test_usage_errors_say_what_is_wrong(tmp_path: Path) -> None:
    assert "neither `auto` nor a number" in refused(tmp_path, "--workers", "many")
    assert "contradict each other" in refused(
        tmp_path, "--workers", "2", "--cluster", "c", "--store", "unix:///x", "--node-id", "1"
    )
    assert json.loads(refused(tmp_path, "--workers", "0", "--json").splitlines()[-1])["error"]["code"] == "USAGE"


def test_metadata_that_was_lost_is_repaired_and_the_workers_find_their_partitions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalWorkers(data, 2) as workers:
        create(workers.bootstrap, "orders")
        produce(workers.bootstrap, "orders", [str(number) for number in range(60)])
        assert workers.stop() == 0
    (data / "metadata.sqlite").unlink()
    assert "cordwood recover metadata" in refused(data, "--workers", "2")
    assert "each has a home in it" in run("recover", "list", str(data)).stderr
    repaired = run("recover", "metadata", str(data))
    assert repaired.returncode == 0, repaired.stderr
    with LocalWorkers(data, 2) as workers:
        assert sorted(map(int, all_values(workers.bootstrap, "orders", 60))) == list(range(60))
