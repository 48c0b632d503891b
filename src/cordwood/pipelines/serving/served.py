"""One pipeline among those that one Spark runs, as a state machine: its tries, its pauses, its restarts.

Nothing here does anything: the supervisor brings events and the time, and carries out what `Serving` answers. Failures
in a row are counted; a finished batch resets the count. The death of the worker is no failure of a pipeline, unless the
pipeline had a batch under way at the last death, too, and has finished none since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cordwood.model.back_off import BackOff
from cordwood.model.state_tables import Moves, State
from cordwood.pipelines.editions.events import Event
from cordwood.pipelines.process.tries import Tries

_LOCKED_ELSEWHERE_MS: Final = 5_000
"""The pause before the next try where another process runs the edition. Such a try is no failure."""


class Stage(State):
    """Where a served pipeline is."""

    WAITING = "waiting"
    """For its time: the next try, its interval, the pipelines that it reads, or the worker."""
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    """After the batch under way, because a command asked for it."""
    STOPPED = "stopped"
    """By a command, until another command starts it."""
    DONE = "done"
    """Has read all that there was, and is not to run again."""
    FAILED = "failed"
    """Refused, or given up."""


STAGE_MOVES: Final = Moves(
    "served pipeline",
    {
        Stage.WAITING: (Stage.STARTING, Stage.RUNNING, Stage.ENDING, Stage.STOPPED, Stage.DONE, Stage.FAILED),
        Stage.STARTING: (Stage.WAITING,),
        Stage.RUNNING: (Stage.STARTING,),
        Stage.ENDING: (Stage.STARTING, Stage.RUNNING),
        Stage.STOPPED: (Stage.WAITING, Stage.ENDING, Stage.DONE, Stage.FAILED),
        Stage.DONE: (Stage.STARTING, Stage.RUNNING),
        Stage.FAILED: (Stage.STARTING, Stage.RUNNING),
    },
)
AT_REST: Final = (Stage.STOPPED, Stage.DONE, Stage.FAILED)
IN_WORKER: Final = (Stage.STARTING, Stage.RUNNING, Stage.ENDING)


@dataclass(frozen=True)
class Facts:
    """What the serving process knows of a definition."""

    name: str
    file: str
    after: frozenset[str] = frozenset()
    """Pipelines of the same directory whose outputs it reads: it starts after them."""
    every_ms: int | None = None
    """It reads all that there is at this interval, instead of all the time."""
    spark: Mapping[str, str] = field(default_factory=dict, hash=False)


class Kept(NamedTuple):
    """The definition that runs: a restart goes on with it, whatever has become of the author's file."""

    edition: str
    tried_from: str
    """The author's file, if the definition is on trial; else empty."""


