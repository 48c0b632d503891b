"""Brokers on several data directories, records in all partitions of a topic, and the directories that have them."""

from pathlib import Path

from confluent_kafka import Producer
from tests.interop.confluent_clients import produce_all, read_to_end

from cordwood.embedded import Broker
from cordwood.log.directory.identity import Identity, read_identity
from cordwood.log.files.os_filesystem import OsFilesystem

PARTITIONS = (0, 1, 2, 3)


def paths(tmp_path: Path, *names: str) -> str:
    return ",".join(str(tmp_path / name) for name in names)


def broker(directories: str) -> Broker:
    return Broker(data_dir=directories, settings={"num.partitions": len(PARTITIONS)})


def written(bootstrap_servers: str, words: str = "") -> dict[int, list[str]]:
    """The values that were written to each partition, all acknowledged."""
    values = {partition: [f"{words}{partition} {number}" for number in range(5)] for partition in PARTITIONS}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    records = [{"topic": "orders", "partition": index, "value": value} for index in values for value in values[index]]
    produce_all(producer, records)
    return values


def read(bootstrap_servers: str, *partitions: int) -> dict[int, list[str]]:
    values: dict[int, list[str]] = {partition: [] for partition in partitions}
    for message in read_to_end(bootstrap_servers, "orders", partitions):
        values[message.partition() or 0].append((message.value() or b"").decode())
    return values


def partitions_in(directory: Path) -> set[int]:
    return {int(path.name.removeprefix("orders-")) for path in directory.glob("orders-*")}


def identity(directory: Path) -> Identity:
    owner = read_identity(OsFilesystem(str(directory)), str(directory))
    assert owner is not None
    return owner
