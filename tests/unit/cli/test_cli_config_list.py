"""`cordwood config list` needs no broker and explains every setting."""

import json

from typer.testing import CliRunner

from cordwood.cli.app import app
from cordwood.model.settings.broker_settings import BROKER_SETTINGS
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS

runner = CliRunner()


def test_every_setting_is_listed_with_its_meaning() -> None:
    listed = json.loads(runner.invoke(app, ["config", "list", "--json"]).stdout)
    assert {row["name"] for row in listed if row["of"] == "topic"} == set(TOPIC_SETTINGS)
    assert {row["name"] for row in listed if row["of"] == "broker"} == set(BROKER_SETTINGS)
    assert all(row["meaning"] for row in listed)


def test_the_list_can_be_narrowed() -> None:
    shown = runner.invoke(app, ["config", "list", "--topics", "retention"]).stdout
    assert "retention.ms" in shown
    assert "log.retention.ms" not in shown
    assert "segment.bytes" not in shown
    names = runner.invoke(app, ["config", "list", "-q", "--topics", "retention.m"]).stdout.splitlines()
    assert names == ["delete.retention.ms", "retention.ms"]
    nothing = runner.invoke(app, ["config", "list", "zzz"])
    assert nothing.stdout == ""
    assert "No setting" in nothing.stderr
