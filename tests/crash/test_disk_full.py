"""A full disk: producers are told, readers read on, nothing acknowledged is lost, and freed space is used again."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cluster.local_cluster import CORDWOOD, clean_environment
from tests.crash.conftest import MakeLoad, StartBroker
from tests.crash.mounts import Disk, LoopDisk, MountUnavailable, SmallTmpfs
from tests.crash.workload import Sender, Workload
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

SIZE_MIB = 24


def fill_the_disk(broker: BrokerProcess, topic: str) -> KafkaError:
    """Writes until it is refused; what the producer was told."""
    client = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": False,
            "retries": 0,
            "message.timeout.ms": 120_000,
            "linger.ms": 0,
        }
    )
    for _ in range(SIZE_MIB * 4):
        try:
            produce_all(client, [{"topic": topic, "value": bytes(512 << 10)}])
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            return error
    raise AssertionError(f"{SIZE_MIB * 2} MiB fit on a disk of {SIZE_MIB} MiB")


def take_the_rest(disk: Disk) -> None:
    """Somebody else's file takes what is too little for a batch: from here on not even a small file fits."""
    with (disk.path / "the-rest").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


def free_bytes(disk: Disk) -> int:
    """Also of the blocks that ext4 keeps for root, as whom the broker of a test runs."""
    found = os.statvfs(disk.path)
    return found.f_bfree * found.f_frsize


def stands_still(sender: Sender) -> bool:
    """Whether nothing was acknowledged for a second."""
    before = sender.acked
    time.sleep(1)
    return sender.acked == before and sender.in_flight > 0


@pytest.fixture(params=[SmallTmpfs, LoopDisk], ids=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    try:
        disk: Disk = request.param(tmp_path, SIZE_MIB)
    except MountUnavailable as reason:
        pytest.skip(f"no small disk here: {reason}")
    yield disk
    disk.destroy()


@dataclass
class FullDisk:
    """A disk without a free byte, a broker on it that has been told to write, and who waits for it."""

    disk: Disk
    broker: BrokerProcess
    load: Workload


@pytest.fixture
def full(disk: Disk, start_broker: StartBroker, make_load: MakeLoad) -> FullDisk:
    (disk.path / "somebody-elses").write_bytes(bytes(4 << 20))
    broker = start_broker(disk.path / "data")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    filler = NewTopic("filler", num_partitions=1, replication_factor=1, config={"file.delete.delay.ms": "0"})
    admin.create_topics([filler], operation_timeout=20)["filler"].result(60)
    load = make_load(broker, partitions=2, value_bytes=1000)
    load.create_topic()
    sender = load.add_sender("p1")
    load.add_reader("r1")
    load.await_acks(500)
    error = fill_the_disk(broker, "filler")
    assert error.code() == KafkaError.KAFKA_STORAGE_ERROR, error
    # Small records still find room for a while; then this producer waits too.
    eventually(lambda: stands_still(sender), what="a producer that waits")
    take_the_rest(disk)
    return FullDisk(disk, broker, load)


def assert_all_is_well_again(full: FullDisk) -> None:
    full.load.await_acks(500)
    report = full.load.finish()
    assert report.clean, report.render()
    assert full.load.fatal_errors() == []
    assert full.broker.stop() == 0


@pytest.mark.timeout(400)
def test_readers_read_on_and_producers_go_on_once_there_is_space(full: FullDisk) -> None:
    assert full.broker.alive, full.broker.output()[-4000:]
    assert len(read_to_end(full.broker.bootstrap, "orders", range(2))) >= 500
    (full.disk.path / "somebody-elses").unlink()
    assert_all_is_well_again(full)


@pytest.mark.timeout(400)
def test_deleting_a_topic_makes_space_on_a_disk_without_any(full: FullDisk) -> None:
    admin = AdminClient({"bootstrap.servers": full.broker.bootstrap})
    admin.delete_topics(["filler"], operation_timeout=20)["filler"].result(60)
    assert_all_is_well_again(full)


@pytest.mark.timeout(400)
def test_a_full_disk_is_named_wherever_an_operator_looks(full: FullDisk) -> None:
    def cordwood(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*CORDWOOD, *arguments, "--bootstrap-server", full.broker.bootstrap],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    status = cordwood("cluster", "status", "--exit-code")
    assert status.returncode == 5, status.stdout
    assert "The disk of broker 1 is full" in status.stdout
    produced = cordwood("produce", "orders", "--timeout", "5", "x" * 100_000)
    assert produced.returncode == 1, produced.stderr
    assert "the disk of broker 1" in produced.stderr
    moved = cordwood("group", "reset", "late", "--topic", "orders", "--to", "earliest", "--execute")
    assert moved.returncode == 1, moved.stderr + moved.stdout
    assert "the disk of broker 1" in moved.stderr
    assert full.broker.stop() == 0
    full.broker.says("stopped on a full disk")
    full.broker.says("the next start checks the logs")
    (full.disk.path / "somebody-elses").unlink()
    full.broker.start()
    assert_all_is_well_again(full)


@pytest.mark.timeout(400)
def test_a_broker_killed_on_a_full_disk_loses_nothing(full: FullDisk) -> None:
    """It serves again, or says that it needs space; with space it has all that was acknowledged."""
    full.broker.kill()
    full.broker.launch()
    eventually(lambda: full.broker.is_ready() or not full.broker.alive, what="a start, or its failure")
    if full.broker.alive:
        assert len(read_to_end(full.broker.bootstrap, "orders", range(2))) >= 500
    else:
        assert full.broker.exit_code != 0
        assert "no space left" in full.broker.output().lower()
    full.broker.kill()
    (full.disk.path / "somebody-elses").unlink()
    full.broker.start()
    assert_all_is_well_again(full)


def test_a_broker_that_was_stopped_starts_on_a_disk_that_somebody_else_has_filled(
    disk: Disk, start_broker: StartBroker
) -> None:
    """It serves what it has, and deletes a topic, which frees space."""
    broker = start_broker(disk.path / "data")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)], operation_timeout=20)["orders"].result(60)
    produce_all(Producer({"bootstrap.servers": broker.bootstrap}), [{"topic": "orders", "value": bytes(900_000)}])
    assert broker.stop() == 0
    take_the_rest(disk)
    for _ in range(2):
        broker.start()
        assert len(read_to_end(broker.bootstrap, "orders", [0])) == 1
        take_the_rest(disk)
        broker.kill()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["orders"], operation_timeout=20)["orders"].result(60)
    eventually(lambda: free_bytes(disk) > 1 << 19, what="free space")
    assert broker.stop() == 0
