"""The declarations of a pipeline's file, and the errors for mistakes, always with file and line."""

import inspect
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cordwood.pipelines.definition.definition import Budget, OutputMode, budget, pipeline, topic
from cordwood.pipelines.definition.errors import InvalidDefinition, NotFound
from cordwood.pipelines.definition.loading import load_pipeline, load_pipelines
from cordwood.pipelines.definition.record_formats import Json, Raw, json, raw, text
from cordwood.pipelines.definition.table_output import TableFormat, table


def same(orders: Any) -> Any:
    return orders


def joined(orders: Any, customers: Any) -> Any:
    return {"priced": orders, "latest": customers}


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_the_smallest_pipeline_is_a_function_a_topic_and_a_table() -> None:
    made = pipeline(version=1, inputs=topic("orders"), outputs=table("latest"))(same)
    assert made.name == "same"
    assert list(made.inputs) == ["orders"]
    assert made.inputs["orders"].value == Raw()
    assert made.outputs["latest"] == table("latest")
    assert made.budget == Budget(0, 0.0)
    assert made.quarantine_topic == "same.quarantine"
    rows: Any = object()
    assert made(rows) is rows, "calling a pipeline calls its function"


def test_inputs_and_outputs_go_by_name() -> None:
    made = pipeline(
        "orders-by-customer",
        version=3,
        inputs={"orders": topic("orders", value=json("id string")), "customers": topic("customers", key=text())},
        outputs={"priced": topic("orders.priced", key="id"), "latest": table("orders", key=["tenant", "id"])},
        quarantine=budget(rows=5),
        stateful=True,
        output_mode="update",
    )(joined)
    assert list(made.topics) == ["priced"]
    assert made.topics["priced"].value == Json()
    assert made.tables["latest"].key == ("tenant", "id")
    assert made.tables["latest"].format is TableFormat.DELTA
    assert made.settings.output_mode is OutputMode.UPDATE


@pytest.mark.parametrize(("rows_in", "allowed"), [(0, 5), (400, 5), (500, 5), (1_000, 10), (1_099, 10)])
def test_a_budget_is_a_number_of_rows_or_a_share_where_that_is_more(rows_in: int, allowed: int) -> None:
    assert budget(rows=5, share=0.01).allowed(rows_in) == allowed


@pytest.mark.parametrize("percent", range(101))
def test_a_share_of_a_hundred_records_is_its_percents(percent: int) -> None:
    assert budget(share=percent / 100).allowed(100) == percent


