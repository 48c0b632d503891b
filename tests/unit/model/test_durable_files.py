from pathlib import Path

import pytest

from cordwood.model.durable_files import replace_file
from cordwood.model.notes import decode_note, encode_note


@pytest.mark.parametrize("stopped", ["write", "sync", "rename"])
def test_a_replacement_that_is_stopped_before_its_rename_leaves_the_old_content(tmp_path: Path, stopped: str) -> None:
    def stop(operation: str, path: str) -> None:
        if operation == stopped:
            raise KeyboardInterrupt

    replace_file(tmp_path / "file", b"old")
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "file", b"new", step=stop)
    assert (tmp_path / "file").read_bytes() == b"old"
    replace_file(tmp_path / "file", b"new", mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_note_with_any_changed_byte_is_not_believed() -> None:
    note = encode_note(b'{"a": 1}\n')
    assert decode_note(note) == b'{"a": 1}\n'
    for place in range(len(note)):
        assert decode_note(note[:place] + bytes([note[place] ^ 1]) + note[place + 1 :]) is None
    assert decode_note(b"") is None
