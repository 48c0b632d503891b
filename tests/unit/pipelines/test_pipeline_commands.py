"""`cordwood pipeline …` without Spark: lists, refusals, and the words of swap and rollback."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.cli.app import app
from cordwood.cli.pipeline.options import refusals
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.model.failure import ExitCode, Failure
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.checkpoint import effects_position, note_begun
from cordwood.pipelines.editions.control import Command, Serving
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.project import Project, table_path
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.editions.swapping import rollback
from cordwood.pipelines.execution.progress import SearchNews
from cordwood.pipelines.execution.topics import existing_topics

FILE = """
from cordwood.pipelines import pipeline, table, topic

@pipeline(
    version={version},
    inputs=topic("orders"),
    outputs={{
        "latest": table("latest", key="id"),
        "priced": topic("priced", key="id"),
        "mails": topic("mails", replayable=False),
    }},
)
def enrich(orders):
    return orders
"""

HOLD = """
import signal, sys, time
from pathlib import Path
from cordwood.pipelines.editions.run_lock import RunLock
RunLock(Path(sys.argv[1])).take("it", 5)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("held", flush=True)
time.sleep(600)
"""


class Commands:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.project = Project(directory / "project")
        self.state = self.project.state("enrich")
        self.file = directory / "enrich.py"
        # Port 1 of this machine, where no server listens.
        environment = {"CORDWOOD_PIPELINES": str(self.project.directory), "CORDWOOD_BOOTSTRAP": "127.0.0.1:1"}
        self._runner = CliRunner(env=environment)

    def run(self, *words: object) -> Result:
        return self._runner.invoke(app, ["pipeline", *map(str, words)])

    def __call__(self, *words: object) -> str:
        result = self.run(*words)
        assert result.exit_code == ExitCode.DONE, result.output
        return result.stdout

    def json(self, *words: object) -> Any:
        return json.loads(self(*words, "--json"))

    def error(self, *words: object) -> tuple[int, str, str]:
        result = self.run(*words, "--json")
        error = json.loads(result.stderr)["error"]
        return result.exit_code, error["code"], error["message"]

    def version(self, number: int) -> None:
        self.file.write_text(FILE.format(version=number))

    def with_two_editions(self) -> None:
        self.version(1)
        self.state.begin(load_pipeline(self.file), starting="earliest", now_ms=1_000)
        self.read_up_to("v1", {"orders": {"0": 12}})
        self.version(2)
        self.state.make_edition(load_pipeline(self.file), starting="earliest", now_ms=2_000, replayed=True)
        self.read_up_to("v2", {"orders": {"0": 10}})

    def read_up_to(self, edition: str, offset: dict[str, dict[str, int]]) -> None:
        """A checkpoint as Spark leaves it."""
        checkpoint = self.state.checkpoint(edition)
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / "offsets/3").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        (checkpoint / "commits/3").write_text("v1\n{}")
        (checkpoint / "commits/.3.crc").write_bytes(b"")


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_where_nothing_has_run_there_is_nothing(commands: Commands) -> None:
    assert commands.json("list") == []
    assert commands.error("status", "enrich")[:2] == (ExitCode.NOT_FOUND, "NOT_FOUND")
    code, _, message = commands.error("run", "nowhere.py")
    assert (code, message) == (ExitCode.NOT_FOUND, "nowhere.py cannot be read: no such file or directory")


def test_what_has_run_is_listed_with_its_editions(commands: Commands) -> None:
    commands.with_two_editions()
    (listed,) = commands.json("list")
    assert (listed["pipeline"], listed["live"], listed["version"], listed["running"]) == ("enrich", "v1", 1, [])
    assert (listed["tables"], listed["topics"]) == (["latest"], ["mails", "priced"])
    editions = commands.json("status", "enrich")["editions"]
    assert [(each["edition"], each["role"], each["running"]) for each in editions] == [
        ("v1", "live", False),
        ("v2", "fresh", False),
    ]
    text = commands("status", "enrich")
    assert "editions/v1/tables/latest" in text
    assert str(commands.file) in text
    assert "enrich" in commands("list")
    assert commands("list", "-q") == "enrich\n"


def test_a_wrong_file_is_told_with_its_line_and_a_broker_that_is_away_by_its_address(commands: Commands) -> None:
    commands.file.write_text("\n\nno_such_name\n")
    code, kind, message = commands.error("run", commands.file)
    assert (code, kind) == (ExitCode.FAILED, "INVALID_DEFINITION")
    assert message == f"{commands.file}:3: NameError: name 'no_such_name' is not defined"
    commands.version(1)
    assert commands.error("run", commands.file)[:2] == (ExitCode.NOT_REACHABLE, "BROKER_NOT_REACHABLE")
    assert commands.error("replay", commands.file, "--from", "whenever")[:2] == (ExitCode.USAGE, "USAGE")


def test_swap_and_rollback_lead_readers_to_the_other_edition_and_tell_what_they_get(commands: Commands) -> None:
    commands.with_two_editions()
    assert commands.error("swap", "enrich") == (
        ExitCode.FAILED,
        "WRONG_STATE",
        "edition v2 of enrich has not caught up yet",
    )
    commands.state.note_caught_up(commands.state.edition("v2"), now_ms=3_000)
    told = commands("swap", "enrich")
    assert "edition v2 (version 2) is live, v1 was before" in told
    assert "topic priced: nothing more is written to it" in told
    assert "New records go to priced.v2" in told
    assert "mails" not in told
    assert "priced.v2, which has all of them since the replay's beginning" in told
    assert told.endswith("Nothing runs now: `cordwood pipeline run enrich` goes on from where edition v2 stopped.\n")
    assert table_path("latest", commands.project.directory).parts[-3] == "v2"
    live = commands.state.live()
    assert live is not None
    assert live.effects_from == {"orders": {0: 12}}
    assert commands.error("swap", "enrich")[2] == "enrich has no edition beside the live one"

    kept = commands.state.directory / "live.json"
    swapped = kept.read_bytes()
    told = commands("rollback", "enrich")
    assert "New records go to priced, from where edition v1 stopped on." in told
    assert "replay" not in told
    kept.write_bytes(swapped)
    back = commands.json("rollback", "enrich")
    assert (back["before"], back["live"], back["records_behind"]) == ("v2", "v1", 0)
    assert back["topics"] == {"priced": {"before": "priced.v2", "now": "priced"}}
    assert table_path("latest", commands.project.directory).parts[-3] == "v1"
    assert commands.error("rollback", "enrich")[2] == "enrich has no swap to undo"


def test_a_swap_of_a_served_pipeline_tells_that_the_serving_process_goes_on(commands: Commands) -> None:
    commands.with_two_editions()
    serving = Serving(commands.project.directory)
    commands.project.files.make_directory(serving.directory)
    held = RunLock(serving.lock)
    held.take("all pipelines", 5)
    serving.report({"enrich": {"stage": "waiting", "restarts": 0, "edition": "v1", "failure": None}})
    told = commands("swap", "enrich", "--force")
    assert told.endswith("`cordwood pipeline serve` goes on from where edition v2 stopped.\n")
    assert [request.command for request in serving.requests()] == [Command.START]
    assert commands.json("rollback", "enrich")["running"] is True
    serving.report({"enrich": {"stage": "stopped", "restarts": 0, "edition": "v1", "failure": None}})
    assert "Nothing runs now: `cordwood pipeline start enrich` goes on" in commands("swap", "enrich", "--force")
    held.release()


def test_a_requeue_of_what_is_served_names_the_commands_before_and_after_it(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.administration.connection.reach", lambda bootstrap: None)
    commands.with_two_editions()
    serving = Serving(commands.project.directory)
    commands.project.files.make_directory(serving.directory)
    held = RunLock(serving.lock)
    held.take("all pipelines", 5)
    serving.report({"enrich": {"stage": "running", "restarts": 0, "edition": "v1", "failure": None}})
    result = commands.run("requeue", "enrich")
    held.release()
    assert "`cordwood pipeline serve` runs enrich" in result.stderr
    hint = "`cordwood pipeline stop enrich` ends it after its batch; `cordwood pipeline start enrich` afterwards"
    assert hint in result.stderr


def test_list_and_status_show_a_search_for_poison_records_while_the_edition_runs(commands: Commands) -> None:
    commands.with_two_editions()
    SearchNews(commands.state, "v1", {}, lambda event: None)(3, "looking among 9 records")
    assert commands.json("list")[0]["search"] is None, "the note of a run that was killed"
    lock = RunLock(commands.state.edition_directory("v1") / "running")
    lock.take("it", 5)
    assert commands.json("list")[0]["search"] == "batch 3 failed: looking among 9 records"
    assert "looking among 9 records" in commands("list")
    assert ", batch 3 failed: looking among 9 records" in commands("status", "enrich")
    lock.release()


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a directory, with its bytes and the time of its last change."""
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def test_a_dry_run_of_swap_and_rollback_tells_what_they_would_do_and_changes_nothing(commands: Commands) -> None:
    commands.with_two_editions()
    before = files(commands.project.directory)
    assert commands.error("swap", "enrich", "--dry-run")[2] == "edition v2 of enrich has not caught up yet"
    assert commands.error("rollback", "enrich", "--dry-run")[2] == "enrich has no swap to undo"
    result = commands.run("swap", "enrich", "--force", "--dry-run")
    assert result.exit_code == ExitCode.DONE
    assert "enrich: edition v2 (version 2) would be live instead of v1\n" in result.stdout
    assert "table latest: whoever asks for it by name would get " in result.stdout
    assert "topic priced: nothing more would be written to it" in result.stdout
    assert "It would have 2 records to read that v1 has read already." in result.stdout
    assert result.stderr == "Dry run: nothing was changed.\n"
    told = commands.json("swap", "enrich", "--force", "--dry-run")
    assert files(commands.project.directory) == before
    assert told == {**commands.json("swap", "enrich", "--force"), "dry_run": True}

    before = files(commands.project.directory)
    assert "edition v1 (version 1) would be live instead of v2" in commands("rollback", "enrich", "--dry-run")
    told = commands.json("rollback", "enrich", "--dry-run")
    assert files(commands.project.directory) == before
    assert told == {**commands.json("rollback", "enrich"), "dry_run": True}


