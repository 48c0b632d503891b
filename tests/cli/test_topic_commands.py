"""`cordwood topic` against a real broker."""

import json

import pytest
from tests.cli.conftest import Cordwood

from cordwood.administration.topic.view import topic_id_of
from cordwood.model.failure import ExitCode


def test_a_topic_is_created_listed_described_and_deleted(cordwood_cli: Cordwood, topic: str) -> None:
    created = cordwood_cli.json("topic", "create", topic, "--partitions", 3, "--config", "retention.ms=60000")
    assert created["created"] is True
    assert created["partitions"] == 3
    [listed] = [row for row in cordwood_cli.json("topic", "list") if row["name"] == topic]
    assert (listed["partitions"], listed["replication_factor"], listed["internal"]) == (3, 1, False)
    assert topic in cordwood_cli("topic", "list")
    [described] = cordwood_cli.json("topic", "describe", topic)
    assert described["topic_id"] == created["topic_id"]
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert described["settings"]["retention.ms"] == "60000"
    assert cordwood_cli.json("topic", "delete", topic, "--yes") == {"deleted": [topic], "failed": []}
    assert topic not in {row["name"] for row in cordwood_cli.json("topic", "list")}


def test_create_says_what_the_topic_promises(cordwood_cli: Cordwood, topic: str) -> None:
    said = cordwood_cli("topic", "create", topic, "-p", 2, "--order", "key")
    assert f"{topic}: created with 2 partitions, 1 replica each" in said
    assert "order (key): records of one key are in order" in said
    assert "ack (disk): acks=all: every in-sync replica has fsynced" in said


