"""`cordwood produce` and `cordwood consume` against a real broker."""

import json
import os
import pty
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import Cordwood

from cordwood.model.failure import ExitCode


@pytest.fixture
def made(cordwood_cli: Cordwood, topic: str) -> str:
    cordwood_cli("topic", "create", topic, "--partitions", 2)
    return topic


def test_values_from_arguments_come_back_in_the_order_of_their_partition(cordwood_cli: Cordwood, made: str) -> None:
    said = cordwood_cli("produce", made, "one", "two", "three", "--key", "k", "--header", "trace=7", "--header", "flag")
    assert "3 records written" in said
    assert "every in-sync replica" in said
    records = cordwood_cli.json_lines("consume", made)
    assert [record["value"] for record in records] == ["one", "two", "three"]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert {record["key"] for record in records} == {"k"}
    assert records[0]["headers"] == [["trace", "7"], ["flag", None]]
    assert records[0]["timestamp_type"] == "CreateTime"


def test_a_carriage_return_within_a_line_is_part_of_the_record(cordwood_cli: Cordwood, made: str) -> None:
    written = cordwood_cli.json("produce", made, "-p", 0, stdin=b"progress 1\rprogress 2\nwindows\r\nlast")
    assert written["written"] == 3
    values = [record["value"] for record in cordwood_cli.json_lines("consume", made)]
    assert values == ["progress 1\rprogress 2", "windows", "last"]


def test_lines_of_stdin_with_keys(cordwood_cli: Cordwood, made: str) -> None:
    written = cordwood_cli.json("produce", made, "--key-separator", ":", stdin="a:1\nb:2:3\nc:\n")
    assert written["written"] == 3
    assert written["failed"] == 0
    records = {record["key"]: record["value"] for record in cordwood_cli.json_lines("consume", made)}
    assert records == {"a": "1", "b": "2:3", "c": ""}


def test_a_line_without_its_separator_stops_and_says_so(cordwood_cli: Cordwood, made: str) -> None:
    result = cordwood_cli.run("produce", made, "-K", ":", stdin="a:1\nno key\nb:2\n")
    assert result.exit_code == ExitCode.FAILED
    assert "1 record written" in result.stdout
    assert "'no key'" in result.stderr
    assert cordwood_cli("consume", made) == "1\n"


def test_bytes_that_are_no_text_survive_both_ways(cordwood_cli: Cordwood, made: str) -> None:
    content = {"key": {"base64": "/wA="}, "value": {"base64": "gIE="}, "headers": [["h", {"base64": "/w=="}]]}
    cordwood_cli("produce", made, "--json-input", stdin=json.dumps(content) + "\n")
    [record] = cordwood_cli.json_lines("consume", made)
    assert {name: record[name] for name in content} == content
    raw = cordwood_cli.run("consume", made, "--key", "--headers")
    assert raw.stdout_bytes == b"\\xff\\x00\th=\\xff\t\x80\x81\n"


def test_keys_that_are_no_text_are_written_as_they_were_given(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "1", "-k", "\udcff", "-p", 0)
    cordwood_cli("produce", made, "-K", ":", "-p", 0, stdin=b"\xfe:\xfd\n")
    assert [record["key"] for record in cordwood_cli.json_lines("consume", made)] == [
        {"base64": "/w=="},
        {"base64": "/g=="},
    ]


def test_what_consume_prints_as_json_produce_takes(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "x", "y", "--partition", 1, "--header", "a=b")
    dump = cordwood_cli("consume", made, "--json")
    cordwood_cli("produce", made, "--json-input", stdin=dump)
    first, second, third, fourth = cordwood_cli.json_lines("consume", made)
    assert [third["offset"], fourth["offset"]] == [2, 3]
    for original, copy in ((first, third), (second, fourth)):
        assert {**copy, "offset": original["offset"]} == original


def test_a_tombstone_has_a_key_and_no_value(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "--key", "gone", "--tombstone")
    [record] = cordwood_cli.json_lines("consume", made)
    assert (record["key"], record["value"]) == ("gone", None)
    assert cordwood_cli("consume", made, "-k") == "gone\t(null)\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(cordwood_cli: Cordwood, made: str, codec: str) -> None:
    lines = "".join(f"value {number}\n" for number in range(200))
    cordwood_cli("produce", made, "--compression", codec, "-p", 0, stdin=lines)
    assert cordwood_cli("consume", made) == lines


@pytest.mark.parametrize(("acks", "said"), [("0", "may be lost"), ("1", "by the leader"), ("all", "every in-sync")])
def test_the_summary_says_what_was_acknowledged(cordwood_cli: Cordwood, made: str, acks: str, said: str) -> None:
    assert said in cordwood_cli("produce", made, "v", "--acks", acks)


def test_reading_from_anywhere(cordwood_cli: Cordwood, made: str) -> None:
    for number, when in enumerate((1_000_000, 2_000_000, 3_000_000)):
        line = json.dumps({"value": f"v{number}", "timestamp_ms": when, "partition": 0})
        cordwood_cli("produce", made, "--json-input", stdin=line)

    def read(*arguments: object) -> list[str]:
        return cordwood_cli("consume", made, *arguments).splitlines()

    assert read() == read("--from", "beginning") == ["v0", "v1", "v2"]
    assert read("--from", "end") == []
    assert read("--from", 1, "-p", 0) == read("--from", 1) == ["v1", "v2"]
    assert read("--from", "-2") == ["v1", "v2"]
    assert read("--from", "@2000000") == ["v1", "v2"]
    assert read("--from", "@1970-01-01T00:33:21Z") == ["v2"]
    assert read("--from", "@4000000") == []
    assert read("-n", 1) == ["v0"]
    assert read("-p", 1) == []
    [line] = read("-n", 1, "-o", "-T", "-k")
    assert line == "0:0\t1970-01-01T00:16:40.000Z\t(null)\tv0"