def test_a_dry_run_refuses_what_the_swap_would_refuse(commands: Commands) -> None:
    commands.with_two_editions()
    assert commands.error("swap", "enrich", "--edition", "v1", "--force")[2] == "edition v1 of enrich is live already"
    commands.read_up_to("v2", {"orders": {"0": 15}})
    before = files(commands.project.directory)
    dry, real = (commands.error("swap", "enrich", "--force", *words) for words in (["--dry-run"], []))
    assert dry == real
    assert "never reach mails: orders/0: 12 to 15" in dry[2]
    assert files(commands.project.directory).items() >= before.items()
    note_begun(commands.state, "v1", 4)
    commands.state.swap("v2", position={}, now_ms=4_000)
    note_begun(commands.state, "v2", 4)
    assert "interrupted within batch 4" in commands.error("rollback", "enrich", "--dry-run")[2]


def test_an_edition_that_is_ahead_is_not_swapped_in_over_lost_effects(commands: Commands) -> None:
    commands.with_two_editions()
    commands.read_up_to("v2", {"orders": {"0": 15}})
    code, kind, message = commands.error("swap", "enrich", "--force")
    assert (code, kind) == (ExitCode.FAILED, "WRONG_STATE")
    assert "never reach mails: orders/0: 12 to 15" in message
    assert commands.json("swap", "enrich", "--force", "--skip-effects")["live"] == "v2"


