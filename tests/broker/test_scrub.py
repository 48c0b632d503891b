"""Closed segments that go bad on a real broker: found without a reader, said, refused, and remembered."""

import logging
import shutil
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.broker_process import free_port
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.client.cluster import Cluster
from cordwood.client.errors import DamagedRecords
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker
from cordwood.model.errors import DamagedLog
from cordwood.model.failure import ExitCode
from cordwood.model.identifiers import TopicPartition as Name
from cordwood.node.duties import scrub

TOPIC = "payments"
COUNT = 40
BAD = 14


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrub that does not wait for the start to be over."""
    monkeypatch.setattr(scrub, "FIRST_AFTER_MS", 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's data: forty payments in small segments, the one at offset 14 altered in a closed one."""
    with started(tmp_path) as broker:
        Cordwood(broker.bootstrap_servers)("topic", "create", TOPIC, "-p", 1, "--config", "segment.bytes=1000")
        for number in range(COUNT):
            broker.log.append(TOPIC, None, f"pay {100 + number}", partition=0)
    alter(tmp_path, f"pay {100 + BAD}".encode(), b"pay 914")
    return tmp_path


def started(data_directory: Path, **settings: str) -> Broker:
    return Broker(data_dir=data_directory, settings={"log.scrub.interval.ms": 1, **settings})


def alter(data_directory: Path, old: bytes, new: bytes) -> None:
    for log in (data_directory / f"{TOPIC}-0").glob("*.log"):
        content = log.read_bytes()
        if old in content:
            log.write_bytes(content.replace(old, new))
            return
    raise AssertionError(f"{old!r} is in no segment")


def damage(broker: Broker) -> list[tuple[int, int]]:
    [described] = Cordwood(broker.bootstrap_servers).json("topic", "describe", TOPIC)
    return [(each["first_offset"], each["last_offset"]) for each in described["damage"]]


def polled(broker: Broker, start: int, count: int) -> list[bytes | int | None]:
    """What a client that checks nothing gets: values, and the codes of errors."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(TOPIC, 0, start)])
    got: list[bytes | int | None] = []

    def enough() -> bool:
        for message in consumer.consume(10, timeout=0.1):
            error = message.error()
            got.append(message.value() if error is None else error.code())
        return len(got) >= count

    eventually(enough)
    consumer.close()
    return got


@pytest.mark.usefixtures("hurried")
def test_damage_that_nobody_read_is_found_said_and_not_served(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cordwood.scrub")
    port = free_port()
    with started(data, **{"metrics.listener": f"127.0.0.1:{port}"}) as broker:
        eventually(lambda: damage(broker), to_be=[(BAD, BAD)])
        said = [record.getMessage() for record in caplog.records if record.name == "cordwood.scrub"]
        assert len(said) == 1
        assert f"{TOPIC}-0: offsets {BAD} to {BAD} are damaged" in said[0]
        assert "the CRC is wrong" in said[0]

        before: list[bytes | int | None] = [f"pay {100 + number}".encode() for number in range(BAD)]
        assert polled(broker, 0, BAD + 1)[: BAD + 1] == [*before, KafkaError.INVALID_MSG]
        assert polled(broker, BAD + 1, COUNT - BAD - 1) == [b"pay %d" % (101 + BAD + i) for i in range(COUNT - BAD - 1)]

        cordwood = Cordwood(broker.bootstrap_servers)
        result = cordwood.run("consume", TOPIC)
        assert result.exit_code == ExitCode.FAILED
        assert result.stdout.splitlines() == [value.decode() for value in before if isinstance(value, bytes)]
        assert f"offsets {BAD} to {BAD}" in result.stderr
        assert f"--from {BAD + 1}" in result.stderr
        assert f"partition 0 is damaged on broker 1: offsets {BAD} to {BAD}" in cordwood(
            "topic", "describe", TOPIC
        ).replace("\n", " ")

        with Cluster(ClientSettings(broker.bootstrap_servers)) as client, pytest.raises(DamagedRecords) as refused:
            list(client.stream(Name(TOPIC, 0), 0, COUNT))
        assert f"{TOPIC}-0 is damaged from offset {BAD} on" in str(refused.value)

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        [damaged] = [line for line in text.splitlines() if line.startswith("cordwood_partition_damaged_offsets{")]
        assert f'topic="{TOPIC}"' in damaged
        assert float(damaged.rpartition(" ")[2]) == 1
        assert "cordwood_scrub_read_bytes_total" in text


def test_what_was_found_is_refused_after_a_restart_before_it_is_looked_for_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurry:
        hurry.setattr(scrub, "FIRST_AFTER_MS", 1)
        with started(data) as broker:
            eventually(lambda: damage(broker), to_be=[(BAD, BAD)])
            eventually((data / "scrub-checkpoint").exists)
    monkeypatch.setattr(scrub, "FIRST_AFTER_MS", 3_600_000)
    with started(data) as broker:
        assert damage(broker) == [(BAD, BAD)]
        assert polled(broker, BAD, 1)[0] == KafkaError.INVALID_MSG


@pytest.mark.usefixtures("hurried")
def test_a_segment_that_was_put_right_is_served_again(data: Path) -> None:
    with started(data) as broker:
        eventually(lambda: damage(broker), to_be=[(BAD, BAD)])
        eventually((data / "scrub-checkpoint").exists)
    alter(data, b"pay 914", f"pay {100 + BAD}".encode())
    with started(data) as broker:
        eventually(lambda: damage(broker), to_be=[])
        assert polled(broker, 0, COUNT) == [b"pay %d" % (100 + number) for number in range(COUNT)]


@pytest.mark.usefixtures("hurried")
def test_a_segment_whose_end_is_missing_is_not_passed_over_in_silence(tmp_path: Path, data: Path) -> None:
    first = sorted((data / f"{TOPIC}-0").glob("*.log"))[0]
    alter(data, b"pay 914", f"pay {100 + BAD}".encode())
    size = first.stat().st_size
    with first.open("r+b") as file:
        file.truncate(size - size // 3)
    with started(data) as broker:
        eventually(lambda: bool(damage(broker)))
        [(lost, last)] = damage(broker)
        assert last == int(sorted((data / f"{TOPIC}-0").glob("*.log"))[1].name[:20]) - 1
        got = polled(broker, 0, lost + 1)
        assert got[lost] == KafkaError.INVALID_MSG


def test_records_that_an_older_copy_of_a_partition_lacks_are_still_missed_after_a_restart(tmp_path: Path) -> None:
    """The first life goes on behind the gap. The second opened both sides of it as sound, and passed over it."""
    directory, copy = tmp_path / "data", tmp_path / "copy"
    for value in ("a", "b"):
        with started(directory) as broker:
            broker.log.append(TOPIC, None, value, partition=0)
        if value == "a":
            shutil.copytree(directory / f"{TOPIC}-0", copy)
    shutil.rmtree(directory / f"{TOPIC}-0")
    shutil.copytree(copy, directory / f"{TOPIC}-0")
    with started(directory, **{"log.scrub.bytes.per.second": "0"}) as broker:
        assert broker.log.append(TOPIC, None, "c", partition=0) == 2
    with started(directory, **{"log.scrub.bytes.per.second": "0"}) as broker:
        with pytest.raises(DamagedLog, match="offsets 1 to 1 cannot be read"):
            list(broker.log.read(TOPIC, 0))
        assert [record.value for record in broker.log.read(TOPIC, 0, 2)] == [b"c"]
