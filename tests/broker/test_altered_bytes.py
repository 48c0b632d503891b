"""Bytes that were altered on a stopped broker's disk: none of our own readers hands them out as records."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood

from cordwood.embedded import Broker
from cordwood.model.errors import DamagedLog
from cordwood.model.failure import ExitCode

TOPIC = "payments"


def alter(data_directory: Path, old: bytes, new: bytes) -> None:
    """Changes a record where it lies; its batch keeps its checksum."""
    [log] = (data_directory / f"{TOPIC}-0").glob("*.log")
    content = log.read_bytes()
    assert content.count(old) == 1
    log.write_bytes(content.replace(old, new))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Has one payment a batch, ten of them, and `pay 104` became `pay 904` while it was stopped."""
    with Broker(data_dir=tmp_path) as broker:
        for number in range(10):
            broker.log.append(TOPIC, None, f"pay {100 + number}", partition=0)
    alter(tmp_path, b"pay 104", b"pay 904")
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def test_consume_prints_what_is_sound_and_names_the_damage(broker: Broker) -> None:
    result = Cordwood(broker.bootstrap_servers).run("consume", TOPIC)
    assert result.stdout == "".join(f"pay {100 + number}\n" for number in range(4))
    assert result.exit_code == ExitCode.FAILED
    assert f"partition 0 of {TOPIC} is damaged from offset 4 on" in result.stderr
    assert "--from" in result.stderr


def test_a_group_has_committed_what_consume_printed_before_the_damage(broker: Broker) -> None:
    cordwood = Cordwood(broker.bootstrap_servers)
    code, error = cordwood.error("consume", TOPIC, "--group", "g")
    assert (code, error["code"]) == (ExitCode.FAILED, "CORRUPT_MESSAGE")
    assert cordwood.run("consume", TOPIC, "--group", "g").stdout == ""
    assert cordwood("consume", TOPIC, "--from", 5).splitlines() == [f"pay {number}" for number in range(105, 110)]


def test_reading_in_process_stops_at_the_damage_and_goes_on_behind_it(broker: Broker) -> None:
    reading = broker.log.read(TOPIC, 0)
    assert [next(reading).value for _ in range(4)] == [b"pay 100", b"pay 101", b"pay 102", b"pay 103"]
    with pytest.raises(DamagedLog, match=rf"{TOPIC}-0: offsets 4 to 4 are damaged.*from offset 5 on"):
        next(reading)
    assert [record.offset for record in broker.log.read(TOPIC, 0, 5)] == [5, 6, 7, 8, 9]
