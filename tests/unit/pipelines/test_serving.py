"""The pipelines of one Spark and its worker as a state machine: events and a given time in, effects out."""

from collections.abc import Sequence
from typing import Any

from cordwood.model.back_off import BackOff
from cordwood.pipelines.serving.served import Kept, Stage
from cordwood.pipelines.serving.serving import (
    Begin,
    Effect,
    End,
    EndWorker,
    KillWorker,
    Say,
    Serving,
    StartWorker,
    WorkerStage,
)

HOUR_MS = 3_600_000
FAILED = {"event": "failed", "code": "FAILED", "message": "it broke", "hint": "", "edition": "v1", "is_final": False}


class Stand:
    """A machine, its time, and what it has said."""

    def __init__(self, *names: str, once: bool = False, max_restarts: int = 3, **options: Any) -> None:
        self.now_ms = 1_000_000
        self.said: list[dict[str, Any]] = []
        files = [f"{name}.py" for name in names]
        back_off = BackOff(1_000, 8_000)
        self.serving = Serving(files, once=once, max_restarts=max_restarts, at_once=9, back_off=back_off, **options)

    def do(self, effects: Sequence[Effect]) -> list[Effect]:
        self.said += [dict(effect.event) for effect in effects if isinstance(effect, Say)]
        return [effect for effect in effects if not isinstance(effect, Say)]

    def after(self, pause_ms: int) -> list[Effect]:
        self.now_ms += pause_ms
        return self.do(self.serving.tick(self.now_ms))

    def hear(self, kind: str, pipeline: str = "", **fields: Any) -> list[Effect]:
        return self.do(self.serving.heard({"event": kind, "pipeline": pipeline, **fields}, self.now_ms))

    def find(self, name: str, after: Sequence[str] = (), every_ms: int | None = None) -> None:
        self.hear("found", name, file=f"{name}.py", after=list(after), every_ms=every_ms, spark={})

    def up(self, name: str, every_ms: int | None = None) -> None:
        self.hear("loading", name)
        self.hear("loaded", name, edition="v1", tried_from="", every_ms=every_ms)
        self.hear("up", name)

    def batch(self, name: str, number: int = 0) -> None:
        self.hear("begun", name, batch=number)
        self.hear("batch", name, edition="v1", batch=number)

    def fail(self, name: str, **fields: Any) -> list[Effect]:
        return self.do(self.serving.heard({**FAILED, "pipeline": name, **fields}, self.now_ms))

    def die(self) -> list[Effect]:
        return self.do(self.serving.worker_died("the worker was ended by signal 9", self.now_ms))

    def stage(self, name: str) -> Stage:
        return self.serving.pipelines[name].stage


def running(*names: str, **options: Any) -> Stand:
    """A machine whose pipelines all run."""
    stand = Stand(*names, **options)
    stand.after(0)
    for name in names:
        stand.find(name)
    stand.hear("surveyed")
    for name in names:
        stand.up(name)
    return stand


def begun(effects: Sequence[Effect]) -> list[str]:
    return [effect.facts.name for effect in effects if isinstance(effect, Begin)]


def test_the_pipelines_of_all_files_begin_after_the_survey() -> None:
    stand = Stand("a", "b")
    assert stand.after(0) == [StartWorker(("a.py", "b.py"))]
    stand.find("b")
    stand.find("a")
    assert begun(stand.hear("surveyed")) == ["a", "b"]


