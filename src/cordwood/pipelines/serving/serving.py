"""All pipelines that one Spark runs, and the worker process that has the Spark, as a state machine without I/O.

An event comes in with the time of a clock that only goes forward; effects come out, to be carried out in their order.
One worker runs all pipelines: when it dies all of them begin again in the next one. A file that does not load is told
once and left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cordwood.model.back_off import BackOff
from cordwood.model.state_tables import Moves, State
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.process.tries import given_up
from cordwood.pipelines.serving.served import AT_REST, IN_WORKER, Facts, Kept, Served, Stage

_LOADING_MS: Final = 120_000
"""How long a file may take to load before the worker is killed, because the file never comes to its end."""
_SILENCE_MS: Final = 300_000
"""How long a worker may say nothing. A function in C that never returns keeps all of the worker's threads from running,
and so all pipelines."""


class WorkerStage(State):
    """The worker process."""

    AWAITED = "awaited"
    """There is none: the next one is due."""
    SURVEYING = "surveying"
    """Loads the files to find the pipelines. Only the first worker that gets through does."""
    READY = "ready"
    ENDING = "ending"
    """All pipelines end after their batches."""
    KILLED = "killed"
    """It is about to be gone."""
    GONE = "gone"
    """There will be no other."""


WORKER_MOVES: Final = Moves(
    "serving worker",
    {
        WorkerStage.AWAITED: (WorkerStage.SURVEYING, WorkerStage.READY, WorkerStage.KILLED),
        WorkerStage.SURVEYING: (WorkerStage.AWAITED,),
        WorkerStage.READY: (WorkerStage.AWAITED, WorkerStage.SURVEYING),
        WorkerStage.ENDING: (WorkerStage.SURVEYING, WorkerStage.READY),
        WorkerStage.KILLED: (WorkerStage.SURVEYING, WorkerStage.READY, WorkerStage.ENDING),
        WorkerStage.GONE: (
            WorkerStage.AWAITED,
            WorkerStage.SURVEYING,
            WorkerStage.READY,
            WorkerStage.ENDING,
            WorkerStage.KILLED,
        ),
    },
)


_ALIVE: Final = (WorkerStage.SURVEYING, WorkerStage.READY, WorkerStage.ENDING)


class StartWorker(NamedTuple):
    """Start a worker; with files, it first finds the pipelines in these."""

    files: tuple[str, ...]


class EndWorker(NamedTuple):
    """All pipelines end after their batches, and the worker with them."""


class KillWorker(NamedTuple):
    """End the worker and Spark at once."""


class Begin(NamedTuple):
    """Have the worker run a pipeline. Without `kept`, from the author's file."""

    facts: Facts
    kept: Kept | None


class End(NamedTuple):
    """Have the worker end a pipeline after its batch."""

    pipeline: str


class Say(NamedTuple):
    """Tell an event, and note a failure."""

    event: Event


Effect = StartWorker | EndWorker | KillWorker | Begin | End | Say


