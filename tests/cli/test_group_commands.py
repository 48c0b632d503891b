"""`cordwood group` against a real broker, with real consumers."""

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.administration.connection import Connection
from cordwood.administration.group import view
from cordwood.administration.group.lag import LagReader
from cordwood.model.failure import ExitCode, Failure


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(cordwood_cli: Cordwood, topic: str) -> str:
    cordwood_cli("topic", "create", topic, "-p", 2)
    for partition in range(2):
        cordwood_cli("produce", topic, *"abcde", "--partition", partition)
    return topic


@pytest.fixture
def member(cordwood_cli: Cordwood, group: str, filled: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cordwood_cli.bootstrap,
            "group.id": group,
            "client.id": "clerk",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([filled])
    read = 0
    while read < 10:
        read += eventually(lambda: consumer.poll(0.1), what="a record") is not None
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_at_work_is_listed_and_described(
    cordwood_cli: Cordwood, group: str, filled: str, member: Consumer
) -> None:
    [listed] = [row for row in cordwood_cli.json("group", "list") if row["name"] == group]
    assert listed == {"name": group, "state": "stable", "protocol": "classic"}
    cordwood_cli("produce", filled, "f", "--partition", 1)
    described = cordwood_cli.json("group", "describe", group)
    assert described["state"] == "stable"
    assert [each["client_id"] for each in described["members"]] == ["clerk"]
    assert [(each["partition"], each["committed"], each["lag"]) for each in described["positions"]] == [
        (0, 5, 0),
        (1, 5, 1),
    ]
    assert "1 member" in cordwood_cli("group", "describe", group, "--sample", 0)


def test_positions_of_a_group_at_work_cannot_be_moved_nor_can_it_be_deleted(
    cordwood_cli: Cordwood, group: str, filled: str, member: Consumer
) -> None:
    code, error = cordwood_cli.error("group", "reset", group, "-t", filled, "--to", "beginning", "--execute")
    assert code == ExitCode.FAILED
    assert "stop the group's consumers" in error["hint"]
    code, error = cordwood_cli.error("group", "delete", group, "--yes")
    assert (code, error["code"]) == (ExitCode.FAILED, "NON_EMPTY_GROUP")


@pytest.mark.stories
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "beginning"], [0, 0]),
        (["--to", "end"], [5, 5]),
        (["--to", "3"], [3, 3]),
        (["--to", "999"], [5, 5]),
        (["--shift", "-2"], [3, 3]),
        (["--shift", "-2", "--partition", "1"], [5, 3]),
        (["--back", "1h"], [0, 0]),
        (["--to", "@0"], [0, 0]),
        (["--to", "@0001-01-01", "--timeout", "1000"], [0, 0]),
        (["--to", "@9223372036854775807"], [5, 5]),
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [5, 5]),
    ],
)
def test_reset_shows_first_and_moves_when_told(
    cordwood_cli: Cordwood, group: str, filled: str, member: Consumer, where: list[str], expected: list[int]
) -> None:
    member.close()
    arguments = ["group", "reset", group, "--topic", filled, *where]
    shown = cordwood_cli.json(*arguments)
    assert shown["executed"] is False
    assert committed(cordwood_cli, group) == [5, 5], "a dry run changes nothing"
    done = cordwood_cli.json(*arguments, "--execute")
    assert done["positions"] == shown["positions"]
    assert committed(cordwood_cli, group) == expected


def test_a_dry_run_says_that_a_group_at_work_cannot_be_moved(
    cordwood_cli: Cordwood, group: str, filled: str, member: Consumer
) -> None:
    arguments = ["group", "reset", group, "--topic", filled, "--shift", "-1"]
    shown = cordwood_cli.run(*arguments)
    assert shown.exit_code == ExitCode.DONE
    assert f"{group} has 1 member: --execute is refused" in shown.stderr
    assert "no offset" not in shown.stderr
    told = cordwood_cli.json(*arguments)
    assert (told["known"], told["members"]) == (True, 1)