def test_a_mistake_is_told_with_file_and_line() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        table("no spaces")
    expected = line() - 1
    assert caught.value.site is not None
    assert (caught.value.site.file, caught.value.site.line) == (__file__, expected)
    assert caught.value.message.startswith(f"{__file__}:{expected}: ")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: topic("a/b"), "cannot be a topic's name"),
        (lambda: topic("orders", value="json"), "is no format"),  # type: ignore[arg-type]
        (lambda: table("t", format="orc"), "no format 'orc'"),
        (lambda: table("t", format="parquet"), "no format 'parquet'"),
        (lambda: table("t", format="iceberg", key="id"), "not replaced by key"),
        (lambda: table("t", delete_when="x"), "for tables with a key"),
        (lambda: table("t", key="order.id"), "'order.id' cannot be a key"),
        (lambda: budget(rows=-1), "rows >= 0"),
        (lambda: budget(share=1.5), "share from 0 to 1"),
        (lambda: pipeline("a b", version=1, inputs=topic("t"), outputs=table("t"))(same), "pipeline's name"),
        (lambda: pipeline(version=0, inputs=topic("t"), outputs=table("t"))(same), "version=0"),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"))(joined), "takes 2"),
        (
            lambda: pipeline(version=1, inputs={"other": topic("t")}, outputs=table("t"))(same),
            "takes orders, the inputs",
        ),
        (lambda: pipeline(version=1, inputs={}, outputs=table("t"))(same), "inputs are topics"),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs={})(same), "no outputs"),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs={"x": 3})(same), "3 is no output"),  # type: ignore[dict-item]
        (lambda: pipeline(version=1, inputs=topic("t", key="id"), outputs=table("t"))(same), "has key='id'"),
        (lambda: pipeline(version=1, inputs=topic("t", value=json()), outputs=table("t"))(same), "needs a schema"),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs=topic("u", key=raw()))(same), "format as its key"),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs=topic("t"))(same), "read what it writes"),
        (lambda: pipeline(version=1, inputs=topic("same.quarantine"), outputs=table("t"))(same), "own quarantine"),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs={"a": table("t"), "b": table("t")})(same),
            "two outputs write the table t",
        ),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), output_mode="update")(same),
            "for stateful pipelines",
        ),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs=topic("u", replayable=False), stateful=True)(same),
            "u must be replayable",
        ),
        (
            lambda: pipeline(
                version=1, inputs=topic("t"), outputs=table("t"), stateful=True, quarantine=budget(share=0.1)
            )(same),
            "is a number of rows",
        ),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), starting="@then")(same), "starting: "),
        (lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), starting="begin")(same), "no place in"),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), starting={"t": {"0": 1}})(same),  # type: ignore[arg-type]
            "is no text: offsets are JSON, in quotes",
        ),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), max_rows_per_batch=0)(same),
            "max_rows_per_batch=0",
        ),
        (
            lambda: pipeline(version=1, inputs=topic("t"), outputs=table("t"), trigger="every second")(same),
            "trigger='every second'",
        ),
        (
            lambda: pipeline(
                version=1, inputs=topic("t"), outputs=table("t"), source_options={"startingoffsets": "latest"}
            )(same),
            "startingoffsets is no option for its source",
        ),
    ],
)
def test_mistakes_are_refused_where_they_are_made(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        wrong()
    assert said in caught.value.message
    assert caught.value.site is not None
    assert caught.value.site.file == __file__


FILE = """
from dataclasses import dataclass
from cordwood.pipelines import json, pipeline, table, topic

@dataclass
class Neighbour:
    name: str

@pipeline(version=2, inputs=topic("orders", value=json("id string")), outputs=table("latest", key="id"))
def orders(orders):
    return orders

if __name__ == "__main__":
    raise AssertionError("only whoever runs it as a program gets here")
"""


def write(directory: Path, content: str) -> Path:
    path = directory / "pipelines_of_mine.py"
    path.write_text(dedent(content))
    return path


def test_a_file_is_loaded_by_running_it(tmp_path: Path) -> None:
    made = load_pipeline(write(tmp_path, FILE))
    assert (made.name, made.version) == ("orders", 2)
    assert made.site.file == str((tmp_path / "pipelines_of_mine.py").resolve())


def test_of_several_pipelines_in_a_file_one_is_named(tmp_path: Path) -> None:
    second = FILE.replace("def orders(", "def returns(").replace('table("latest"', 'table("back"')
    path = write(tmp_path, FILE.partition("if __name__")[0] + second)
    assert sorted(load_pipelines(path)) == ["orders", "returns"]
    assert load_pipeline(path, "returns").tables.keys() == {"back"}
    with pytest.raises(NotFound, match="declares 2 pipelines: orders, returns"):
        load_pipeline(path)
    with pytest.raises(NotFound, match="no pipeline refunds"):
        load_pipeline(path, "refunds")


@pytest.mark.parametrize(
    ("content", "said", "at"),
    [
        ("x = 1\ny = (\n", "was never closed", 2),
        ("import os\n\nos.no_such_thing\n", "AttributeError", 3),
        ("import no_such_module_at_all\n", "ModuleNotFoundError", 1),
        ("from cordwood.pipelines import table\n\ntable('a b')\n", "cannot be a table's name", 3),
        ("x = 1\n", "no pipeline is declared here", 1),
    ],
)
def test_a_broken_file_is_told_with_its_line(tmp_path: Path, content: str, said: str, at: int) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InvalidDefinition) as caught:
        load_pipelines(path)
    assert said in caught.value.message
    assert caught.value.site is not None
    assert caught.value.site.line == at
    assert Path(caught.value.site.file).name == path.name


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        load_pipelines(tmp_path / "nowhere.py")


def test_who_looks_for_when_matched_is_told_of_latest_by(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(
        "from cordwood.pipelines import *\n"
        "@pipeline(version=1, inputs=topic('t'), outputs=table('t', key='id', when_matched='newest by at'))\n"
        "def orders(rows):\n"
        "    return rows\n"
    )
    with pytest.raises(InvalidDefinition, match=r"orders.py:2: .*when_matched") as refused:
        load_pipeline(file)
    assert refused.value.hint.startswith("latest_by=")


def test_a_udf_whose_type_spark_has_to_read_is_refused_with_the_ways_to_write_it(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text("from pyspark.sql import functions as F\n\n@F.udf('string')\ndef same(text):\n    return text\n")
    with pytest.raises(InvalidDefinition, match=r"orders.py:[34]: .*SESSION_OR_CONTEXT_NOT_EXISTS") as refused:
        load_pipeline(file)
    assert "say udf(StringType()), not udf" in refused.value.hint