def test_a_failed_pipeline_begins_again_after_growing_pauses_and_the_others_run_on() -> None:
    stand = running("a", "b")
    for pause_ms in (1_000, 2_000, 4_000):
        stand.fail("a")
        assert stand.said[-1]["again_in_s"] == pause_ms / 1000
        assert stand.after(pause_ms - 1) == []
        (again,) = stand.after(1)
        assert again == Begin(stand.serving.pipelines["a"].facts, Kept("v1", "")), "with the definition that ran"
        stand.up("a")
    stand.fail("a")
    assert stand.said[-1]["message"] == "it broke (given up after 3 restarts in a row)"
    assert (stand.stage("a"), stand.stage("b"), stand.after(HOUR_MS // 60)) == (Stage.FAILED, Stage.RUNNING, [])
    assert (stand.serving.pipelines["a"].restarts, stand.serving.succeeded) == (3, False)


def test_a_finished_batch_begins_the_count_anew() -> None:
    stand = running("a", max_restarts=1)
    for number in range(5):
        stand.batch("a", number)
        stand.fail("a")
        assert begun(stand.after(1_000)) == ["a"]
        stand.up("a")


def test_a_batch_over_its_deadline_is_tried_once_more_and_other_failures_between_do_not_count() -> None:
    stand = running("a", max_restarts=9)
    for code in ("BATCH_OVERDUE", "FAILED", "FAILED"):
        stand.fail("a", code=code)
        assert begun(stand.after(8_000)) == ["a"]
        stand.up("a")
    stand.fail("a", code="BATCH_OVERDUE")
    assert stand.said[-1]["message"] == "it broke (given up after 3 restarts in a row)"
    assert stand.stage("a") is Stage.FAILED


def test_a_refusal_is_not_tried_again_until_somebody_starts_it() -> None:
    stand = running("a", "b")
    stand.fail("a", code="OVER_BUDGET", is_final=True)
    assert (stand.stage("a"), stand.after(HOUR_MS // 60)) == (Stage.FAILED, [])
    assert begun(stand.do(stand.serving.start("a", stand.now_ms))) == ["a"]


def test_an_edition_that_another_process_runs_is_waited_for_without_counting() -> None:
    stand = running("a", max_restarts=0)
    for _ in range(5):
        stand.fail("a", code="ALREADY_RUNNING", is_final=True)
        assert begun(stand.after(5_000)) == ["a"]


def test_the_death_of_the_worker_begins_all_again_and_counts_against_nobody() -> None:
    stand = running("a", "b", max_restarts=1)
    stand.hear("begun", "a", batch=7)
    stand.die()
    assert stand.said[-1]["message"] == "the worker was ended by signal 9"
    assert stand.after(999) == []
    assert stand.after(1)[0] == StartWorker(()), "definitions are known"
    assert [served.failures for served in stand.serving.pipelines.values()] == [0, 0]
    assert [stand.stage(name) for name in "ab"] == [Stage.STARTING] * 2


def test_a_pipeline_that_is_in_a_batch_at_every_death_is_charged_and_pauses_while_others_run() -> None:
    stand = running("a", "b")
    for death in range(3):
        stand.hear("begun", "a", batch=7)
        stand.batch("b", death)
        stand.die()
        assert stand.serving.pipelines["a"].failures == death
        stand.after(8_000)
        for name in ("a", "b"):
            if stand.stage(name) is Stage.STARTING:
                stand.up(name)
    assert stand.serving.pipelines["b"].failures == 0


def test_deaths_in_a_row_without_a_batch_of_anybody_end_everything() -> None:
    stand = running("a", max_restarts=2)
    for _ in range(2):
        stand.die()
        stand.after(8_000)
    stand.die()
    assert stand.said[-1]["message"] == "the worker was ended by signal 9 (given up after 2 restarts in a row)"
    stand.after(0)
    assert (stand.serving.has_ended, stand.serving.succeeded) == (True, False)


def test_a_function_that_cannot_be_interrupted_costs_the_others_a_restart_and_no_failure() -> None:
    stand = running("a", "b")
    stand.hear("begun", "b", batch=1)
    stuck = {**FAILED, "event": "stuck", "message": "batch 3 does not end"}
    assert stand.do(stand.serving.heard({**stuck, "pipeline": "a"}, stand.now_ms)) == [KillWorker()]
    stand.die()
    assert [stand.said[-1][name] for name in ("pipeline", "message", "again_in_s")] == ["a", stuck["message"], 1.0]
    assert begun(stand.after(0)) == ["b"], "the others do not wait for the pause of the one that failed"
    assert begun(stand.after(1_000)) == ["a"]


def test_a_worker_that_says_nothing_for_minutes_is_ended() -> None:
    stand = running("a")
    for _ in range(10):
        stand.hear("alive")
        assert stand.after(60_000) == []
    assert stand.after(300_000) == [KillWorker()]
    stand.die()
    assert stand.serving.worker is WorkerStage.AWAITED


def test_a_file_that_does_not_load_is_told_and_the_others_run() -> None:
    stand = Stand("a", "b")
    stand.after(0)
    stand.find("a")
    stand.hear("wrong", file="b.py", code="INVALID_DEFINITION", message="b.py:3: invalid syntax", hint="")
    assert begun(stand.hear("surveyed")) == ["a"]
    assert [event["message"] for event in stand.said] == ["b.py:3: invalid syntax"]
    assert not stand.serving.succeeded


def test_a_file_that_ends_or_holds_up_the_process_is_left_out() -> None:
    stand = Stand("a", "b", "c")
    stand.after(0)
    stand.hear("loading", file="a.py")
    stand.die()
    assert "while it loaded the file" in stand.said[-1]["message"]
    assert stand.after(0) == [StartWorker(("b.py", "c.py"))]
    stand.hear("loading", file="b.py")
    assert stand.after(60_000) == []
    assert stand.after(60_001) == [KillWorker()]
    stand.die()
    assert stand.after(0) == [StartWorker(("c.py",))]
    stand.find("c")
    assert begun(stand.hear("surveyed")) == ["c"]


def test_files_without_a_pipeline_are_nothing_to_serve() -> None:
    stand = Stand("helper")
    stand.after(0)
    stand.hear("loading", file="helper.py")
    stand.hear("surveyed")
    assert stand.serving.has_found_nothing
    assert stand.after(1) == [EndWorker()]


def test_of_two_files_with_one_name_the_second_is_left_out() -> None:
    stand = Stand("a", "b")
    stand.after(0)
    stand.find("a")
    stand.hear("found", "a", file="b.py", after=[], every_ms=None, spark={})
    assert stand.said[-1]["message"] == "b.py declares the pipeline a, and so does a.py"
    assert begun(stand.hear("surveyed")) == ["a"]


def test_a_pipeline_with_an_interval_reads_all_at_that_interval() -> None:
    stand = Stand("a")
    stand.after(0)
    stand.find("a", every_ms=HOUR_MS)
    stand.hear("surveyed")
    for _ in range(3):
        stand.up("a", every_ms=HOUR_MS)
        stand.now_ms += 60_000
        stand.hear("ended", "a", edition="v1", has_read_all=True)
        for _ in range(58):
            stand.hear("alive")
            assert stand.after(60_000) == []
        stand.hear("alive")
        (again,) = stand.after(60_000)
        assert again == Begin(stand.serving.pipelines["a"].facts, Kept("v1", "")), "an hour after the one before"


def test_with_once_a_reader_begins_when_what_it_reads_is_done_and_then_all_ends() -> None:
    stand = Stand("a", "b", once=True)
    stand.after(0)
    stand.find("a", after=["b", "elsewhere"])
    stand.find("b")
    assert begun(stand.hear("surveyed")) == ["b"]
    stand.up("b")
    assert stand.after(1) == []
    stand.hear("ended", "b", edition="v1", has_read_all=True)
    assert begun(stand.after(1)) == ["a"]
    stand.up("a")
    stand.fail("a", is_final=True)
    assert stand.after(1) == [EndWorker()]
    stand.die()
    assert (stand.serving.has_ended, stand.serving.succeeded) == (True, False)
    assert (stand.stage("a"), stand.stage("b")) == (Stage.FAILED, Stage.DONE)


def test_an_interrupted_run_of_once_has_not_succeeded() -> None:
    stand = running("a", once=True)
    assert stand.do(stand.serving.close()) == [EndWorker()]
    stand.hear("ended", "a", edition="v1", has_read_all=False)
    stand.die()
    assert (stand.serving.has_ended, stand.serving.succeeded) == (True, False)


def test_a_command_stops_one_which_stays_stopped_also_in_the_next_process() -> None:
    stand = running("a", "b")
    assert stand.do(stand.serving.stop("a")) == [End("a")]
    stand.hear("ended", "a", edition="v1", has_read_all=False)
    assert (stand.stage("a"), stand.stage("b"), stand.after(60_000)) == (Stage.STOPPED, Stage.RUNNING, [])
    again = running("b", stopped=["b"])
    assert (again.stage("b"), again.after(60_000)) == (Stage.STOPPED, []), "it waits for a command"
    assert begun(again.do(again.serving.start("b", again.now_ms))) == ["b"]


def test_a_pipeline_that_waits_for_its_next_try_is_stopped_at_once() -> None:
    stand = running("a", "b")
    stand.fail("a")
    assert stand.do(stand.serving.stop("a")) == []
    assert (stand.stage("a"), stand.after(60_000)) == (Stage.STOPPED, [])


def test_a_reload_ends_the_query_and_begins_it_with_the_file() -> None:
    stand = running("a")
    assert stand.do(stand.serving.reload("a", stand.now_ms)) == [End("a")]
    assert stand.stage("a") is Stage.ENDING
    stand.hear("ended", "a", edition="v1", has_read_all=False)
    (again,) = stand.after(1)
    assert again == Begin(stand.serving.pipelines["a"].facts, None)


def test_a_worker_that_dies_while_one_ends_leaves_that_one_stopped() -> None:
    stand = running("a", "b")
    stand.do(stand.serving.stop("a"))
    stand.die()
    assert begun(stand.after(1_000)) == ["b"]
    assert stand.stage("a") is Stage.STOPPED


def test_all_end_after_their_batches_and_begin_again_in_the_next_process() -> None:
    stand = running("a")
    assert stand.do(stand.serving.close()) == [EndWorker()]
    assert stand.do(stand.serving.close()) == []
    stand.batch("a")
    stand.hear("ended", "a", edition="v1", has_read_all=False)
    assert stand.after(60_000) == []
    stand.die()
    assert (stand.serving.has_ended, stand.serving.succeeded) == (True, True)
    assert stand.stage("a") is not Stage.STOPPED


def test_when_every_pipeline_was_given_up_the_process_ends() -> None:
    stand = running("a")
    stand.fail("a", is_final=True)
    assert stand.after(1) == [EndWorker()]
    stand.die()
    assert (stand.serving.has_ended, stand.serving.succeeded) == (True, False)


def test_a_changed_live_edition_begins_with_the_file_again() -> None:
    stand = running("a")
    stand.hear("ended", "a", edition="v1", has_read_all=False)
    (again,) = stand.after(1)
    assert again == Begin(stand.serving.pipelines["a"].facts, None)


def test_only_so_many_start_at_the_same_time() -> None:
    stand = Stand("a", "b", "c")
    stand.serving._at_once = 2
    stand.after(0)
    for name in "abc":
        stand.find(name)
    assert begun(stand.hear("surveyed")) == ["a", "b"]
    stand.up("b")
    assert begun(stand.after(1)) == ["c"]
