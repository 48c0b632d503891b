"""The files that a task writes into a table, and its report of them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cordwood.pipelines.tables.data_files import FileWriter, RolledFiles, write_partition  # noqa: E402
from cordwood.pipelines.tables.stores import LocalStore  # noqa: E402

SCHEMA = pa.schema([("n", pa.int64())])


def batches(*counts: int, pause_s: float = 0.0) -> Iterator[Any]:
    for count in counts:
        time.sleep(pause_s)
        yield pa.RecordBatch.from_pydict({"n": list(range(count))}, schema=SCHEMA)


def test_a_task_tells_of_its_file_and_of_the_time_that_it_waited_for_rows(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    began_s = time.monotonic()
    written = write_partition(batches(2, 0, 3, pause_s=0.02), RolledFiles(lambda: FileWriter(store, SCHEMA)))
    took_ms = (time.monotonic() - began_s) * 1000
    (file,) = written.files
    assert (file.rows, file.size_bytes) == (5, (tmp_path / file.name).stat().st_size)
    assert written.input_ms >= 60
    assert written.input_ms + written.write_ms <= took_ms


def test_a_task_without_rows_writes_no_file_and_tells_that_it_waited(tmp_path: Path) -> None:
    written = write_partition(
        batches(0, 0, pause_s=0.01), RolledFiles(lambda: FileWriter(LocalStore(tmp_path), SCHEMA))
    )
    assert (written.files, list(tmp_path.iterdir())) == ((), [])
    assert written.input_ms >= 20