class Serving:
    """Each method is an event, and returns what is to be done, in order."""

    def __init__(
        self,
        files: Iterable[str],
        *,
        once: bool,
        max_restarts: int,
        at_once: int,
        back_off: BackOff,
        stopped: Iterable[str] = (),
    ) -> None:
        """`at_once`: how many pipelines start at the same time. `stopped`: pipelines that a command has stopped."""
        self.pipelines: dict[str, Served] = {}
        self.wrong: dict[str, Event] = {}
        """The failure of each file that does not load."""
        self.worker = WorkerStage.AWAITED
        self.failure: Event | None = None
        """Why all was given up."""
        self._files = tuple(files)
        self._once = once
        self._max_restarts = max_restarts
        self._at_once = at_once
        self._stopped = set(stopped)
        self._back_off = back_off
        self._found: dict[str, Facts] = {}
        self._is_surveyed = False
        self._worker_due_ms = 0
        self._deaths = 0
        """Deaths of the worker since any pipeline has finished a batch."""
        self._heard_ms = 0
        self._loading: tuple[str, int] | None = None
        """What is being loaded, a file or a pipeline, since when."""
        self._blamed: Event | None = None
        """Why the worker was killed, and by which pipeline's fault."""
        self._is_closing = False

    @property
    def has_ended(self) -> bool:
        return self.worker is WorkerStage.GONE

    @property
    def has_found_nothing(self) -> bool:
        """True if the files load, and none of them declares a pipeline."""
        return self._is_surveyed and not self.pipelines and not self.wrong

    @property
    def succeeded(self) -> bool:
        """True if nothing was given up; with `once`, if each has read all or was stopped before."""
        stages = {served.stage for served in self.pipelines.values()}
        well = Stage.FAILED not in stages
        if self._once:
            well = self._is_surveyed and stages <= {Stage.DONE, Stage.STOPPED}
        return well and not self.wrong and self.failure is None

    # The time

    def tick(self, now_ms: int) -> list[Effect]:
        """Starts whatever is due."""
        if self.worker is WorkerStage.AWAITED and (self._is_closing or self._has_nothing_left()):
            self._move(WorkerStage.GONE)
            return []
        if self.worker is WorkerStage.AWAITED and now_ms >= self._worker_due_ms:
            self._move(WorkerStage.READY if self._is_surveyed else WorkerStage.SURVEYING)
            self._heard_ms = now_ms
            return [StartWorker(() if self._is_surveyed else self._left_files()), *self._begin_due(now_ms)]
        if self._loading is not None and now_ms - self._loading[1] > _LOADING_MS:
            return self._kill_for_loading(self._loading[0])
        if self.worker in _ALIVE and now_ms - self._heard_ms > _SILENCE_MS:
            self._move(WorkerStage.KILLED)
            return [KillWorker()]
        if self.worker is WorkerStage.READY and self._has_nothing_left():
            self._move(WorkerStage.ENDING)
            return [EndWorker()]
        return self._begin_due(now_ms)

    def _begin_due(self, now_ms: int) -> list[Effect]:
        if self.worker is not WorkerStage.READY:
            return []
        starting = sum(served.stage is Stage.STARTING for served in self.pipelines.values())
        effects: list[Effect] = []
        for served in self.pipelines.values():
            if starting >= self._at_once:
                break
            if served.stage is Stage.WAITING and now_ms >= served.due_ms and not self._waits_for_another(served):
                served.begun(now_ms)
                starting += 1
                effects.append(Begin(served.facts, served.kept))
        return effects

    def _waits_for_another(self, served: Served) -> bool:
        """True while a pipeline whose output it reads has not started; with `once`, while that is not done."""
        others = (self.pipelines[name] for name in served.facts.after if name in self.pipelines)
        if self._once:
            return any(other.stage not in AT_REST for other in others)
        return any(not other.has_started and other.stage not in AT_REST for other in others)

    def _has_nothing_left(self) -> bool:
        """True if no pipeline will run again by itself, and none waits for a command."""
        if not self._is_surveyed:
            return False
        stages = {served.stage for served in self.pipelines.values()}
        return stages <= set(AT_REST) and (self._once or Stage.STOPPED not in stages)

    # The worker

    def heard(self, event: Event, now_ms: int) -> list[Effect]:
        """An event of the worker."""
        self._heard_ms = now_ms
        match event["event"]:
            case "alive":
                pass
            case "loading":
                self._loading = (event.get("file") or event["pipeline"], now_ms)
            case "wrong":
                self._loading = None
                return self._leave_out(event)
            case "found":
                self._loading = None
                return self._find(event)
            case "surveyed":
                return self._surveyed(now_ms)
            case _:
                return self._heard_of(self.pipelines[event["pipeline"]], event, now_ms)
        return []

    def _heard_of(self, served: Served, event: Event, now_ms: int) -> list[Effect]:
        match event["event"]:
            case "loaded":
                self._has_loaded(served)
                served.loaded(Kept(event["edition"], event["tried_from"]), event["every_ms"])
            case "up":
                served.started()
            case "begun":
                served.batch_begun(event["batch"])
            case "batch":
                served.batch_done()
                self._deaths = 0
                return [Say(event)]
            case "ended":
                served.ended(now_ms, has_read_all=event["has_read_all"])
                return [Say(event)]
            case "failed":
                self._has_loaded(served)
                return [Say(served.failed(event, now_ms, is_final=event["is_final"]))]
            case "stuck":
                return self._kill({**event, "event": "failed"})
            case _:
                return [Say(event)]
        return []

    def _has_loaded(self, served: Served) -> None:
        if self._loading is not None and self._loading[0] == served.name:
            self._loading = None

    def worker_died(self, how: str, now_ms: int) -> list[Effect]:
        """The worker is gone; all that it left is gone, too."""
        loading, self._loading = self._loading, None
        blamed, self._blamed = self._blamed, None
        if self._is_closing or self.worker is WorkerStage.ENDING:
            self._move(WorkerStage.GONE)
            return []
        was_surveying = not self._is_surveyed
        self._move(WorkerStage.AWAITED)
        if was_surveying and loading is not None:
            why = "" if blamed is None else ": " + str(blamed["message"])
            return self._leave_out(_wrong(loading[0], f"the process ended while it loaded the file ({how}){why}"))
        effects: list[Effect] = []
        if blamed is None:
            self._deaths += 1
            if self._deaths > self._max_restarts:
                self.failure = _worker_failure(given_up(how, self._max_restarts))
                self._is_closing = True
                return [Say(self.failure)]
            pause_ms = self._back_off.pause_ms(self._deaths)
            self._worker_due_ms = now_ms + pause_ms
            effects.append(Say({**_worker_failure(how), "again_in_s": pause_ms / 1000}))
        for served in self.pipelines.values():
            is_blamed = blamed is not None and served.name == blamed["pipeline"]
            edition = "" if served.kept is None else served.kept.edition
            failure = blamed if is_blamed else {**_worker_failure(how), "pipeline": served.name, "edition": edition}
            assert failure is not None
            failed = served.worker_died(failure, now_ms, blamed=is_blamed)
            if failed is not None:
                effects.append(Say(failed))
        return effects

    def _kill(self, why: Event) -> list[Effect]:
        """Ends the worker because of one pipeline, which alone is charged with it."""
        if self.worker is WorkerStage.KILLED:
            return []
        self._blamed = why
        self._move(WorkerStage.KILLED)
        return [KillWorker()]

    def _kill_for_loading(self, what: str) -> list[Effect]:
        self._loading = (what, self._loading[1] if self._loading else 0)
        if self.worker is WorkerStage.KILLED:
            return []
        served = self.pipelines.get(what)
        message = f"the file does not come to its end within {_LOADING_MS // 1000} s"
        edition = "" if served is None or served.kept is None else served.kept.edition
        return self._kill({**_failed(message), "pipeline": what, "edition": edition})

    # The survey

    def _left_files(self) -> tuple[str, ...]:
        return tuple(file for file in self._files if file not in self.wrong)

    def _leave_out(self, wrong: Event) -> list[Effect]:
        self.wrong[wrong["file"]] = wrong
        return [Say(wrong)]

    def _find(self, event: Event) -> list[Effect]:
        facts = Facts(
            event["pipeline"], event["file"], frozenset(event["after"]), event["every_ms"], dict(event["spark"])
        )
        there = self._found.get(facts.name)
        if there is not None and there.file != facts.file:
            message = f"{facts.file} declares the pipeline {facts.name}, and so does {there.file}"
            return self._leave_out(_wrong(facts.file, message, "give one of the two another name"))
        self._found[facts.name] = facts
        return []

    def _surveyed(self, now_ms: int) -> list[Effect]:
        self._is_surveyed = True
        for name, facts in sorted(self._found.items()):
            served = Served(facts, once=self._once, max_restarts=self._max_restarts, back_off=self._back_off)
            served.due_ms = now_ms
            if name in self._stopped:
                served.stop()
            self.pipelines[name] = served
        self._move(WorkerStage.READY)
        return self._begin_due(now_ms)

    def spark_settings(self) -> dict[str, str]:
        """The settings of all pipelines that Spark takes only at its start: of two that differ, the first by name."""
        settings: dict[str, str] = {}
        for _, facts in sorted(self._found.items()):
            for name, value in facts.spark.items():
                if not name.startswith("spark.sql.") or name in _STATIC:
                    settings.setdefault(name, value)
        return settings

    # Commands

    def stop(self, name: str) -> list[Effect]:
        return [End(name)] if self.pipelines[name].stop() else []

    def start(self, name: str, now_ms: int) -> list[Effect]:
        self.pipelines[name].start(now_ms)
        return self._begin_due(now_ms)

    def reload(self, name: str, now_ms: int) -> list[Effect]:
        if self.pipelines[name].reload(now_ms):
            return [End(name)]
        return self._begin_due(now_ms)

    def close(self) -> list[Effect]:
        """All end after the batches under way, and the serving process with them."""
        if self._is_closing:
            return []
        self._is_closing = True
        if self.worker in (WorkerStage.SURVEYING, WorkerStage.READY):
            self._move(WorkerStage.ENDING)
            return [EndWorker()]
        return []

    # For commands and tables

    def is_stopped(self, name: str) -> bool:
        """True if a command has stopped it: it stays so when the serving process begins again."""
        return self.pipelines[name].stage is Stage.STOPPED

    def running(self) -> list[str]:
        return [served.name for served in self.pipelines.values() if served.stage in IN_WORKER]

    def _move(self, stage: WorkerStage) -> None:
        self.worker = WORKER_MOVES.moved("of all pipelines", self.worker, stage)


_STATIC: Final = ("spark.sql.extensions", "spark.sql.catalogImplementation", "spark.sql.warehouse.dir")
"""Settings of SQL that Spark takes only at its start. `spark.sql.catalog.*` may be set at any time."""


def _failed(message: str, hint: str = "", code: str = "FAILED") -> dict[str, Any]:
    return {"event": "failed", "code": code, "message": message, "hint": hint}


def _worker_failure(how: str) -> Mapping[str, Any]:
    return {**_failed(how, code="WORKER_DIED"), "pipeline": "all pipelines", "edition": ""}


def _wrong(file: str, message: str, hint: str = "") -> Mapping[str, Any]:
    return {**_failed(message, hint, "INVALID_DEFINITION"), "event": "wrong", "file": file}
