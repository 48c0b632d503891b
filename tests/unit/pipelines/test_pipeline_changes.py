"""The changes of a batch to the files of its tables, as its event reports them."""

from dataclasses import asdict
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

from deltalake import DeltaTable  # noqa: E402

from cordwood.client.bootstrap import Bootstrap  # noqa: E402
from cordwood.pipelines.definition.definition import pipeline, topic  # noqa: E402
from cordwood.pipelines.definition.table_output import table  # noqa: E402
from cordwood.pipelines.editions.events import Spent  # noqa: E402
from cordwood.pipelines.execution.outputs import Outputs, Place, Work  # noqa: E402
from cordwood.pipelines.tables.data_files import FileWriter  # noqa: E402
from cordwood.pipelines.tables.staged import Staged  # noqa: E402
from cordwood.pipelines.tables.stores import LocalStore  # noqa: E402


def test_a_commit_leaves_the_change_of_every_table_that_took_the_batch(tmp_path: Path) -> None:
    made = pipeline("p", version=1, inputs=topic("t"), outputs={"one": table("first"), "two": table("second")})(
        lambda rows: {"one": rows, "two": rows}
    )
    places: dict[str, Path] = {name: tmp_path / name for name in ("first", "second")}
    outputs = Outputs(
        made, Place(places, {}, tmp_path / "staging", Bootstrap("nowhere:9092"), "v1"), "q", replaying=False
    )
    schema = pa.schema([("n", pa.int64())])

    def work() -> Work:
        begun = Work()
        for name, directory in zip(("one", "two"), places.values(), strict=True):
            directory.mkdir(exist_ok=True)
            writer = FileWriter(LocalStore(directory), schema)
            writer.write(pa.RecordBatch.from_pydict({"n": [1, 2, 3]}, schema=schema))
            file = writer.close()
            begun.tables[name], begun.rows[name] = Staged((file,), file.rows), file.rows
            begun.spent[name] = Spent(0)
        return begun

    for directory in places.values():
        DeltaTable.create(str(directory), schema)
    outputs.commit(work(), 0, repeated=[])
    assert {name: change.files_added for name, change in outputs.changes.items()} == {"one": 1, "two": 1}
    assert all(change.bytes_added > 0 for change in outputs.changes.values())
    outputs.commit(work(), 1, repeated=["one"])
    assert list(outputs.changes) == ["two"]
    told = ["files_added", "bytes_added", "files_searched", "files_rewritten", "bytes_rewritten"]
    assert list(asdict(outputs.changes["two"])) == told
