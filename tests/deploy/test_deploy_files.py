"""The files in deploy/ name settings, commands and paths that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from cordwood.broker.secure.preparing import prepare
from cordwood.cli.app import app
from cordwood.cli.serving.start import plain_serve_flags, settings_from
from cordwood.model.settings.configuration import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_image_sets_only_settings_that_exist() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    environment = dict(re.findall(r"(CORDWOOD_\w+)=(\S+)", dockerfile))
    settings = load_settings(environment=environment)
    assert (settings.logging_format, settings.metrics_listener) == ("json", "0.0.0.0:9404")


def test_the_secure_settings_ask_everybody() -> None:
    settings = load_settings((DEPLOY / "systemd" / "broker-secure.toml").read_text(), environment={})
    (listener,) = settings.listener_list
    assert (listener.protocol, set(settings.tls_listeners)) == ("SASL_SSL", {"CLIENTS", "HTTPS"})
    assert settings.authorizer_class_name
    assert settings.keeps_security_trail
    assert settings.data_directories == ("/var/lib/cordwood",)


def test_the_secure_container_asks_everybody(tmp_path: Path) -> None:
    found = yaml.safe_load((DEPLOY / "compose" / "secure.yml").read_text())["services"]["broker"]
    image = dict(re.findall(r"(CORDWOOD_\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text()))
    assert found["volumes"] == [f"cordwood:{image['CORDWOOD_LOG_DIRS']}"], "a read-only container writes nowhere else"
    assert found["ports"] == ["127.0.0.1:9092:9092"], "not the port of the metrics, which asks nobody"
    flags = plain_serve_flags(found["command"])
    assert flags is not None
    assert flags.secure
    environment = {**image, **found["environment"], "CORDWOOD_LOG_DIRS": str(tmp_path)}
    settings, directory, _ = prepare(settings_from(flags, environment))
    (listener,) = settings.listener_list
    assert listener.protocol == "SASL_SSL"
    assert str(listener.advertised) == "SASL_SSL://localhost:9092"
    assert settings.authorizer_class_name
    assert settings.keeps_security_trail
    assert directory.servers() == "localhost:9092"


def test_the_unit_and_the_chart_start_brokers_with_flags_that_exist() -> None:
    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {flag for option in serve.params for flag in option.opts}
    for file in (DEPLOY / "systemd" / "cordwood.service", DEPLOY / "helm" / "cordwood" / "templates" / "brokers.yaml"):
        command = re.search(r"cordwood serve (.*?)(\n\w|\n +ports:)", file.read_text(), re.DOTALL)
        assert command is not None
        flags = set(re.findall(r"(?<!\S)--[a-z-]+", command[1]))
        assert flags
        assert flags <= known


def test_the_unit_overrides_no_setting_of_the_file_and_requires_the_directories_there() -> None:
    unit = (DEPLOY / "systemd" / "cordwood.service").read_text()
    started = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert started is not None
    assert started[1] == "/opt/cordwood/bin/cordwood serve --config /etc/cordwood/broker.toml"
    assert "config check --require log.dirs /etc/cordwood/broker.toml" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze: apt-get install systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    cordwood = shutil.which("true")
    assert cordwood is not None
    unit = tmp_path / "cordwood.service"
    unit.write_text(
        (DEPLOY / "systemd" / "cordwood.service").read_text().replace("/opt/cordwood/bin/cordwood", cordwood)
    )
    verdict = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verdict.returncode, verdict.stderr) == (0, "")
