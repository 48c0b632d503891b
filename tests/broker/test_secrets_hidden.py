"""Secret settings are in no output: a broker has a marker in each of them, and all outputs are looked through."""

from __future__ import annotations

import gzip
import io
import json
import logging
import subprocess
import tarfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.broker_process import EXECUTABLE, BrokerProcess
from tests.certificates import TlsFiles, tls_files
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.model.settings.broker_settings import BROKER_SETTINGS, BrokerSettings
from cordwood.model.settings.setting import HIDDEN, InvalidSetting, Kind

PASSWORD = "s3cret-in-a-setting"
SECRETS = sorted(name for name, setting in BROKER_SETTINGS.items() if setting.secret)
CONFIG = "THE CONFIGURATION"
COMMANDS = [
    ["config", "list", "ssl"],
    ["config", "describe", "--broker", "1"],
    ["config", "describe", "--broker", "1", "--json"],
    ["config", "check", CONFIG],
    ["config", "check", CONFIG, "--json"],
    ["doctor", "--config", CONFIG],
    ["doctor", "--config", CONFIG, "--json"],
    ["cluster", "status", "--json"],
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("certificates"))


class WithSecrets(BrokerProcess):
    """A broker whose listeners and secrets stand in its file: flags override the file."""

    def __init__(self, directory: Path, files: TlsFiles) -> None:
        issued = files.authority.issue()
        key = issued.key_pem(PASSWORD).decode()
        self.configuration = directory / "cordwood.toml"
        self.configuration.write_text(
            f'''listeners = "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0"
listener.security.protocol.map = "PLAINTEXT:PLAINTEXT,TLS:SSL"
security.trail.enable = "true"
ssl.keystore.certificate.chain = """{issued.certificate_pem.decode()}"""
ssl.keystore.key = """{key}"""
listener.name.tls.ssl.key.password = "{PASSWORD}"
'''
        )
        super().__init__(directory / "data", options=("--config", str(self.configuration)))
        self.markers = [PASSWORD, *[line for line in key.splitlines() if len(line) > 40][:3]]
        """Pieces of secrets that nothing else has."""

    def _listen(self) -> list[str]:
        return []


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithSecrets]:
    with WithSecrets(tmp_path_factory.mktemp("broker"), files) as broker:
        yield broker


def test_there_are_secrets_and_all_are_of_the_secret_kind() -> None:
    assert {"ssl.key.password", "ssl.keystore.key"} <= set(SECRETS)
    suspicious = ("password", "secret", "jaas", "keystore.key", "token")
    for name, setting in BROKER_SETTINGS.items():
        is_time = name.endswith(".ms")
        if any(word in name for word in suspicious) and not is_time and not name.endswith(".file"):
            assert setting.kind is Kind.PASSWORD, name


def test_no_command_tells_a_secret(broker: WithSecrets, tmp_path: Path) -> None:
    cli = Cordwood(broker.bootstrap.removeprefix("PLAINTEXT://"))
    told = {}
    for command in COMMANDS:
        asked = [str(broker.configuration) if word == CONFIG else word for word in command]
        told[" ".join(command)] = cli.run(*asked).output
    for settings_of in (f"config check {CONFIG} --json", "config describe --broker 1 --json"):
        assert "listener.name.tls.ssl.key.password" in told[settings_of]
    assert "No such" not in "".join(told.values())
    bundle = tmp_path / "bundle.tar.gz"
    log = tmp_path / "broker.log"
    log.write_text(broker.output())
    cli("support-bundle", "-o", bundle, "-d", broker.data_dir, "--log-file", log)
    told["support-bundle"] = gzip.decompress(bundle.read_bytes()).decode(errors="replace")
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as parts:
        settings = parts.extractfile("cordwood-support/settings.json")
        assert settings is not None
        assert "ssl.keystore.certificate.chain" in settings.read().decode()
    told["log"] = broker.output()
    for where, text in told.items():
        assert text, where
        assert not [marker for marker in broker.markers if marker in text], where


def test_clients_are_told_that_there_is_a_secret_and_not_which(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(60)
    secret = {name: entry for name, entry in entries.items() if entry.is_sensitive}
    assert {"ssl.keystore.key", "listener.name.tls.ssl.key.password", *SECRETS} <= set(secret)
    for entry in secret.values():
        assert entry.value is None
        assert all(synonym.value is None for synonym in entry.synonyms.values())


def test_a_client_that_sends_a_secret_finds_it_nowhere(broker: WithSecrets) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry("ssl.key.password", PASSWORD, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
    with pytest.raises(Exception, match=r"ssl\.key\.password") as refusal:
        admin.incremental_alter_configs([resource])[resource].result(60)
    assert PASSWORD not in str(refusal.value)
    trail = broker.data_dir / "security-trail" / "broker-1.jsonl"
    line = json.loads(eventually(lambda: trail.read_text() if trail.exists() else "").splitlines()[-1])
    assert line["resources"][0]["data"]["change"] == f"broker 1: ssl.key.password={HIDDEN}"
    assert PASSWORD not in broker.output()


def test_a_flag_with_a_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    command = [str(EXECUTABLE), "serve", "--data-dir", str(tmp_path / "data"), "--set", f"ssl.key.password={PASSWORD}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "ssl.key.password is a secret" in done.stderr
    assert PASSWORD not in done.stderr + done.stdout


def test_settings_hide_secrets_from_repr_tracebacks_and_errors(caplog: pytest.LogCaptureFixture) -> None:
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="{PASSWORD}";'
    texts = {name: jaas if "jaas" in name else PASSWORD for name in SECRETS}
    settings = BrokerSettings.from_texts({**texts, "listener.name.plaintext.ssl.key.password": PASSWORD})
    assert PASSWORD not in repr(settings)
    with pytest.raises(InvalidSetting) as refusal:
        BrokerSettings.from_texts({**texts, "listener.name.nowhere.ssl.key.password": PASSWORD})
    assert PASSWORD not in "".join(traceback.format_exception(refusal.value))
    logging.getLogger("tests").error("failed with %r", settings, exc_info=refusal.value)
    assert PASSWORD not in caplog.text
