"""The file with the key of delegation tokens."""

import logging
from pathlib import Path

import pytest

from cordwood.broker.storage.token_key_file import read_token_key
from cordwood.model.errors import BadKeys
from cordwood.model.settings.configuration import InvalidConfiguration, load_settings

KEY = b"0123456789abcdef0123456789abcdef"


def test_the_line_feed_at_the_end_is_no_part_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "token.key"
    file.write_bytes(KEY + b"\n")
    file.chmod(0o600)
    assert read_token_key(str(file)) == KEY


@pytest.mark.parametrize("content", [b"", KEY[1:] + b"\n", KEY * 33], ids=["empty", "short", "long"])
def test_a_key_that_could_be_guessed_or_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token.key"
    file.write_bytes(content)
    with pytest.raises(BadKeys, match=r"a key of \d+ bytes.*openssl rand -base64 32"):
        read_token_key(str(file))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match=r"token\.key cannot be read: No such file"):
        read_token_key(str(tmp_path / "token.key"))


def test_a_key_that_everybody_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token.key"
    file.write_bytes(KEY)
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        read_token_key(str(file))
    assert f"chmod 600 {file}" in caplog.text


def test_kafkas_own_setting_is_refused_with_ours_in_the_message() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        load_settings(settings={"delegation.token.secret.key": "a secret"})
    assert "did you mean delegation.token.secret.key.file?" in str(refusal.value)
    assert "a secret" not in str(refusal.value)
