"""`cordwood pipeline graph` of files alone, of wrong files, and of pipelines that have run."""

import json
from pathlib import Path

from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic

from cordwood.model.failure import ExitCode
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.events import note_failure
from cordwood.pipelines.editions.project import Project

FILE = """from cordwood.pipelines import *

@pipeline("{name}", version=1, inputs={inputs}, outputs={outputs})
def run(rows):
    return rows
"""


def write(directory: Path, name: str, inputs: str, outputs: str) -> Path:
    path = directory / f"{name}.py"
    path.write_text(FILE.format(name=name, inputs=inputs, outputs=outputs))
    return path


def test_files_that_have_not_run_are_drawn_and_checked(
    cordwood_cli: Cordwood, make_topic: MakeTopic, tmp_path: Path
) -> None:
    orders = make_topic()
    write(tmp_path, "enrich", f'topic("{orders}")', 'topic("enriched")')
    write(tmp_path, "report", 'output("enrich", "enriched")', 'table("reports")')
    at = ("-d", str(tmp_path / "state"))
    said = cordwood_cli("pipeline", "graph", tmp_path, "--svg", tmp_path / "graph.svg", *at)
    assert said.splitlines() == [
        orders,
        "└─ enrich  has not run",
        "   └─ enriched → report  has not run",
        "      └─ table reports",
    ]
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    assert not (tmp_path / "state").exists()

    (tmp_path / "broken.py").write_text("from cordwood.pipelines import *\ndef (\n")
    write(tmp_path, "other", 'topic("nowhere")', 'topic("enriched")')
    result = cordwood_cli.run("pipeline", "graph", tmp_path, *at)
    assert result.exit_code == ExitCode.PROBLEM_FOUND
    assert "enriched → report" in result.stdout, "a wrong file does not hide the others"
    for wanted in ("broken.py:2: invalid syntax", "other.py:3: other writes the topic enriched, and enrich does at"):
        assert wanted in result.stderr
    assert "other.py:3: other reads the topic nowhere, which does not exist" in result.stderr


def test_what_is_known_of_live_editions_is_in_the_graph(
    cordwood_cli: Cordwood, make_topic: MakeTopic, tmp_path: Path
) -> None:
    project = Project(tmp_path / "state")
    state = project.state("enrich")
    made = load_pipeline(write(tmp_path, "enrich", f'topic("{make_topic()}")', 'topic("enriched")'))
    state.begin(made, starting="earliest", now_ms=1)
    batch = {"rows_in": 500, "duration_ms": 250}
    state.files.replace(state.edition_directory("v1") / "progress.json", {"quarantined": 2, "last_batch": batch})
    note_failure(state, "v1", {"code": "FAILED", "message": "no more", "hint": ""})
    (node,) = cordwood_cli.json("pipeline", "graph", "-d", str(project.directory))["pipelines"]
    assert (node["live"], node["running"], node["rows_per_second"], node["quarantined"]) == ("v1", False, 2000, 2)
    assert node["trouble"] == ["failed: no more"]
    said = cordwood_cli.run("pipeline", "graph", "-d", str(project.directory))
    assert "enrich  v1 stands still, 2,000 rows/s, 2 records in quarantine, in trouble" in said.stdout
    assert "enrich: failed: no more" in said.stderr


def test_what_goes_along_each_edge_is_said_where_a_pipeline_has_several_inputs(
    cordwood_cli: Cordwood, make_topic: MakeTopic, tmp_path: Path
) -> None:
    orders, clicks = make_topic(), make_topic()
    for topic, count in ((orders, 12), (clicks, 5)):
        cordwood_cli("produce", topic, stdin="x\n" * count)
    path = write(tmp_path, "both", f'{{"rows": topic("{orders}"), "more": topic("{clicks}")}}', 'topic("joined")')
    path.write_text(path.read_text().replace("run(rows)", "run(rows, more)"))
    state = Project(tmp_path / "state").state("both")
    state.begin(load_pipeline(path), starting="earliest", now_ms=1)
    checkpoint = state.checkpoint("v1")
    for number, (some, others) in enumerate([(4, 1), (10, 2)]):
        for kind in ("offsets", "commits"):
            (checkpoint / kind).mkdir(parents=True, exist_ok=True)
            end = {orders: {"0": some}, clicks: {"0": others}}
            (checkpoint / kind / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    last = {"rows_in": 7, "duration_ms": 500}
    progress = {"quarantined": 3, "quarantined_by_input": {"more": 3}, "last_batch": last}
    state.files.replace(state.edition_directory("v1") / "progress.json", progress)
    at = ("-d", str(tmp_path / "state"))
    said = cordwood_cli("pipeline", "graph", "--svg", tmp_path / "graph.svg", *at).splitlines()
    first, second = sorted([(orders, "lag 2, 12 rows/s"), (clicks, "lag 3, 2 rows/s, 3 in quarantine")])
    known = "v1 stands still, lag 5, 14 rows/s, 3 records in quarantine"
    assert said[:2] == [first[0], f"└─ both ({first[1]})  {known}"]
    assert said[-2:] == [second[0], f"└─ both ({second[1]})  (above)"]
    drawn = (tmp_path / "graph.svg").read_text()
    assert ">lag 3, 2 rows/s</text>" in drawn
    assert drawn.count(">3 in quarantine</text>") == 1, "on one of the two edges"
    (node,) = cordwood_cli.json("pipeline", "graph", *at)["pipelines"]
    along = [(each["lag"], each["rows_per_second"], each["quarantined"]) for each in node["inputs"]]
    assert along == [(2, 12, 0), (3, 2, 3)]


def test_a_project_whose_pipelines_mix_their_outputs_or_feed_each_other_is_not_served(
    cordwood_cli: Cordwood, make_topic: MakeTopic, tmp_path: Path
) -> None:
    write(tmp_path, "enrich", f'topic("{make_topic()}")', 'topic("enriched")')
    write(tmp_path, "other", 'topic("enriched")', 'topic("enriched-again")')
    serve = ("pipeline", "serve", tmp_path, "--once", "-d", tmp_path / "state")
    write(tmp_path, "third", 'topic("enriched")', 'topic("enriched-again")')
    code, error = cordwood_cli.error(*serve)
    assert (code, error["code"]) == (ExitCode.FAILED, "INVALID_DEFINITION")
    assert "third.py:3: third writes the topic enriched-again, and other does at" in error["message"]
    write(tmp_path, "third", 'topic("enriched-again")', 'topic("enriched-more")')
    write(tmp_path, "other", '{"rows": topic("enriched"), "more": topic("enriched-more")}', 'topic("enriched-again")')
    (tmp_path / "other.py").write_text((tmp_path / "other.py").read_text().replace("run(rows)", "run(rows, more)"))
    _, error = cordwood_cli.error(*serve)
    assert "feeds it itself: other → third → other" in error["message"]
    assert not (tmp_path / "state").exists()