def test_effects_of_a_batch_that_was_interrupted_are_not_repeated_by_another_edition(commands: Commands) -> None:
    commands.with_two_editions()
    planned = commands.state.checkpoint("v1") / "offsets/4"
    planned.write_text('v1\n{}\n{"orders": {"0": 17}}')
    # Batch 4 is planned and has written nothing so far: the other edition may take it.
    note_begun(commands.state, "v1", 3)
    assert effects_position(commands.state, "v1", skip=False) == {"orders": {0: 12}}
    note_begun(commands.state, "v1", 4)
    code, kind, message = commands.error("swap", "enrich", "--force")
    assert (code, kind) == (ExitCode.FAILED, "WRONG_STATE")
    assert "edition v1 of enrich was interrupted within batch 4" in message
    commands("swap", "enrich", "--force", "--skip-effects")
    live = commands.state.live()
    assert live is not None
    assert (live.edition, live.effects_from) == ("v2", {"orders": {0: 17}})

    note_begun(commands.state, "v2", 4)
    assert "interrupted within batch 4" in commands.error("rollback", "enrich")[2]
    (commands.state.checkpoint("v2") / "offsets/4").write_text('v1\n{}\n{"orders": {"0": 18}}')
    (commands.state.checkpoint("v2") / "commits/4").write_text("v1\n{}")
    commands("rollback", "enrich")
    live = commands.state.live()
    assert live is not None
    assert (live.edition, live.effects_from) == ("v1", {"orders": {0: 18}})


class Overtaken(PipelineState):
    """Another process rolls back just before this one may change something."""

    done = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        with super().changing():
            if not self.done:
                self.done = True
                self.rollback(position={}, now_ms=5_000)
            yield


