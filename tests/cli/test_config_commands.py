"""`cordwood config` against a real broker."""

import json
from pathlib import Path

from tests.cli.conftest import Cordwood

from cordwood.model.failure import ExitCode


def test_a_topics_settings_are_described_with_where_they_come_from(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic, "-c", "retention.ms=5000")
    settings = cordwood_cli.json("config", "describe", "--topic", topic)
    assert settings["retention.ms"] == {"value": "5000", "source": "topic", "read_only": False}
    assert settings["segment.bytes"]["source"] == "default"
    assert list(cordwood_cli.json("config", "describe", "--topic", topic, "--changed")) == ["retention.ms"]
    assert "retention.ms" in cordwood_cli("config", "describe", "--topic", topic, "--changed")


def test_a_topics_settings_are_altered_all_or_none(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    altered = cordwood_cli.json("config", "alter", "--topic", topic, "-s", "retention.ms=1", "-s", "flush.ms=9")
    assert altered == {"set": {"retention.ms": "1", "flush.ms": "9"}, "deleted": []}
    code, error = cordwood_cli.error("config", "alter", "-t", topic, "-s", "retention.ms=2", "-s", "flush.ms=never")
    assert (code, error["code"]) == (ExitCode.FAILED, "INVALID_CONFIG")
    said = cordwood_cli("config", "alter", "-t", topic, "-d", "flush.ms")
    assert "flush.ms has its default again" in said
    changed = cordwood_cli.json("config", "describe", "-t", topic, "--changed")
    assert {name: setting["value"] for name, setting in changed.items()} == {"retention.ms": "1"}


def test_the_only_broker_is_meant_if_none_is_named(cordwood_cli: Cordwood) -> None:
    settings = cordwood_cli.json("config", "describe")
    assert "log.retention.ms" in settings
    assert settings["listeners"]["read_only"] is True
    code, error = cordwood_cli.error("config", "describe", "--broker", 99)
    assert (code, error["code"]) == (ExitCode.NOT_FOUND, "BROKER_NOT_AVAILABLE")


def test_a_brokers_defaults_can_be_changed_while_it_runs(cordwood_cli: Cordwood, topic: str) -> None:
    cordwood_cli("topic", "create", topic)
    cordwood_cli("config", "alter", "--set", "log.cleaner.min.compaction.lag.ms=1234")
    try:
        setting = cordwood_cli.json("config", "describe", "-t", topic)["min.compaction.lag.ms"]
        assert setting["value"] == "1234"
    finally:
        cordwood_cli("config", "alter", "--delete", "log.cleaner.min.compaction.lag.ms")
    assert cordwood_cli.json("config", "describe", "-t", topic)["min.compaction.lag.ms"]["value"] == "0"


def test_a_default_of_all_brokers_is_set_and_deleted(cordwood_cli: Cordwood) -> None:
    name = "log.cleaner.min.compaction.lag.ms"
    cordwood_cli("config", "alter", "--all-brokers", "--set", f"{name}=4321")
    try:
        assert cordwood_cli.json("config", "describe", "--changed")[name]["value"] == "4321"
    finally:
        cordwood_cli("config", "alter", "--all-brokers", "--delete", name)
    assert name not in cordwood_cli.json("config", "describe", "--changed")
    code, error = cordwood_cli.error("config", "alter", "--all-brokers", "--set", "log.cleaner.min.compaction.lag=1")
    assert (code, name in error["hint"]) == (ExitCode.FAILED, True)


def test_topic_and_brokers_exclude_each_other(cordwood_cli: Cordwood) -> None:
    code, _ = cordwood_cli.error("config", "describe", "--topic", "t", "--broker", 1)
    assert code == ExitCode.USAGE
    code, _ = cordwood_cli.error("config", "alter", "--all-brokers", "--broker", 1, "--delete", "log.retention.ms")
    assert code == ExitCode.USAGE


def test_an_unknown_topic_is_not_found(cordwood_cli: Cordwood, topic: str) -> None:
    for command in (("describe",), ("alter", "-s", "retention.ms=1")):
        code, error = cordwood_cli.error("config", *command, "-t", topic)
        assert (code, error["code"]) == (ExitCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_groups_settings_are_described_and_altered(cordwood_cli: Cordwood) -> None:
    session = "consumer.session.timeout.ms"
    assert cordwood_cli.json("config", "describe", "--group", "billing")[session]["source"] == "default"
    cordwood_cli("config", "alter", "--group", "billing", "-s", f"{session}=30s")
    changed = cordwood_cli.json("config", "describe", "-g", "billing", "--changed")
    assert changed == {session: {"value": "30000", "source": "group", "read_only": False}}
    cordwood_cli("config", "alter", "--group", "billing", "-d", session)
    assert cordwood_cli.json("config", "describe", "-g", "billing", "--changed") == {}
    code, error = cordwood_cli.error("config", "alter", "-g", "billing", "-s", "consumer.session.timeout=30s")
    assert (code, error["code"]) == (ExitCode.FAILED, "INVALID_CONFIG")
    assert session in error["message"] + error["hint"]
    code, _ = cordwood_cli.error("config", "describe", "--topic", "t", "--group", "billing")
    assert code == ExitCode.USAGE


def test_settings_of_groups_are_listed(cordwood_cli: Cordwood) -> None:
    listed = cordwood_cli.json("config", "list", "--groups")
    assert {setting["of"] for setting in listed} == {"group"}
    assert "consumer.session.timeout.ms" in cordwood_cli("config", "list", "consumer.session")


def test_a_configuration_file_is_checked_whole_and_without_a_broker(cordwood_cli: Cordwood, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('num.partitons = 3\n[log]\nretention.ms = "1d"\nsegment.bytes = "many"\n')
    result = cordwood_cli.run("config", "check", file, "--json")
    checked = json.loads(result.stdout)
    assert (result.exit_code, checked["valid"], len(checked["problems"])) == (ExitCode.PROBLEM_FOUND, False, 2)
    assert "did you mean num.partitions?" in checked["problems"][0]
    assert "log.segment.bytes" in checked["problems"][1]
    file.write_text('num.partitions = 3\n[log]\nretention.ms = "1d"\n')
    checked = cordwood_cli.json("config", "check", file)
    assert checked["settings"] == {"log.retention.ms": "86400000", "num.partitions": "3"}
    assert "is valid" in cordwood_cli("config", "check", file)
    result = cordwood_cli.run("config", "check", "--require", "log.dirs", file)
    assert (result.exit_code, result.stdout) == (ExitCode.PROBLEM_FOUND, f"{file} does not set log.dirs\n")
    file.write_text('log.dir = "here"\n')
    assert "is valid" in cordwood_cli("config", "check", "--require", "log.dirs", file)
