"""Nothing that Spark shows or keeps has a password: plans, UI, event log, checkpoint, progress, failures, arguments."""

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority, name
from tests.spark.secure_stage import SecureStage, in_javas_names, in_own_names, settings_in
from tests.spark.test_secure_pipelines import nobody_sees

from cordwood.administration.access.tokens import tokens
from cordwood.client.bootstrap import Bootstrap

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 800


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[SecureStage]:
    stage = SecureStage(tmp_path, with_tokens=True)
    try:
        stage.make_topics("orders", "copies")
        stage.produce("orders", ["a chair", "a table"])
        yield stage
    finally:
        stage.end()


def test_a_password_is_nowhere_to_be_seen(stage: SecureStage, tmp_path: Path) -> None:
    alice = settings_in(stage.add_user("alice", "--spark", "copying", "--reads", "orders", "--writes", "copies"))
    key_password = "the password of the key"
    own = Authority().issue(name(CN="alice"))
    certificate = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": own.certificate_pem.decode(),
        "kafka.ssl.keystore.key": own.key_pem(key_password).decode(),
        "kafka.ssl.key.password": key_password,
    }
    facts, shown = tmp_path / "facts.json", tmp_path / "shown"
    shown.mkdir()
    facts.write_text(json.dumps({"read": {**in_javas_names(alice), **certificate}, "write": in_own_names(alice)}))
    with nobody_sees(alice["sasl.password"]), open(shown / "log.txt", "wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.secrets_driver", str(facts), str(shown)],
            cwd=REPOSITORY,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, (shown / "log.txt").read_text()[-4000:]
    files = [path for path in shown.rglob("*") if path.is_file()]
    # What was looked through has the options, or else the look proves nothing.
    texts = {path: path.read_bytes() for path in files}
    assert any(b"kafka.sasl.jaas.config" in text for path, text in texts.items() if "events" in str(path))
    assert any(b"redacted" in text for path, text in texts.items() if path.name.startswith("page-"))
    (token,) = tokens(Bootstrap.of(alice), TIMEOUT_S)
    assert token.token.owner == "User:alice", "tasks had a token"
    for secret in (alice["sasl.password"], key_password, token.password):
        for written in (secret.encode(), b64encode(secret.encode()).rstrip(b"=")[:-1]):
            assert not [path.name for path, text in texts.items() if written in text]
