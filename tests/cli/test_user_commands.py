"""`cordwood user` against a real broker: passwords from a file and the environment, refusals that say what to do."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cordwood

KEYS = [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}, {"mechanism": "SCRAM-SHA-512", "iterations": 8192}]


@pytest.fixture
def user(topic: str) -> str:
    """The name of a user that does not exist yet."""
    return topic.replace("cli", "user")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORDWOOD_USER_PASSWORD", "secret")


def listed(cli: Cordwood, user: str) -> list[object]:
    return [each["keys"] for each in cli.json("user", "list") if each["user"] == user]


def test_a_user_is_added_listed_and_removed(cordwood_cli: Cordwood, user: str) -> None:
    assert cordwood_cli("user", "add", user) == f"{user} can log in by SCRAM-SHA-256, SCRAM-SHA-512\n"
    assert listed(cordwood_cli, user) == [KEYS]
    assert user in cordwood_cli("user", "list", "--quiet").splitlines()
    code, error = cordwood_cli.error("user", "add", user)
    assert (code, error["code"], error["hint"]) == (
        1,
        "DUPLICATE_RESOURCE",
        f"`cordwood user password {user}` changes it",
    )
    assert cordwood_cli("user", "password", user) == f"{user} has a new password\n"
    assert cordwood_cli.json("user", "remove", user, "--dry-run")["removed"] is False
    assert listed(cordwood_cli, user) == [KEYS]
    assert cordwood_cli("user", "remove", user, "--yes") == f"{user} is removed\n"
    assert listed(cordwood_cli, user) == []


def test_one_mechanism_and_other_iterations(cordwood_cli: Cordwood, user: str) -> None:
    told = cordwood_cli.json("user", "add", user, "--mechanism", "SCRAM-SHA-512", "--iterations", 4096)
    assert told == {"user": user, "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}
    cordwood_cli("user", "password", user)
    assert listed(cordwood_cli, user) == [[{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]]
    assert cordwood_cli.error("user", "add", user, "--mechanism", "GSSAPI")[0] == 2


def test_a_password_comes_from_a_file(
    cordwood_cli: Cordwood, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORDWOOD_USER_PASSWORD")
    code, error = cordwood_cli.error("user", "add", user)
    assert (code, error["hint"]) == (2, "give --password-file FILE, or set CORDWOOD_USER_PASSWORD")
    file = tmp_path / "password"
    for content, refusal in [("", "cannot be empty"), ("\n", "cannot be empty"), ("a\nb\n", "one line")]:
        file.write_text(content)
        assert refusal in cordwood_cli.error("user", "add", user, "--password-file", file)[1]["message"]
    assert "No such file" in cordwood_cli.error("user", "add", user, "--password-file", tmp_path / "no")[1]["message"]
    file.write_text("secret\n")
    cordwood_cli("user", "add", user, "--password-file", file)
    assert listed(cordwood_cli, user) == [KEYS]


def test_a_user_that_does_not_exist_is_named_with_similar_ones(cordwood_cli: Cordwood, user: str) -> None:
    cordwood_cli("user", "add", user)
    for command in (("password", user[:-1]), ("remove", user[:-1], "--yes")):
        code, error = cordwood_cli.error("user", *command)
        assert (code, error["code"]) == (4, "RESOURCE_NOT_FOUND")
        assert user in error["hint"]
