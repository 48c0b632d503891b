"""Editions, swap and rollback on disk, and the state after a kill before any operation on it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import AlreadyRunning, DamagedState, NotFound, WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.definition.state_files import StateFiles
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.live import Live
from cordwood.pipelines.editions.live_edition import adopting, begin_checked, locked_live_edition, unmake_unchecked
from cordwood.pipelines.editions.project import Project, table_path, topic_name
from cordwood.pipelines.execution.replaying import edition_for

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline(
    version={version},
    inputs=topic("orders"),
    outputs={{
        "latest": table("latest", key="id"),
        "priced": topic("priced", key="id"),
        "mails": topic("mails", replayable=False),
        "seen": table("seen", replayable=False),
    }},
)
def enrich(orders):
    return orders
"""


class Killed(BaseException):
    """A sudden end, like kill -9: nothing in the program catches it."""


class StopBefore:
    """Kills the program before its n-th operation on the disk."""

    def __init__(self, operation: int) -> None:
        self.left = operation

    def __call__(self, operation: str, path: str) -> None:
        if self.left == 0:
            raise Killed(f"before: {operation} {path}")
        self.left -= 1


def version(directory: Path, number: int) -> Pipeline:
    path = directory / "enrich.py"
    path.write_text(FILE.format(version=number))
    return load_pipeline(path)


@pytest.fixture
def state(tmp_path: Path) -> PipelineState:
    return Project(tmp_path / "project").state("enrich")


def with_two_editions(state: PipelineState, tmp_path: Path) -> None:
    state.begin(version(tmp_path, 1), starting="earliest", now_ms=1)
    state.make_edition(version(tmp_path, 2), starting="earliest", now_ms=3, replayed=True)


def test_names_lead_to_the_live_edition_before_and_after_a_swap(state: PipelineState, tmp_path: Path) -> None:
    project = tmp_path / "project"
    with_two_editions(state, tmp_path)
    assert table_path("latest", project) == state.directory / "editions/v1/tables/latest"
    assert topic_name("priced", project) == "priced"
    state.swap("v2", position={"orders": {0: 7}}, now_ms=4)
    assert table_path("latest", project) == state.directory / "editions/v2/tables/latest"
    assert topic_name("priced", project) == "priced.v2"
    state.rollback(position={"orders": {0: 9, 1: 1}}, now_ms=5)
    assert table_path("latest", project) == state.directory / "editions/v1/tables/latest"
    assert topic_name("priced", project) == "priced"


