"""A directory of definitions as one project: its edges, and its mistakes with their lines, before anything runs."""

from pathlib import Path
from textwrap import dedent

import pytest

from cordwood.pipelines.definition.errors import NotFound
from cordwood.pipelines.definition.project_files import check_project, edges_between, load_project


def write(directory: Path, name: str, content: str) -> None:
    text = dedent(content).strip("\n")
    (directory / name).write_text(f"from cordwood.pipelines import *\n{text}\n")


def declared(name: str, inputs: str, outputs: str) -> str:
    head = f'@pipeline("{name}", version=1, inputs={inputs},\n          outputs={outputs})'
    return f"{head}\ndef run(rows):\n    return rows\n"


def said(directory: Path, topics: set[str] | None = None) -> list[tuple[tuple[str, ...], str]]:
    """The faults: the pipelines that each concerns, and the error with the name of the file alone."""
    project = load_project(directory)
    faults = [*project.faults, *check_project(project.pipelines.values(), topics=topics)]
    return [(each.pipelines, each.error.message.replace(f"{directory}/", "")) for each in faults]


def test_a_chain_is_a_project_without_faults(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("a", 'topic("orders")', 'topic("one")'))
    write(tmp_path, "b.py", declared("b", 'output("a", "one")', 'topic("two")'))
    write(tmp_path, "c.py", declared("c", 'topic("two")', 'table("three")'))
    assert said(tmp_path, {"orders"}) == []
    edges = edges_between(load_project(tmp_path).pipelines.values())
    assert [(edge.writer, edge.topic, edge.reader, edge.follows) for edge in edges] == [
        ("a", "one", "b", True),
        ("b", "two", "c", False),
    ]


def test_a_wrong_file_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("a", 'topic("orders")', 'topic("one")'))
    write(tmp_path, "b.py", declared("b", 'topic("orders", value=jsn("x int"))', 'topic("two")'))
    write(tmp_path, "c.py", "def (")
    write(tmp_path, "d.py", declared("d", 'topic("orders")', 'topic("four")') + "import sys\nsys.exit(0)")
    assert list(load_project(tmp_path).pipelines) == ["a"]
    assert said(tmp_path) == [
        ((), "b.py:2: NameError: name 'jsn' is not defined"),
        ((), "c.py:2: invalid syntax"),
        ((), "d.py:7: the file ends the program: sys.exit()"),
    ]


def test_files_that_declare_no_pipeline_are_not_run(tmp_path: Path) -> None:
    for name in ("helper.py", "program.py", "test_it.py"):
        (tmp_path / name).write_text("raise AssertionError('this file is run')\n")
    (tmp_path / "alias.py").write_text(
        "from cordwood.pipelines import pipeline as p, topic\n"
        + declared("a", 'topic("x")', 'topic("y")').replace("@pipeline", "@p")
    )
    assert list(load_project(tmp_path).pipelines) == ["a"]
    with pytest.raises(NotFound, match="is no directory"):
        load_project(tmp_path / "missing")


def test_two_writers_of_one_output_are_named_with_both_lines(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("a", 'topic("orders")', '{"x": topic("one"), "y": table("t")}'))
    write(tmp_path, "b.py", declared("b", 'topic("orders")', '{"x": topic("one"), "y": table("t")}'))
    write(tmp_path, "c.py", declared("c", 'topic("orders")', 'topic("a.quarantine")'))
    assert said(tmp_path) == [
        (("a", "b"), "b.py:3: b writes the topic one, and a does at a.py:3"),
        (("a", "b"), "b.py:3: b writes the table t, and a does at a.py:3"),
        (("c", "a"), "c.py:3: c writes the topic a.quarantine, which is the quarantine of a"),
    ]


def test_two_pipelines_of_one_name_are_a_fault(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("same", 'topic("orders")', 'topic("one")'))
    write(tmp_path, "b.py", declared("same", 'topic("orders")', 'topic("two")'))
    assert said(tmp_path) == [((), "b.py:2: a second pipeline with the name same: the first is at a.py:2")]


def test_inputs_that_are_nowhere_are_faults(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("a", 'topic("orders")', 'topic("one")'))
    write(tmp_path, "b.py", declared("b", 'output("a", "won")', 'topic("two")'))
    write(tmp_path, "c.py", declared("c", 'output("nobody", "x")', 'topic("three")'))
    assert said(tmp_path, {"payments"}) == [
        (("a",), "a.py:2: a reads the topic orders, which does not exist, and no pipeline of the project writes it"),
        (("b",), "b.py:2: b reads won of a, which writes one"),
        (("c",), "c.py:2: c reads x of nobody, and there is no such pipeline"),
    ]
    assert [pipelines for pipelines, _ in said(tmp_path)] == [("b",), ("c",)], (
        "topics that are not known are not judged"
    )
    pipelines = load_project(tmp_path).pipelines.values()
    faults = check_project(pipelines, elsewhere={"nobody": ["x"]})
    assert [fault.pipelines for fault in faults] == [("b",)], "a pipeline that runs without a file here is one, too"


def test_a_cycle_is_a_fault_of_all_in_it_and_of_nobody_else(tmp_path: Path) -> None:
    write(tmp_path, "a.py", declared("a", 'output("c", "three")', 'topic("one")'))
    write(tmp_path, "b.py", declared("b", 'topic("one")', 'topic("two")'))
    write(tmp_path, "c.py", declared("c", 'output("b", "two")', 'topic("three")'))
    write(tmp_path, "d.py", declared("d", 'output("c", "three")', 'table("t")'))
    assert said(tmp_path) == [
        (("a", "b", "c"), "a.py:2: a reads three, and feeds it itself: a → b → c → a"),
    ]