def test_a_dry_run_says_that_a_group_is_new_and_which_offsets_the_log_does_not_have(
    cordwood_cli: Cordwood, group: str, topic: str
) -> None:
    cordwood_cli("topic", "create", topic, "-p", 7)
    cordwood_cli("produce", topic, *"abc", "--partition", 0)
    arguments = ["group", "reset", group, "--topic", topic, "--to", "2"]
    shown = cordwood_cli.run(*arguments)
    assert shown.exit_code == ExitCode.DONE
    assert f"There is no group {group} yet: --execute creates it." in shown.stderr
    assert "Partition 0 has" not in shown.stderr
    assert "Partition 1 has no offset 2: its log ends at 0." in shown.stderr
    assert "1 more partition." in shown.stderr
    told = cordwood_cli.json(*arguments)
    assert (told["known"], told["members"]) == (False, 0)
    assert [(each["asked"], each["after"]) for each in told["positions"][:2]] == [(2, 2), (2, 0)]
    done = cordwood_cli.run(*arguments, "--execute")
    assert done.exit_code == ExitCode.DONE
    assert "Partition 1 has no offset 2" in done.stderr
    assert "--execute" not in done.stderr
    assert "There is no group" not in cordwood_cli.run(*arguments).stderr
    before = cordwood_cli.run("group", "reset", group, "--topic", topic, "--shift", "-9", "-p", "0")
    assert "Partition 0 has no offset -7: its log starts at 0." in before.stderr


def committed(cordwood_cli: Cordwood, group: str) -> list[int]:
    return [each["committed"] for each in cordwood_cli.json("group", "describe", group, "--sample", 0)["positions"]]


def test_an_empty_group_is_deleted(cordwood_cli: Cordwood, group: str, member: Consumer) -> None:
    member.close()
    assert cordwood_cli.json("group", "delete", group, "--yes") == {"deleted": [group], "failed": []}
    code, error = cordwood_cli.error("group", "describe", group)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "GROUP_ID_NOT_FOUND")