def test_of_two_rollbacks_at_once_the_second_undoes_the_swap_before(commands: Commands) -> None:
    commands.with_two_editions()
    commands.version(3)
    commands.state.make_edition(load_pipeline(commands.file), starting="earliest", now_ms=3_000, replayed=True)
    for edition in ("v2", "v3"):
        commands.state.swap(edition, position={}, now_ms=4_000)
    commands.read_up_to("v2", {"orders": {"0": 20}})
    done = rollback(Overtaken(commands.state.directory), timeout_s=1)
    live = commands.state.live()
    assert live is not None
    assert (done.before.name, done.now.name, live.edition) == ("v2", "v1", "v1")
    assert live.effects_from == {"orders": {0: 20}}, "what v2 has read, not v3"


def test_what_runs_is_stopped_before_a_swap_or_when_asked_to(commands: Commands) -> None:
    commands.with_two_editions()
    lock = commands.state.edition_directory("v1") / "running"
    assert commands.error("stop", "enrich")[1] == "NOT_RUNNING"
    for stop in (("stop", "enrich"), ("swap", "enrich", "--force")):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert commands.json("list")[0]["running"] == ["v1"]
        assert commands.error("forget", "enrich", "v1", "--yes")[1] == "ALREADY_RUNNING"
        dry = commands.run("swap", "enrich", "--force", "--dry-run")
        assert f"edition v1 runs and would be stopped (process {process.pid})" in dry.stdout
        assert "judged when both have stopped" in dry.stderr
        assert process.poll() is None
        told = commands(*stop)
        assert f"(process {process.pid})" in told
        assert process.wait(60) == 0
        process.stdout.close()


def test_an_edition_is_forgotten_with_its_tables_and_its_topic_is_named(commands: Commands) -> None:
    commands.with_two_editions()
    assert commands.error("forget", "enrich", "v1", "--yes")[2] == "edition v1 of enrich is live"
    assert "topic priced.v2 is still there" in commands("forget", "enrich", "v2", "--yes")
    assert not commands.state.edition_directory("v2").exists()
    assert commands.error("forget", "enrich", "v2", "--yes")[0] == ExitCode.NOT_FOUND
    told = json.loads(commands.run("forget", "enrich", "v1", "--yes", "--json").stderr)["error"]
    assert f"`rm -r {commands.state.directory}`" in told["hint"]


def test_the_edition_that_was_live_before_comes_back_by_a_rollback(commands: Commands) -> None:
    commands.with_two_editions()
    commands("swap", "enrich", "--force")
    result = commands.run("swap", "enrich", "--edition", "v1")
    assert "edition v1 of enrich was live before v2" in result.stderr
    assert "`cordwood pipeline rollback enrich` makes it live again" in result.stderr


def test_an_edition_beside_one_whose_topic_was_made_again_is_swapped_in_only_over_its_effects(
    commands: Commands,
) -> None:
    commands.with_two_editions()
    commands.state.note_inputs(commands.state.edition("v1"), {"orders": "first"})
    commands.state.note_inputs(commands.state.edition("v2"), {"orders": "second"})
    result = commands.run("swap", "enrich", "--force")
    assert "would never reach mails: orders/0: 0 to 10" in result.stderr
    assert "orders was deleted and made again, and v1 cannot read it; --skip-effects swaps" in result.stderr
    commands("swap", "enrich", "--force", "--skip-effects")
    live = commands.state.live()
    assert live is not None
    assert live.effects_from == {}


def test_a_file_that_is_no_text_is_damaged(commands: Commands) -> None:
    commands.with_two_editions()
    (commands.state.directory / "live.json").write_bytes(b"\xff\xfe")
    code, name, message = commands.error("status", "enrich")
    assert (code, name) == (ExitCode.FAILED, "DAMAGED_STATE")
    assert "live.json is not JSON: 'utf-8' codec" in message


def test_a_directory_that_cannot_be_looked_into_is_told_of(commands: Commands) -> None:
    directory = commands.directory / ("too-long-" * 100)
    assert commands.error("list", "--directory", directory)[1:] == (
        "NOT_ACCESSIBLE",
        f"{directory}: File name too long",
    )


def test_brokers_that_are_lost_in_the_middle_of_a_command_end_it_with_words() -> None:
    def ask_as_pipelines_do() -> None:
        with Cluster(ClientSettings("127.0.0.1:1", retry_timeout_ms=100)) as cluster:
            cluster.topics(["orders"])

    for ask in (lambda: existing_topics(Bootstrap("127.0.0.1:1"), timeout_s=0.1), ask_as_pipelines_do):
        with pytest.raises(Failure, match="the brokers were lost on the way: ") as caught, refusals():
            ask()
        assert caught.value.exit_code is ExitCode.NOT_REACHABLE
        assert "the same command goes on where it was" in caught.value.hint
