"""`cordwood topic truncate`: deletes records before a place, and says which, before and after."""

import time

import pytest
from tests.cli.conftest import Cordwood

from cordwood.model.failure import ExitCode


@pytest.fixture
def made(cordwood_cli: Cordwood, topic: str) -> str:
    cordwood_cli("topic", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        cordwood_cli("produce", topic, "--partition", partition, *(str(number) for number in range(10)))
    return topic


def starts(cordwood_cli: Cordwood, topic: str) -> list[int]:
    [described] = cordwood_cli.json("topic", "describe", topic)
    return [partition["start_offset"] for partition in described["partitions"]]


def test_records_before_an_offset_of_a_partition_are_deleted(cordwood_cli: Cordwood, made: str) -> None:
    done = cordwood_cli.json("topic", "truncate", made, "--before", "4", "--partition", "1", "--yes")
    assert done == {
        "topic": made,
        "deleted": True,
        "partitions": [{"partition": 1, "start": 0, "new_start": 4, "end": 10}],
    }
    assert starts(cordwood_cli, made) == [0, 4]


def test_an_offset_needs_its_partition(cordwood_cli: Cordwood, made: str) -> None:
    code, error = cordwood_cli.error("topic", "truncate", made, "--before", "4", "--yes")
    assert code == ExitCode.USAGE
    assert "--partition" in error["hint"]
    assert starts(cordwood_cli, made) == [0, 0]


def test_everything_and_all_but_the_last_records_can_go(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("topic", "truncate", made, "--before", "-3", "--yes")
    assert starts(cordwood_cli, made) == [7, 7]
    cordwood_cli("topic", "truncate", made, "--before", "end", "--yes")
    assert starts(cordwood_cli, made) == [10, 10]
    assert cordwood_cli("consume", made, "-q") == ""


def test_records_before_a_time_are_deleted(cordwood_cli: Cordwood, made: str) -> None:
    time.sleep(0.005)
    cut_ms = int(time.time() * 1000)
    time.sleep(0.005)
    cordwood_cli("produce", made, "--partition", "0", "later")
    cordwood_cli("topic", "truncate", made, "--before", f"@{cut_ms}", "--yes")
    assert starts(cordwood_cli, made) == [10, 10]
    assert cordwood_cli("consume", made, "-q") == "later\n"


def test_a_dry_run_changes_nothing(cordwood_cli: Cordwood, made: str) -> None:
    shown = cordwood_cli.json("topic", "truncate", made, "--before", "end", "--dry-run")
    assert not shown["deleted"]
    assert [each["new_start"] for each in shown["partitions"]] == [10, 10]
    result = cordwood_cli.run("topic", "truncate", made, "--before", "end", "--dry-run")
    assert "20 offsets would be gone" in result.output
    assert starts(cordwood_cli, made) == [0, 0]


def test_without_a_yes_nothing_is_deleted(cordwood_cli: Cordwood, made: str) -> None:
    code, error = cordwood_cli.error("topic", "truncate", made, "--before", "end")
    assert code == ExitCode.USAGE
    assert error["hint"] == "add --yes"
    assert starts(cordwood_cli, made) == [0, 0]


def test_what_is_not_there_is_said(cordwood_cli: Cordwood, made: str) -> None:
    code, error = cordwood_cli.error("topic", "truncate", made, "--before", "99", "--partition", "0", "--yes")
    assert error["code"] == "OFFSET_OUT_OF_RANGE"
    assert error["hint"] == "--before end deletes all records"
    assert code == ExitCode.FAILED
    code, error = cordwood_cli.error("topic", "truncate", made, "--before", "1d", "--yes")
    assert error["hint"] == "end, -N, @TIME or an offset"
    assert code == ExitCode.USAGE
    code, _ = cordwood_cli.error("topic", "truncate", made, "--before", "end", "--partition", "7", "--yes")
    assert code == ExitCode.NOT_FOUND
    code, _ = cordwood_cli.error("topic", "truncate", "not-there", "--before", "end", "--yes")
    assert code == ExitCode.NOT_FOUND
    code, _ = cordwood_cli.error("topic", "truncate", made, "--before", "committed", "--yes")
    assert code == ExitCode.USAGE


def test_a_place_before_the_start_deletes_nothing(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("topic", "truncate", made, "--before", "5", "--partition", "0", "--yes")
    done = cordwood_cli.json("topic", "truncate", made, "--before", "2", "--partition", "0", "--yes")
    assert done["partitions"] == [{"partition": 0, "start": 5, "new_start": 5, "end": 10}]
    assert starts(cordwood_cli, made) == [5, 0]