def test_outputs_that_are_not_replayable_are_shared_by_all_editions(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    first, second = state.edition("v1"), state.edition("v2")
    assert state.table_directory(first, "seen") == state.table_directory(second, "seen")
    assert first.topics["mails"] == second.topics["mails"] == "mails"


def test_effects_go_on_where_the_furthest_edition_stopped(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    assert state.swap("v2", position={"orders": {0: 7, 1: 5}}, now_ms=4).effects_from == {"orders": {0: 7, 1: 5}}
    after = state.rollback(position={"orders": {0: 9, 1: 4, 2: 1}}, now_ms=5)
    assert after.effects_from == {"orders": {0: 9, 1: 5, 2: 1}}


def test_a_version_can_be_built_more_than_once(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    again = state.make_edition(version(tmp_path, 2), starting="earliest", now_ms=4, replayed=True)
    assert again.name == "v2.2"
    assert again.topics["priced"] == "priced.v2.2"
    assert list(state.editions()) == ["v1", "v2", "v2.2"]
    fresh = state.fresh_edition()
    assert fresh is not None
    assert fresh.name == "v2.2"


def test_a_replay_goes_on_with_what_the_same_file_began_and_with_nothing_else(
    state: PipelineState, tmp_path: Path
) -> None:
    with_two_editions(state, tmp_path)
    project = Project(tmp_path / "project")

    def replayed(made: Pipeline, starting: str = "earliest") -> str:
        return edition_for(project, state, made, starting=starting, fresh=False, now_ms=9).name

    assert replayed(version(tmp_path, 2)) == "v2"
    # The file was mended under the same version: half a table from each file would be neither.
    (tmp_path / "enrich.py").write_text(FILE.format(version=2).replace("return orders", "return orders.distinct()"))
    assert replayed(load_pipeline(tmp_path / "enrich.py")) == "v2.2"
    assert replayed(load_pipeline(tmp_path / "enrich.py")) == "v2.2"
    assert replayed(load_pipeline(tmp_path / "enrich.py"), "@0") == "v2.3"


def test_after_a_rollback_the_edition_is_beside_the_live_one_again(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    state.swap("v2", position={}, now_ms=4)
    assert state.fresh_edition() is None
    with pytest.raises(WrongState, match="live already"):
        state.swap("v2", position={}, now_ms=5)
    state.rollback(position={}, now_ms=6)
    fresh = state.fresh_edition()
    assert fresh is not None
    assert fresh.name == "v2"
    with pytest.raises(WrongState, match="no swap to undo"):
        state.rollback(position={}, now_ms=7)


def test_another_version_may_go_on_in_the_same_edition(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    changed = state.take_over(state.edition("v1"), version(tmp_path, 3))
    assert (changed.name, changed.version, changed.topics["priced"]) == ("v1", 3, "priced")
    assert "version=3" in state.definition(changed).read_text()
    assert state.edition("v1") == changed


def test_a_first_edition_is_live_when_its_rules_are_checked_and_leaves_nothing_if_they_are_not(
    state: PipelineState, tmp_path: Path
) -> None:
    project, made = Project(tmp_path / "project"), version(tmp_path, 1)

    def begun() -> Edition:
        edition, lock = locked_live_edition(project, state, made, in_place=False, now_ms=1, is_unchecked=True)
        lock.release()
        assert state.live() is None
        assert state.source_file() == str(tmp_path / "enrich.py"), "a refusal names the author's file"
        return edition

    unmake_unchecked(state, begun())
    assert project.pipeline_names() == []
    begun()
    edition = begun()
    assert edition.name == "v1", "what a killed run has left is taken up"
    begin_checked(project, state, made, edition, 2)
    begin_checked(project, state, made, edition, 3)
    unmake_unchecked(state, edition)
    assert state.live() == Live("v1", (), {}, 2)


def test_an_edition_is_forgotten_unless_it_is_live(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    with pytest.raises(WrongState, match="is live"):
        state.forget("v1")
    state.swap("v2", position={}, now_ms=4)
    state.forget("v1")
    assert list(state.editions()) == ["v2"]
    live = state.live()
    assert live is not None
    assert live.before == ()
    with pytest.raises(NotFound):
        state.edition("v1")


def test_an_output_belongs_to_one_pipeline(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    project = Project(tmp_path / "project")
    made = version(tmp_path, 3)
    project.check_outputs_are_free(made)
    for kept, kind in (("latest", "table latest"), ("priced", "topic priced")):
        outputs = {name: each for name, each in made.outputs.items() if each.name == kept}
        with pytest.raises(WrongState, match=rf"py:\d+: the {kind} belongs to the pipeline enrich"):
            project.check_outputs_are_free(replace(made, name="other", outputs=outputs))
    with pytest.raises(NotFound, match="no live pipeline"):
        topic_name("unheard-of", project.directory)
    with pytest.raises(NotFound, match="no pipeline enrch"):
        project.known("enrch")


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2}', '{"format": 1}'])
def test_state_that_cannot_be_understood_is_not_guessed_at(state: PipelineState, tmp_path: Path, content: str) -> None:
    with_two_editions(state, tmp_path)
    (state.directory / "live.json").write_text(content)
    with pytest.raises(DamagedState, match=r"live\.json"):
        state.live()


# Interrupted anywhere

Act = Callable[[PipelineState, Path], Any]


def _swap(state: PipelineState, tmp_path: Path) -> Any:
    return state.swap("v2", position={"orders": {0: 7}}, now_ms=4)


def _swap_and_roll_back(state: PipelineState, tmp_path: Path) -> Any:
    _swap(state, tmp_path)
    return state.rollback(position={"orders": {0: 9}}, now_ms=5)


def _replay(state: PipelineState, tmp_path: Path) -> Any:
    return state.make_edition(version(tmp_path, 3), starting="earliest", now_ms=6, replayed=True)


def _take_over(state: PipelineState, tmp_path: Path) -> Any:
    return state.take_over(state.edition("v1"), version(tmp_path, 3))


def _forget(state: PipelineState, tmp_path: Path) -> Any:
    return state.forget("v2")


def seen(state: PipelineState, tmp_path: Path) -> tuple[object, ...]:
    """The state that readers and the next command see."""
    project = Project(tmp_path / "project")
    live = state.live()
    assert live is not None
    edition = state.edition(live.edition)
    assert state.definition(edition).exists()
    assert project.live_table("latest").path == state.table_directory(edition, "latest")
    assert topic_name("priced", project.directory) == edition.topics["priced"]
    return live, tuple(state.editions().values())


@pytest.mark.parametrize("act", [_swap, _swap_and_roll_back, _replay, _take_over, _forget])
def test_killed_before_any_operation_the_state_is_one_of_those_that_were_meant(
    state: PipelineState, tmp_path: Path, act: Act
) -> None:
    with_two_editions(state, tmp_path)
    meant = [seen(state, tmp_path)]
    if act is _swap_and_roll_back:
        _swap(state, tmp_path)
        meant.append(seen(state, tmp_path))
        state.files.replace(state.directory / "live.json", _first_live(meant))
    kept = _copy(state.directory)
    act(state, tmp_path)
    meant.append(seen(state, tmp_path))
    operation, was_killed = 0, True
    while was_killed:
        _restore(state.directory, kept)
        was_killed = False
        try:
            act(PipelineState(state.directory, StateFiles(StopBefore(operation))), tmp_path)
        except Killed:
            was_killed = True
        assert seen(state, tmp_path) in meant, f"killed before operation {operation}"
        if was_killed:
            # The same command once more finishes, whatever the killed one left behind.
            try:
                act(state, tmp_path)
            except (WrongState, NotFound):
                assert seen(state, tmp_path) in meant, "it had been done"
        operation += 1
    assert operation > 3, "the commands work on the disk in several operations"


def _first_live(meant: list[tuple[object, ...]]) -> dict[str, Any]:
    lives: list[Any] = [live for live, _ in meant]
    first = next(live for live in lives if live.edition == "v1")
    content: dict[str, Any] = first.to_json()
    return content


def _copy(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _restore(directory: Path, kept: dict[Path, bytes]) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
        else:
            path.rmdir()
    for name, content in kept.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)


def test_a_first_run_that_was_killed_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    made = version(tmp_path, 1)
    for operation in range(100):
        state = Project(tmp_path / f"project-{operation}").state("enrich")
        try:
            killed = PipelineState(state.directory, StateFiles(StopBefore(operation)))
            killed.begin(made, starting="earliest", now_ms=1)
        except Killed:
            if state.live() is None:
                state.begin(made, starting="earliest", now_ms=2)
            assert [state.live_edition().name] == list(state.editions()) == ["v1"]
        else:
            assert operation > 10
            return
    raise AssertionError("it never came to an end")


def test_a_run_that_is_refused_because_another_one_runs_changes_nothing(state: PipelineState, tmp_path: Path) -> None:
    """The other run restarts after a failure, and would go on with a definition that was refused."""
    project = Project(tmp_path / "project")
    made = version(tmp_path, 1)
    edition, lock = locked_live_edition(project, state, made, in_place=False, now_ms=0)
    kept = state.definition(edition).read_bytes()
    with pytest.raises(AlreadyRunning):
        locked_live_edition(project, state, version(tmp_path, 2), in_place=True, now_ms=1)
    (tmp_path / "enrich.py").write_text(FILE.format(version=1) + "# changed")
    changed = load_pipeline(tmp_path / "enrich.py")
    with pytest.raises(AlreadyRunning):
        locked_live_edition(project, state, changed, in_place=False, now_ms=1)
    assert (state.live_edition(), state.definition(edition).read_bytes()) == (edition, kept)
    lock.release()
    edition, lock = locked_live_edition(project, state, changed, in_place=False, now_ms=2)
    assert state.definition(edition).read_bytes() != kept
    lock.release()


def test_editions_are_in_the_order_in_which_they_were_made_whatever_the_clock_says(
    state: PipelineState, tmp_path: Path
) -> None:
    with_two_editions(state, tmp_path)
    made = state.make_edition(version(tmp_path, 1), starting="earliest", now_ms=2, replayed=True)
    assert list(state.editions()) == ["v1", "v2", "v1.2"]
    assert state.fresh_edition() == made


def test_effects_in_a_topic_that_was_made_again_are_counted_anew(state: PipelineState, tmp_path: Path) -> None:
    with_two_editions(state, tmp_path)
    state.note_inputs(state.edition("v1"), {"orders": "first", "clients": "c"})
    state.note_inputs(state.edition("v2"), {"orders": "second", "clients": "c"})
    position = {"orders": {0: 10}, "clients": {0: 4}, "unknown": {0: 1}}
    after = state.swap("v2", position=position, now_ms=4)
    assert after.effects_from == {"clients": {0: 4}, "unknown": {0: 1}}
    assert state.edition("v2").input_ids == {"orders": "second", "clients": "c"}


def test_a_first_run_that_was_interrupted_and_whose_key_changed_can_begin_anew(tmp_path: Path) -> None:
    directory = tmp_path / "project" / "enrich"

    def killed(operation: str, path: str) -> None:
        if path.endswith(f"/.live.json.{os.getpid()}"):
            raise Killed

    with pytest.raises(Killed):
        PipelineState(directory, StateFiles(killed)).begin(version(tmp_path, 1), starting="earliest", now_ms=1)
    state = PipelineState(directory)
    (tmp_path / "enrich.py").write_text(FILE.format(version=1).replace('"latest", key="id"', '"latest", key="other"'))
    with pytest.raises(WrongState, match="another key") as refused:
        state.begin(load_pipeline(tmp_path / "enrich.py"), starting="earliest", now_ms=2)
    assert "cordwood pipeline forget enrich v1" in refused.value.hint
    state.forget("v1")
    assert state.begin(load_pipeline(tmp_path / "enrich.py"), starting="earliest", now_ms=3).name == "v1"


def test_a_changed_file_is_the_edition_s_own_only_when_a_batch_went_through_it(
    state: PipelineState, tmp_path: Path
) -> None:
    state.begin(version(tmp_path, 1), starting="earliest", now_ms=1)
    before = state.edition("v1")
    kept = state.definition(before).read_text()
    project = Project(tmp_path / "project")
    told: list[str] = []

    def tell(event: Any) -> None:
        told.append(event.get("text", event["event"]))

    tried, lock = locked_live_edition(project, state, version(tmp_path, 3), in_place=True, now_ms=2)
    try:
        assert (tried.version, tried.is_trial) == (3, True)
        assert state.note_query(tried, "a query").version == 3
        adopting(state, tried, tell)({"event": "ended"})
        assert told[0].startswith("No batch went through the changed file: edition v1 keeps version 1")
        assert state.edition("v1") == replace(before, query_id="a query")
        adopting(state, tried, tell)({"event": "batch"})
    finally:
        lock.release()
    after = state.edition("v1")
    assert (after.version, after.definition_file, after.query_id) == (3, "definition-v3.py", "a query")
    assert "version=3" in state.definition(after).read_text()
    assert state.definition(before).read_text() == kept
    told.clear()
    adopting(state, tried, tell)({"event": "ended"})  # a worker that was started again
    assert told == ["ended"]


def test_an_edit_of_the_same_version_keeps_the_definition_before_it(state: PipelineState, tmp_path: Path) -> None:
    state.begin(version(tmp_path, 1), starting="earliest", now_ms=1)
    first = state.edition("v1")
    edited = FILE.format(version=1).replace("return orders", "return orders.distinct()")
    (tmp_path / "enrich.py").write_text(edited)
    state.take_over(first, load_pipeline(tmp_path / "enrich.py"))
    second = state.edition("v1")
    assert (first.definition_file, second.definition_file) == ("definition-v1.py", "definition-v1.2.py")
    assert state.definition(first).read_text() == FILE.format(version=1)
    assert state.definition(second).read_text() == edited
    assert state.take_over(second, version(tmp_path, 1)).definition_file == "definition-v1.py"


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ('"latest", key="other"', "another key, format or location"),
        ('"latest", key="id", partition_by="day"', "other partitions"),
    ],
)
def test_a_change_that_does_not_fit_leaves_nothing_behind(
    state: PipelineState, tmp_path: Path, other: str, what: str
) -> None:
    state.begin(version(tmp_path, 1), starting="earliest", now_ms=1)
    before = state.edition("v1")
    changed = FILE.format(version=2).replace('"latest", key="id"', other)
    (tmp_path / "enrich.py").write_text(changed)
    project = Project(tmp_path / "project")
    with pytest.raises(WrongState, match=f"the table latest has {what} than in edition v1"):
        locked_live_edition(project, state, load_pipeline(tmp_path / "enrich.py"), in_place=True, now_ms=2)
    assert state.edition("v1") == before
    files = sorted(path.name for path in state.edition_directory("v1").glob("*.py"))
    assert files == ["definition-v1.py"]