def test_groups_that_are_deleted_and_those_that_are_not_are_both_named(
    cordwood_cli: Cordwood, group: str, filled: str, member: Consumer
) -> None:
    idle = [f"{group}-idle-{number}" for number in range(3)]
    for name in idle:
        committed_at(cordwood_cli, name, filled, 1)
    result = cordwood_cli.run("group", "delete", idle[0], group, idle[1], "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert result.stdout.splitlines() == [f"{idle[0]}: deleted", f"{idle[1]}: deleted"]
    assert result.stderr.startswith(f"error: {group}: not deleted: ")
    shaped = cordwood_cli.run("group", "delete", group, idle[2], idle[2], "--yes", "--json")
    assert shaped.exit_code == ExitCode.FAILED
    told = json.loads(shaped.stdout)
    assert told["deleted"] == [idle[2]], "named twice, deleted once"
    assert [(each["group"], each["code"]) for each in told["failed"]] == [(group, "NON_EMPTY_GROUP")]
    assert group in json.loads(shaped.stderr)["error"]["message"]
    left = [row["name"] for row in cordwood_cli.json("group", "list")]
    assert group in left
    assert not set(idle) & set(left)


@pytest.mark.parametrize(
    "where", [[], ["--to", "end", "--shift", "1"], ["--to", "nowhere"], ["--back", "soon"]], ids=" ".join
)
def test_a_wrong_place_is_a_usage_error(cordwood_cli: Cordwood, where: list[str]) -> None:
    code, _ = cordwood_cli.error("group", "reset", "g", "--topic", "t", *where)
    assert code == ExitCode.USAGE


def committed_at(cordwood_cli: Cordwood, group: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cordwood_cli.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    for answer in admin.alter_consumer_group_offsets([asked]).values():
        answer.result(120)


def test_describe_says_how_long_a_group_is_behind_and_when_it_will_lose_records(
    cordwood_cli: Cordwood, group: str, topic: str
) -> None:
    cordwood_cli("topic", "create", topic, "-c", "retention.ms=3600000")
    cordwood_cli("produce", topic, *"abcde")
    committed_at(cordwood_cli, group, topic, 2)
    [position] = cordwood_cli.json("group", "describe", group, "--sample", "0.2")["positions"]
    assert (position["standing"], position["lag"], position["lost"]) == ("behind", 3, 0)
    assert 0 <= position["lag_s"] < 60
    assert position["drain_per_s"] == 0
    assert position["loss_is_foreseen"]
    assert 3540 < position["time_to_data_loss_s"] <= 3600
    shown = cordwood_cli("group", "describe", group, "--sample", "0")
    assert "in 60 min" in shown or "in 59 min" in shown


def test_a_watch_sees_that_the_retention_was_changed_meanwhile(cordwood_cli: Cordwood, group: str, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-c", "retention.ms=3600000")
    cordwood_cli("produce", topic, "a")
    committed_at(cordwood_cli, group, topic, 0)
    reader = LagReader(Connection(cordwood_cli.bootstrap), group)

    def foreseen_s() -> float:
        (row,) = reader.look().rows
        return float(row.as_json()["time_to_data_loss_s"])

    assert 3540 < foreseen_s() <= 3600
    cordwood_cli("config", "alter", "--topic", topic, "--set", "retention.ms=7200000")
    assert 7140 < foreseen_s() <= 7200


def test_a_compacted_topic_is_never_lost_by_retention(cordwood_cli: Cordwood, group: str, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-c", "cleanup.policy=compact")
    cordwood_cli("produce", topic, "k=v", "--key-separator", "=")
    committed_at(cordwood_cli, group, topic, 0)
    [position] = cordwood_cli.json("group", "describe", group, "--sample", "0")["positions"]
    assert (position["lag"], position["time_to_data_loss_s"], position["loss_is_foreseen"]) == (1, None, False)
    assert "never" in cordwood_cli("group", "describe", group, "--sample", "0")


def test_watch_counts_what_an_overtaken_group_has_lost(cordwood_cli: Cordwood, group: str, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    cordwood_cli("produce", topic, *"abcde")
    committed_at(cordwood_cli, group, topic, 1)
    admin = AdminClient({"bootstrap.servers": cordwood_cli.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deleted.result(120)
    [look] = cordwood_cli.json_lines("group", "watch", group, "--once", "--interval", "0.2")
    assert look["name"] == group
    [position] = look["positions"]
    assert (position["standing"], position["lost"], position["lag"]) == ("overtaken", 3, 1)
    shown = cordwood_cli("group", "watch", group, "--once", "--interval", "0.1")
    assert "3 lost, more: in 7.0 d" in shown
    assert "1 record behind" in shown


def test_a_member_that_never_committed_is_said_to_have_no_position(
    cordwood_cli: Cordwood, group: str, filled: str
) -> None:
    consumer = Consumer({"bootstrap.servers": cordwood_cli.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([filled])
    try:
        eventually(lambda: consumer.poll(0.1) is None and consumer.assignment(), what="an assignment")
        rows = cordwood_cli.json("group", "describe", group, "--sample", "0")["positions"]
        assert {(row["standing"], row["lag"], row["time_to_data_loss_s"]) for row in rows} == {
            ("never committed", None, None)
        }
        assert "never committed" in cordwood_cli("group", "describe", group, "--sample", "0")
    finally:
        consumer.close()


def test_watching_a_group_that_is_not_there_fails(cordwood_cli: Cordwood, group: str) -> None:
    code, error = cordwood_cli.error("group", "watch", group, "--once")
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "GROUP_ID_NOT_FOUND")


def test_a_group_that_is_gone_since_it_was_listed_is_not_found(
    cordwood_cli: Cordwood, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker describes a group that it does not have as dead, without an error."""
    monkeypatch.setattr(view, "group_names", lambda connection: [group])
    with pytest.raises(Failure) as raised:
        view.describe(Connection(cordwood_cli.bootstrap, 30), group)
    assert (raised.value.code, raised.value.exit_code) == ("GROUP_ID_NOT_FOUND", ExitCode.NOT_FOUND)
