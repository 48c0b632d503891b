"""A data directory that is renamed or unmounted under a running broker: no partition begins anew at its path, and when
the directory is back, every acknowledged record is there."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.crash.conftest import StartBroker
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all, read_to_end

from cordwood.embedded import Broker, Cluster

PARTITIONS = range(4)
Written = dict[tuple[str, int], list[str]]


class Vanishing(Protocol):
    """A data directory that can be taken away, so that another or none is at its path, and brought back."""

    path: Path

    def vanish(self) -> None: ...

    def come_back(self) -> None: ...


class Renamed:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._away = path.with_name("away")

    def vanish(self) -> None:
        self.path.rename(self._away)

    def come_back(self) -> None:
        assert not self.path.exists(), sorted(self.path.rglob("*"))
        self._away.rename(self.path)


class Unmounted:
    """The root of a disk, whose mount point is an empty directory."""

    def __init__(self, disk: LoopDisk) -> None:
        self.path = disk.path
        self._disk = disk

    def vanish(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, timeout=60)

    def come_back(self) -> None:
        assert not [path for path in self.path.iterdir() if path.is_dir()], "no partition was made at the mount point"
        self._disk.mount()


@pytest.fixture(params=["renamed", "unmounted"])
def other(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Vanishing]:
    if request.param == "renamed":
        yield Renamed(tmp_path / "other")
        return
    try:
        disk = LoopDisk(tmp_path, size_mib=64)
    except MountUnavailable as reason:
        pytest.skip(f"there is no disk to unmount here: {reason}")
    yield Unmounted(disk)
    disk.destroy()


def create_topic(broker: BrokerProcess, topic: str) -> None:
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    administrator.create_topics([NewTopic(topic, len(PARTITIONS), 1)])[topic].result(120)


def write(broker: BrokerProcess, topic: str, words: str, written: Written) -> None:
    """Writes to each partition, and notes the values that were acknowledged."""
    for partition in PARTITIONS:
        settings = {"bootstrap.servers": broker.bootstrap, "acks": "all", "retries": 0, "log_level": 0}
        producer = Producer({**settings, "enable.idempotence": False, "message.timeout.ms": 5_000})
        try:
            produce_all(producer, [{"topic": topic, "partition": partition, "value": words}])
        except KafkaException:
            continue
        written.setdefault((topic, partition), []).append(words)


def values_in(bootstrap: str, topic: str, partition: int) -> list[str]:
    return [(message.value() or b"").decode() for message in read_to_end(bootstrap, topic, (partition,))]


def in_sync(administrator: AdminClient) -> list[int]:
    partitions = administrator.list_topics("orders", timeout=10).topics["orders"].partitions
    return [len(partitions[partition].isrs) for partition in PARTITIONS]


def killed(broker: BrokerProcess) -> None:
    broker.kill()


def stopped(broker: BrokerProcess) -> None:
    assert broker.stop() == 0, broker.output()
    broker.says("is gone")
    broker.says("stopped cleanly")


@pytest.mark.parametrize("end", [killed, stopped])
def test_no_acknowledged_record_is_lost_when_the_directory_is_back(
    other: Vanishing, tmp_path: Path, start_broker: StartBroker, end: Callable[[BrokerProcess], None]
) -> None:
    broker = start_broker(Path(f"{tmp_path}/home,{other.path}"))
    written: Written = {}
    create_topic(broker, "before")
    write(broker, "before", "first", written)
    assert len(written) == len(PARTITIONS)
    assert broker.stop() == 0
    broker.start()
    other.vanish()
    create_topic(broker, "after")
    for topic in ("after", "before"):
        write(broker, topic, "while it was gone", written)
    eventually(lambda: "its partitions are offline" in broker.output(), what="a word about the directory")
    for topic in ("after", "before"):
        write(broker, topic, "once it was noticed", written)
    assert sum("once it was noticed" in values for values in written.values()) >= len(PARTITIONS), "others go on"
    end(broker)
    other.come_back()
    broker.start()
    for (topic, partition), values in written.items():
        assert values_in(broker.bootstrap, topic, partition) == values


def test_a_stop_that_comes_before_the_next_checkpoint_says_which_directory_is_gone(
    other: Vanishing, tmp_path: Path, start_broker: StartBroker
) -> None:
    broker = start_broker(Path(f"{tmp_path}/home,{other.path}"))
    written: Written = {}
    create_topic(broker, "orders")
    write(broker, "orders", "first", written)
    other.vanish()
    write(broker, "orders", "into files that are open", written)
    stopped(broker)
    other.come_back()
    broker.start()
    for (topic, partition), values in written.items():
        assert values_in(broker.bootstrap, topic, partition) == values == ["first", "into files that are open"]


def test_a_broker_whose_only_directory_is_gone_stops_with_words(other: Vanishing, start_broker: StartBroker) -> None:
    broker = start_broker(other.path)
    written: Written = {}
    create_topic(broker, "before")
    write(broker, "before", "first", written)
    other.vanish()
    # The broker may notice at once, and end before it answers.
    with suppress(KafkaException, TimeoutError):
        create_topic(broker, "after")
    write(broker, "after", "while it was gone", written)
    eventually(lambda: not broker.alive, what="the end of the broker")
    assert broker.exit_code
    (words,) = re.findall("the broker cannot go on: (.*)", broker.output())
    # The metadata store may be the first to notice.
    assert words.startswith((f"{other.path} is gone", f"the metadata store {other.path}/metadata.sqlite failed"))
    broker.kill()
    other.come_back()
    broker.start()
    for (topic, partition), values in written.items():
        assert values_in(broker.bootstrap, topic, partition) == values


def test_in_a_cluster_the_other_replicas_lead_and_none_of_them_is_cut(other: Vanishing, tmp_path: Path) -> None:
    with Cluster(nodes=2) as cluster:
        settings: dict[str, str | int] = {"cluster.name": "embedded", "cluster.store": cluster.store, "node.id": 3}
        directories = f"{tmp_path}/home,{other.path}"
        third = Broker(data_dir=directories, settings=settings).start()
        try:
            bootstrap = f"{cluster.bootstrap_servers},{third.bootstrap_servers}"
            administrator = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            client = Producer(
                {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
            )
            other.vanish()
            topic = NewTopic("orders", len(PARTITIONS), replica_assignment=[[3, 1, 2]] * len(PARTITIONS))
            administrator.create_topics([topic])["orders"].result(120)
            expected = [str(number) for number in range(20)]
            records = [
                {"topic": "orders", "partition": partition, "value": value}
                for value in expected
                for partition in PARTITIONS
            ]
            produce_all(client, records, timeout_s=60)
            third.kill()
            other.come_back()
            third = Broker(data_dir=directories, settings=settings).start()
            eventually(lambda: in_sync(administrator) == [3] * len(PARTITIONS), what="three replicas in sync")
            for partition in PARTITIONS:
                assert values_in(cluster.bootstrap_servers, "orders", partition) == expected
        finally:
            third.stop()