class Served:
    """One pipeline. `stage` changes by the methods, each of which is one event."""

    def __init__(self, facts: Facts, *, once: bool, max_restarts: int, back_off: BackOff) -> None:
        self.facts = facts
        self.stage = Stage.WAITING
        self.due_ms = 0
        self.restarts = 0
        """How often it was started again after a failure, since the serving process began."""
        self.kept: Kept | None = None
        self.failure: Event | None = None
        """The failure since its last batch."""
        self.has_started = False
        self.in_batch: int | None = None
        self._once = once
        self._tries = Tries(max_restarts, back_off)
        self._is_suspect = False
        """A batch or the start was under way when the worker died, and none has been finished since."""
        self._began_ms = 0
        self._begins_again = False
        """In ENDING: a command wants it to begin anew."""

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def failures(self) -> int:
        """Failures since the last finished batch."""
        return self._tries.failures

    # What the serving process does

    def begun(self, now_ms: int) -> None:
        self._move(Stage.STARTING)
        self._began_ms = now_ms

    def worker_died(self, failure: Event, now_ms: int, *, blamed: bool) -> Event | None:
        """The worker is gone, with all that it ran. Returns this pipeline's failure if the death counts against it."""
        if self.stage not in IN_WORKER:
            return None
        if self.stage is Stage.ENDING:
            self._rest(now_ms)
            return None
        was_busy = self.stage is Stage.STARTING or self.in_batch is not None
        counts = blamed or (was_busy and self._is_suspect)
        self._is_suspect = was_busy
        if counts:
            return self.failed(failure, now_ms, is_final=False)
        self._wait_until(now_ms)
        self.restarts += 1
        return None

    # What the worker tells

    def loaded(self, kept: Kept, every_ms: int | None) -> None:
        self.kept = kept
        self.facts = Facts(self.name, self.facts.file, self.facts.after, every_ms, self.facts.spark)

    def started(self) -> None:
        if self.stage is Stage.STARTING:
            self.has_started = True
            self._move(Stage.RUNNING)

    def batch_begun(self, batch: int) -> None:
        self.in_batch = batch

    def batch_done(self) -> None:
        self.in_batch = None
        self._tries.succeeded()
        self.failure = None
        self._is_suspect = False

    def ended(self, now_ms: int, *, has_read_all: bool) -> None:
        """The query ended without a failure: it has read all, was stopped, or another edition became live."""
        self.in_batch = None
        self.has_started = True
        if has_read_all:
            self._tries.succeeded()
            self.failure = None
            self._is_suspect = False
        if self.stage is Stage.ENDING:
            self._rest(now_ms)
        elif has_read_all and self._once:
            self._move(Stage.DONE)
        elif has_read_all and self.facts.every_ms is not None:
            self._wait_until(max(now_ms, self._began_ms + self.facts.every_ms))
        else:
            self._wait_until(now_ms)
            self.kept = None

    def failed(self, failure: Event, now_ms: int, *, is_final: bool) -> Event:
        """The query failed. Returns the failure with what follows from it."""
        self.in_batch = None
        if self.stage is Stage.ENDING:
            self.failure = failure
            self._rest(now_ms)
            return failure
        if failure.get("code") == "ALREADY_RUNNING":
            self.failure = failure
            self._wait_until(now_ms + _LOCKED_ELSEWHERE_MS)
            self.kept = None
            return {**failure, "again_in_s": _LOCKED_ELSEWHERE_MS / 1000}
        pause_ms = self._tries.pause_ms(failure.get("code", ""))
        if is_final or pause_ms is None:
            message = failure["message"] if is_final else self._tries.given_up(failure["message"])
            self.failure = {**failure, "message": message}
            self._move(Stage.FAILED)
            return self.failure
        self.restarts += 1
        self._wait_until(now_ms + pause_ms)
        self.failure = failure
        return {**failure, "again_in_s": pause_ms / 1000}

    # What commands ask

    def stop(self) -> bool:
        """Returns True if the worker has to end its query."""
        self._begins_again = False
        if self.stage in (Stage.STARTING, Stage.RUNNING):
            self._move(Stage.ENDING)
            return True
        if self.stage not in (Stage.ENDING, Stage.STOPPED):
            self._move(Stage.STOPPED)
        return False

    def start(self, now_ms: int) -> None:
        """Begins anew with the author's file as it is now, unless it runs."""
        if self.stage is Stage.ENDING:
            self._begins_again = True
        elif self.stage in (*AT_REST, Stage.WAITING):
            self._afresh(now_ms)

    def reload(self, now_ms: int) -> bool:
        """Begins anew with the author's file as it is now. Returns True if the worker has to end its query first."""
        has_to_end = self.stage in (Stage.STARTING, Stage.RUNNING)
        if has_to_end:
            self._move(Stage.ENDING)
        self.start(now_ms)
        return has_to_end

    def _afresh(self, now_ms: int) -> None:
        self._tries.succeeded()
        self.failure = None
        self.kept = None
        self._is_suspect = False
        self._begins_again = False
        self._wait_until(now_ms)

    def _rest(self, now_ms: int) -> None:
        """The end of ENDING."""
        self.in_batch = None
        if self._begins_again:
            self._afresh(now_ms)
        else:
            self._move(Stage.STOPPED)

    def _wait_until(self, due_ms: int) -> None:
        self.in_batch = None
        self.due_ms = due_ms
        if self.stage is not Stage.WAITING:
            self._move(Stage.WAITING)

    def _move(self, stage: Stage) -> None:
        self.stage = STAGE_MOVES.moved(self.name, self.stage, stage)

    def as_json(self) -> dict[str, Any]:
        """For `state.json` of the serving process."""
        failure = self.failure
        return {
            "stage": self.stage.value,
            "file": self.facts.file,
            "edition": None if self.kept is None else self.kept.edition,
            "restarts": self.restarts,
            "failures": self.failures,
            "failure": None if failure is None else {name: failure[name] for name in ("code", "message", "hint")},
        }