def test_an_offset_outside_the_log_is_an_error_and_not_silence(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "a", "b", "-p", 0)
    code, error = cordwood_cli.error("consume", made, "-p", 0, "--from", 9)
    assert (code, error["code"]) == (ExitCode.FAILED, "OFFSET_OUT_OF_RANGE")
    assert "0 to 1" in error["message"]
    code, error = cordwood_cli.error("consume", made, "-p", 7)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")
    code, error = cordwood_cli.error("produce", made, "v", "-p", 7)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_group_goes_on_where_it_committed(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, *(f"v{number}" for number in range(5)), "-p", 0)
    group = f"group-of-{made}"
    assert cordwood_cli("consume", made, "-g", group, "-n", 2).splitlines() == ["v0", "v1"]
    assert cordwood_cli("consume", made, "-g", group, "-n", 2).splitlines() == ["v2", "v3"]
    assert cordwood_cli("consume", made, "-g", "another-" + group).splitlines() == ["v0", "v1", "v2", "v3", "v4"]
    assert cordwood_cli("consume", made, "-g", group).splitlines() == ["v4"]
    assert cordwood_cli("consume", made, "-g", group, "-f", "beginning", "-n", 1).splitlines() == ["v0"]


def test_the_summary_names_the_scope_of_order(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "a", "b")
    assert "in order within each partition, not between them" in cordwood_cli.run("consume", made).stderr
    assert "of partition 0, in its order" in cordwood_cli.run("consume", made, "-p", 0).stderr
    assert cordwood_cli.run("consume", made, "-q").stderr == ""


def test_a_record_that_is_too_large_is_refused_with_the_setting_that_says_so(
    cordwood_cli: Cordwood, topic: str
) -> None:
    cordwood_cli("topic", "create", topic, "-c", "max.message.bytes=1000")
    code, error = cordwood_cli.error("produce", topic, "x" * 2000)
    assert code == ExitCode.FAILED
    assert error["code"] == "MESSAGE_TOO_LARGE"
    assert "max.message.bytes" in error["hint"]


def test_following_prints_what_comes_and_a_closed_pipe_ends_it_quietly(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "before", "-p", 0)
    command = [sys.executable, "-m", "cordwood.cli", "consume", made, "--follow", "-q", "-b", cordwood_cli.bootstrap]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "before\n"
        cordwood_cli("produce", made, "after", "-p", 1)
        assert follower.stdout.readline() == "after\n"
        follower.stdout.close()
        cordwood_cli("produce", made, "unheard", "-p", 0)
        assert follower.wait(timeout=30) == ExitCode.DONE
        assert follower.stderr is not None
        assert follower.stderr.read() == ""
    finally:
        follower.kill()
        follower.wait()
        if follower.stderr is not None:
            follower.stderr.close()


def test_following_ends_with_max_messages(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "a", "b", "c", "-p", 0)
    assert cordwood_cli("consume", made, "--follow", "-n", 2).splitlines() == ["a", "b"]


def test_a_record_cannot_steer_the_terminal_of_who_reads_it(cordwood_cli: Cordwood, made: str) -> None:
    cordwood_cli("produce", made, "\x1b[31mred")
    assert cordwood_cli("consume", made, "-q") == "\x1b[31mred\n", "a pipe gets the bytes"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cordwood.cli", "consume", made, "-q", "-b", cordwood_cli.bootstrap]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=theirs, timeout=60, check=True)
    os.close(theirs)
    assert os.read(ours, 1000) == b"\\x1b[31mred\r\n"
    os.close(ours)


def committed(broker: str, topic: str, *values: str, partition: int = 0) -> None:
    """Each value in a transaction of its own: its record and its marker take two offsets."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"writer of {topic}"})
    producer.init_transactions(30)
    for value in values:
        producer.begin_transaction()
        producer.produce(topic, value, partition=partition)
        producer.commit_transaction(30)


def test_the_last_n_are_records_and_not_offsets(cordwood_cli: Cordwood, made: str) -> None:
    committed(cordwood_cli.bootstrap, made, *(str(number) for number in range(10)))
    assert cordwood_cli("consume", made, "--from", "-1", "-q") == "9\n"
    assert cordwood_cli("consume", made, "--from", "-3", "-q") == "7\n8\n9\n"
    assert cordwood_cli("consume", made, "--from", "-10", "-q").split() == [str(number) for number in range(10)]
    assert cordwood_cli("consume", made, "--from", "-99", "-q").split() == [str(number) for number in range(10)]


def test_the_last_n_are_counted_without_aborted_records_and_in_each_partition(
    cordwood_cli: Cordwood, topic: str
) -> None:
    cordwood_cli("topic", "create", topic, "--partitions", "3")
    committed(cordwood_cli.bootstrap, topic, "a", "b", "c", partition=0)
    aborting = Producer({"bootstrap.servers": cordwood_cli.bootstrap, "transactional.id": f"aborter of {topic}"})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    for number in range(40):
        aborting.produce(topic, f"aborted {number}", partition=0)
    aborting.flush(30)
    aborting.abort_transaction(30)
    cordwood_cli("produce", topic, "--partition", "1", "x", "y")
    lines = cordwood_cli("consume", topic, "--from", "-2", "-q", "--position").splitlines()
    assert sorted(lines) == ["0:2\tb", "0:4\tc", "1:0\tx", "1:1\ty"]
