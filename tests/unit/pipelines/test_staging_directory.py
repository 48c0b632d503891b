"""The directory in which rows of a table with a key wait to be merged."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from cordwood.pipelines.tables.keyed_rows import empty


def test_it_is_made_and_emptied(tmp_path: Path) -> None:
    directory = tmp_path / "staging" / "latest"
    empty(directory)
    (directory / "older.parquet").touch()
    empty(directory)
    assert list(directory.iterdir()) == []


def test_a_task_of_a_cancelled_batch_that_still_writes_does_not_fail_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def removes_while_a_task_writes(path: Path, **options: Any) -> None:
        remove(path, **options)
        path.mkdir(parents=True)
        (path / "late.parquet").touch()

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", removes_while_a_task_writes)
        empty(tmp_path / "latest")
    empty(tmp_path / "latest")
    assert list((tmp_path / "latest").iterdir()) == []
