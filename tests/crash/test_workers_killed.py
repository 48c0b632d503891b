"""kill -9, a power cut and a full disk while a start moves partitions between workers: real files, the real metadata
store."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.cluster.faults.stage import fill
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.deadline import eventually

PARTITIONS = 5
RECORDS = 50


def arrange(directory: Path, workers: int, changes: int = -1) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.crash.arranging_worker", str(directory), str(workers), str(changes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def arranged(directory: Path, workers: int, changes: int = -1) -> int | None:
    """The number of changes; None if the process was killed before the last of them."""
    ended = arrange(directory, workers, changes)
    if ended.returncode == -9:
        return None
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def logs_in(directory: Path) -> dict[str, bytes]:
    """The content of each partition's log, by partition; each is there once."""
    found: dict[str, bytes] = {}
    for path in directory.rglob("*.log"):
        assert path.parent.name not in found, f"{path.parent.name} is in two places"
        found[path.parent.name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was killed: its logs are not closed."""
    data = tmp_path_factory.mktemp("written") / "data"
    broker = BrokerProcess(data).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("t", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    broker.kill()
    return data


def copy_for(written: Path, tmp_path: Path, workers: int) -> Path:
    """A copy of the directory, arranged for so many workers; 0: for a plain broker."""
    begin = tmp_path / "begin"
    shutil.copytree(written, begin)
    if workers:
        arranged(begin, workers)
    return begin


def changes_to(begin: Path, tmp_path: Path, workers: int) -> int:
    """How many changes of the disk it takes to arrange the directory for so many workers."""
    counted = tmp_path / "counted"
    shutil.copytree(begin, counted)
    changes = arranged(counted, workers)
    assert changes is not None
    return changes


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 2), (2, 0)])
def test_each_partition_is_there_once_after_a_kill_at_any_point(
    written: Path, tmp_path: Path, before: int, after: int
) -> None:
    begin = copy_for(written, tmp_path, before)
    logs = logs_in(begin)
    changes = changes_to(begin, tmp_path, after)
    # Every fifth point, from another one on for each case, and the last ones: a process takes a good second.
    points = sorted({*range(before % 5, changes, 5), changes - 2, changes - 1})
    for place, point in enumerate(points):
        data = tmp_path / f"killed-{point}"
        shutil.copytree(begin, data)
        assert arranged(data, after, point) is None
        assert logs_in(data) == logs
        following = (after, 4, 0)[place % 3]
        assert arranged(data, following) is not None
        assert logs_in(data) == logs
        assert not (data / "partition-moves").exists()
        homes = {path.parent.parent for path in data.rglob("t-*/*.log")}
        assert homes == (
            {data} if not following else {data / "workers" / str(number + 1) for number in range(following)}
        )
        if place % 4 == 0:
            _check_served(data)
        shutil.rmtree(data)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=128)
    except MountUnavailable as reason:
        pytest.skip(f"no disk of our own here: {reason}")
    yield disk
    disk.destroy()


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 2)])
def test_each_partition_is_there_once_after_a_power_cut(
    written: Path, disk: LoopDisk, tmp_path: Path, before: int, after: int
) -> None:
    begin = copy_for(written, tmp_path, before)
    logs = logs_in(begin)
    changes = changes_to(begin, tmp_path, after)
    data = disk.path / "data"
    for place, point in enumerate(sorted({*range(before + 1, changes, 7), changes - 1})):
        shutil.copytree(begin, data)
        os.sync()
        assert arranged(data, after, point) is None
        disk.cut_power()
        disk.unmount()
        disk.mount()
        assert logs_in(data) == logs
        following = (after, 4, 0)[place % 3]
        assert arranged(data, following) is not None
        assert logs_in(data) == logs
        if place % 4 == 0:
            _check_served(data)
        shutil.rmtree(data)


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 2)])
def test_a_full_disk_stops_a_change_of_the_number_of_workers_and_free_space_lets_it_go_on(
    written: Path, disk: LoopDisk, tmp_path: Path, before: int, after: int
) -> None:
    begin = copy_for(written, tmp_path, before)
    logs = logs_in(begin)
    data = disk.path / "data"
    refused = 0
    for place, left_kib in enumerate((0, 4, 16, 48)):
        shutil.copytree(begin, data)
        filler = fill(disk)
        os.truncate(filler, filler.stat().st_size - (left_kib << 10))
        os.sync()
        ended = arrange(data, after)
        filler.unlink()
        assert logs_in(data) == logs
        if ended.returncode:
            refused += 1
            assert "No space left on device" in ended.stderr or "full" in ended.stderr, ended.stderr
        assert arranged(data, (after, 4, 0)[place % 3]) is not None
        assert logs_in(data) == logs
        if place == 1:
            _check_served(data)
        shutil.rmtree(data)
    assert refused


def _check_served(data: Path) -> None:
    """A broker alone takes all partitions back, and has every record."""
    with BrokerProcess(data) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
        found: list[int] = []

        def all_read() -> bool:
            found.extend(int(message.value() or b"") for message in consumer.consume(100, 0.5) if not message.error())
            return len(found) >= RECORDS

        eventually(all_read, what="all records")
        consumer.close()
    assert sorted(found) == list(range(RECORDS))