def test_describe_shows_offsets_sizes_and_promises(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-p", 2, "-c", "ack.durability=os")
    cordwood_cli("produce", topic, "a", "b", "c", "--partition", 1)
    [described] = cordwood_cli.json("topic", "describe", topic)
    empty, filled = described["partitions"]
    assert (empty["start_offset"], empty["end_offset"], empty["size_bytes"]) == (0, 0, 0)
    assert (filled["start_offset"], filled["end_offset"]) == (0, 3)
    assert filled["size_bytes"] > 61
    assert filled["isr"] == filled["replicas"] == [filled["leader"]]
    assert described["order"]["name"] == "partition"
    assert described["ack"]["name"] == "os"
    assert described["settings"] == {"ack.durability": "os"}
    text = cordwood_cli("topic", "describe", topic)
    assert "between the 2 partitions there is no order" in text
    assert "page cache" in text
    every = cordwood_cli("topic", "describe", topic, "--all-settings")
    assert "segment.bytes" in every
    assert "segment.bytes" not in text


def test_a_topic_that_exists_is_an_error_unless_it_may(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    code, error = cordwood_cli.error("topic", "create", topic)
    assert (code, error["code"]) == (ExitCode.FAILED, "TOPIC_ALREADY_EXISTS")
    assert "--if-not-exists" in error["hint"]
    assert cordwood_cli.json("topic", "create", topic, "--if-not-exists")["created"] is False


def test_an_unknown_topic_is_not_found_and_near_names_are_offered(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    for command in (("topic", "describe"), ("topic", "alter", "-p", 2), ("topic", "delete", "--yes"), ("consume",)):
        code, error = cordwood_cli.error(*command, f"{topic}x")
        assert code == ExitCode.NOT_FOUND, command
        assert error["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic in error["hint"]
    assert f"{topic}x" not in {row["name"] for row in cordwood_cli.json("topic", "list")}, "looking must not create"


def test_deleting_what_is_not_there_can_be_allowed(cordwood_cli: Cordwood, topic: str) -> None:
    assert cordwood_cli.json("topic", "delete", topic, "--yes", "--if-exists") == {"deleted": [], "failed": []}


def test_topics_that_are_deleted_and_those_that_are_not_are_both_named(cordwood_cli: Cordwood, topic: str) -> None:
    for name in (topic, f"{topic}-2"):
        cordwood_cli("topic", "create", name)
    cordwood_cli("produce", topic, "a")
    cordwood_cli("consume", topic, "--group", f"{topic}-readers")
    result = cordwood_cli.run("topic", "delete", topic, "__consumer_offsets", f"{topic}-2", topic, "--yes", "--json")
    assert result.exit_code == ExitCode.FAILED
    told = json.loads(result.stdout)
    assert told["deleted"] == [topic, f"{topic}-2"], "what comes after one that is refused is deleted, too, and once"
    assert [each["topic"] for each in told["failed"]] == ["__consumer_offsets"]
    assert "__consumer_offsets: not deleted" in json.loads(result.stderr)["error"]["message"]


def test_deleting_without_anybody_to_ask_needs_a_yes(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    code, error = cordwood_cli.error("topic", "delete", topic)
    assert (code, error["code"]) == (ExitCode.USAGE, "USAGE")
    assert "--yes" in error["hint"]
    cordwood_cli("topic", "describe", topic)


def test_a_dry_run_changes_nothing_and_is_refused_where_the_change_would_be(cordwood_cli: Cordwood, topic: str) -> None:
    assert cordwood_cli.json("topic", "create", topic, "--dry-run", "-p", 3) == {
        "topic": topic,
        "would_create": True,
        "partitions": 3,
        "replication_factor": 1,
    }
    assert f"{topic}: would be created with 1 partition, 1 replica" in cordwood_cli(
        "topic", "create", topic, "--dry-run"
    )
    assert topic not in cordwood_cli("topic", "list", "-q").splitlines()
    cordwood_cli("topic", "create", topic, "-p", 2)
    assert topic in cordwood_cli("topic", "list", "-q").splitlines()
    cordwood_cli("topic", "alter", topic, "-c", "retention.ms=2000", "-p", 4, "--dry-run")
    cordwood_cli("config", "alter", "--topic", topic, "--set", "retention.ms=2000", "--dry-run")
    assert cordwood_cli.error("topic", "alter", topic, "-p", 1, "--dry-run")[1]["code"] == "INVALID_PARTITIONS"
    assert (
        cordwood_cli.error("topic", "alter", topic, "-c", "retention.ms=x", "--dry-run")[1]["code"] == "INVALID_CONFIG"
    )
    assert cordwood_cli.json("topic", "delete", topic, "--dry-run") == {"would_delete": [topic]}
    assert "Dry run: nothing was changed." in cordwood_cli.run("topic", "delete", topic, "--dry-run").stderr
    (view,) = cordwood_cli.json("topic", "describe", topic)
    assert (len(view["partitions"]), view["settings"]) == (2, {})


def test_a_topics_id_is_printed_as_kafka_prints_it(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    (view,) = cordwood_cli.json("topic", "describe", topic)
    assert topic_id_of("2hfhCSw9QViLQpqNnWq/s+") == "2hfhCSw9QViLQpqNnWq_s-"
    assert len(view["topic_id"]) == 22
    assert not set(view["topic_id"]) & {"/", "+", "="}


def test_settings_and_partitions_can_be_altered(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-c", "retention.ms=1000", "-c", "segment.bytes=1000000")
    said = cordwood_cli("topic", "alter", topic, "-c", "retention.ms=2000", "--delete-config", "segment.bytes", "-p", 4)
    assert "retention.ms = 2000" in said
    assert "1 → 4 partitions" in said
    [described] = cordwood_cli.json("topic", "describe", topic)
    assert described["settings"] == {"retention.ms": "2000"}
    assert len(described["partitions"]) == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-c", "retention.msx=1"), "INVALID_CONFIG"),
        (("-c", "retention.ms=soon"), "INVALID_CONFIG"),
        (("--order", "global", "-p", "2"), None),
        (("-r", "3"), "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_what_the_broker_refuses_is_said_with_its_error(
    cordwood_cli: Cordwood, topic: str, arguments: tuple[str, ...], code: str | None
) -> None:
    exit_code, error = cordwood_cli.error("topic", "create", topic, *arguments)
    assert exit_code == ExitCode.FAILED
    assert code is None or error["code"] == code
    assert error["message"]


def test_a_misspelt_setting_gets_a_suggestion(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    _, error = cordwood_cli.error("topic", "alter", topic, "-c", "retention.mss=1")
    assert error["code"] == "INVALID_CONFIG"
    assert "retention.ms" in error["hint"]


def test_partitions_of_a_topic_ordered_by_key_grow_only_by_force(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-p", 2, "--order", "key")
    code, error = cordwood_cli.error("topic", "alter", topic, "-p", 4)
    assert (code, error["code"]) == (ExitCode.FAILED, "POLICY_VIOLATION")
    assert "--force" in error["hint"]
    assert len(cordwood_cli.json("topic", "describe", topic)[0]["partitions"]) == 2
    forced = cordwood_cli.run("topic", "alter", topic, "-p", 4, "--force")
    assert forced.exit_code == ExitCode.DONE
    assert "Order by key ends now" in forced.stderr
    [described] = cordwood_cli.json("topic", "describe", topic)
    assert len(described["partitions"]) == 4
    assert described["order"]["name"] == "partition"


def test_a_topic_in_global_order_has_one_partition(cordwood_cli: Cordwood, topic: str) -> None:
    assert cordwood_cli.json("topic", "create", topic, "--order", "global")["partitions"] == 1
    [described] = cordwood_cli.json("topic", "describe", topic)
    assert described["order"]["name"] == "global"
    code, error = cordwood_cli.error("topic", "alter", topic, "-p", 2)
    assert code == ExitCode.FAILED
    assert error["message"]
