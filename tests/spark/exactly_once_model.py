"""The sink's protocol as a small world that can be searched exhaustively: drivers, tasks, a coordinator, and
everything that may happen to them in any order.

The decisions are the sink's own (`judge`, `decision_of`); the coordinator is a plain twin of the real one's rules. In
this world tasks fail politely or just die, finished attempts are repeated, a driver dies between any two steps or goes
on as a zombie beside its successor, answers get lost after the request was obeyed, transactions time out, and a
repeated micro-batch computes something else. A state is a value; `steps` gives all that can happen next.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from cordwood.spark.sink.options import Guarantee, OlderBatches
from cordwood.spark.sink.protocol import NO_BATCH, OlderBatch, Slot, TaskReport, Verdict, decision_of, judge

FAMILY = "query"


class SlotState(Enum):
    FREE = "free"
    JOINED = "joined"
    OPEN = "open"


class ModelSlot(NamedTuple):
    state: SlotState
    epoch: int
    batch: int
    content: str


class Coordinator(NamedTuple):
    """The broker's memory: slots, the last decided batch, and the visible records."""

    slots: tuple[ModelSlot, ...] = ()
    last_batch: int = NO_BATCH
    visible: tuple[tuple[int, str], ...] = ()
    """(batch, content), in the order of becoming visible."""

    def join(self, batch: int) -> tuple["Coordinator", Slot | None]:
        if batch <= self.last_batch:
            return self, None
        number = next((n for n, slot in enumerate(self.slots) if slot.state is SlotState.FREE), len(self.slots))
        epoch = self.slots[number].epoch + 1 if number < len(self.slots) else 0
        joined = ModelSlot(SlotState.JOINED, epoch, batch, "")
        return self._with(number, joined), Slot(f"slot/{number}", number, epoch)

    def produce(self, slot: Slot, content: str) -> "Coordinator | None":
        """None if the slot is fenced."""
        held = self.slots[slot.producer_id]
        if held.epoch != slot.producer_epoch or held.state is SlotState.FREE:
            return None
        return self._with(slot.producer_id, held._replace(state=SlotState.OPEN, content=content))

    def end(self, number: int) -> "Coordinator":
        """Aborts a slot, as its task or a timeout does."""
        held = self.slots[number]
        return self._with(number, ModelSlot(SlotState.FREE, held.epoch + 1, NO_BATCH, ""))

    def decide(self, batch: int, winners: tuple[Slot, ...], *, commit: bool) -> "Coordinator | None":
        """None if the decision is refused."""
        decided = batch <= self.last_batch
        chosen: dict[int, ModelSlot] = {}
        if commit and not decided:
            for winner in winners:
                held = self.slots[winner.producer_id]
                if held.epoch != winner.producer_epoch or held.state is SlotState.FREE:
                    return None
                chosen[winner.producer_id] = held
        visible = self.visible + tuple(
            (batch, held.content) for held in chosen.values() if held.state is SlotState.OPEN
        )
        slots = tuple(
            ModelSlot(SlotState.FREE, held.epoch + 1, NO_BATCH, "")
            if held.state is not SlotState.FREE and held.batch <= batch
            else held
            for held in self.slots
        )
        return Coordinator(slots, batch if commit and not decided else self.last_batch, visible)

    def _with(self, number: int, slot: ModelSlot) -> "Coordinator":
        return self._replace(slots=(*self.slots[:number], slot, *self.slots[number + 1 :]))


BEFORE_JOIN = "before join"
JOINED = "joined"
PRODUCED = "produced"
SKIPPED = "skipped"
"""How far an attempt of a task is."""


class Attempt(NamedTuple):
    """An attempt of one task, in one run of one batch. It may live on when its driver is gone."""

    run: int
    batch: int
    task: int
    at: str = BEFORE_JOIN
    slot: Slot | None = None

    @property
    def content(self) -> str:
        return f"run {self.run} task {self.task}"

    def __str__(self) -> str:
        return f"an attempt at task {self.task} of batch {self.batch} (run {self.run})"


class Phase(Enum):
    RUNNING = "running"
    DECIDED = "decided"
    ABORTING = "aborting"


class Driver(NamedTuple):
    """A process that runs the query. `run` counts drivers, so that each computes something else."""

    run: int
    batch: int
    reports: tuple[TaskReport | None, ...]
    repeats: int = 0
    """The number of tasks that were attempted once more than needed: after a failure, or beside another attempt."""
    phase: Phase = Phase.RUNNING


class World(NamedTuple):
    coordinator: Coordinator
    drivers: tuple[Driver, ...]
    attempts: tuple[Attempt, ...]
    logged: int
    """The last batch in the checkpoint's commit log."""
    runs: int
    timeouts: int

    def with_attempts(self, attempts: Iterable[Attempt]) -> "World":
        """The world with these attempts in one order, so that worlds that differ in nothing else are equal."""
        return self._replace(attempts=tuple(sorted(attempts, key=str_of)))

    def with_driver(self, index: int, driver: Driver | None) -> "World":
        kept = () if driver is None else (driver,)
        return self._replace(drivers=(*self.drivers[:index], *kept, *self.drivers[index + 1 :]))

    def begun(self, driver: Driver) -> "World":
        """The world after all tasks of the driver's batch are started."""
        tasks = range(len(driver.reports))
        return self.with_attempts((*self.attempts, *(Attempt(driver.run, driver.batch, task) for task in tasks)))


def str_of(attempt: Attempt) -> tuple[int, int, int, str, int, int]:
    slot = attempt.slot or Slot("", -1, -1)
    return attempt.run, attempt.batch, attempt.task, attempt.at, slot.producer_id, slot.producer_epoch


@dataclass(frozen=True)
class Bounds:
    tasks: int
    batches: int
    runs: int
    repeats: int
    timeouts: int


Decide = Callable[[tuple[TaskReport | None, ...], int, Coordinator], tuple[Slot, ...]]


def named_winners(reports: tuple[TaskReport | None, ...], batch: int, _: Coordinator) -> tuple[Slot, ...]:
    """The winners that the sink names."""
    decision = decision_of(reports, batch)
    assert decision is not None
    return decision.winners


@dataclass(frozen=True)
class Protocol:
    """The sink's protocol, and wrong ones that test the checker."""

    winners: Decide = named_winners
    judges: bool = True
    coordinator_remembers: bool = True
    zombies: bool = True


def first(bounds: Bounds) -> World:
    driver = Driver(0, 0, (None,) * bounds.tasks)
    return World(Coordinator(), (driver,), (), NO_BATCH, 1, 0).begun(driver)


def steps(world: World, bounds: Bounds, protocol: Protocol) -> Iterator[tuple[str, World]]:
    """Everything that can happen next, with a sentence for the trace."""
    for index, attempt in enumerate(world.attempts):
        others = (*world.attempts[:index], *world.attempts[index + 1 :])
        yield from _attempt_steps(world, attempt, others, protocol)
    for index, driver in enumerate(world.drivers):
        yield from _driver_steps(world, index, driver, bounds, protocol)
    batch = world.logged + 1
    if world.runs < bounds.runs and batch < bounds.batches:
        # A new driver starts from the checkpoint. The old one is dead, or goes on unknown to the new one.
        fresh = Driver(world.runs, batch, (None,) * bounds.tasks)
        later = world._replace(runs=world.runs + 1).begun(fresh)
        yield "the driver dies and is started again", later._replace(drivers=(fresh,))
        if protocol.zombies and world.drivers:
            yield "a second driver starts while the first goes on", later._replace(drivers=(*world.drivers, fresh))
    if world.timeouts < bounds.timeouts:
        for number, slot in enumerate(world.coordinator.slots):
            if slot.state is not SlotState.FREE:
                ended = world.coordinator.end(number)
                yield f"slot {number} times out", world._replace(coordinator=ended, timeouts=world.timeouts + 1)


def _attempt_steps(
    world: World, attempt: Attempt, others: tuple[Attempt, ...], protocol: Protocol
) -> Iterator[tuple[str, World]]:
    gone = world.with_attempts(others)
    yield f"{attempt} is killed", gone
    if attempt.at == BEFORE_JOIN:
        yield f"{attempt} joins", _joined(world, attempt, others, protocol)
    elif attempt.at == JOINED:
        assert attempt.slot is not None
        after = world.coordinator.produce(attempt.slot, attempt.content)
        if after is None:
            yield f"{attempt} is fenced", gone
        else:
            moved = world.with_attempts((*others, attempt._replace(at=PRODUCED)))
            yield f"{attempt} produces", moved._replace(coordinator=after)
        held = world.coordinator.slots[attempt.slot.producer_id]
        if held.epoch == attempt.slot.producer_epoch:
            cleaned = world.coordinator.end(attempt.slot.producer_id)
            yield f"{attempt} fails and cleans up", gone._replace(coordinator=cleaned)
    else:
        yield from _report(gone, attempt)


def _joined(world: World, attempt: Attempt, others: tuple[Attempt, ...], protocol: Protocol) -> World:
    coordinator = world.coordinator
    if not protocol.coordinator_remembers:
        coordinator = coordinator._replace(last_batch=NO_BATCH)
    try:
        verdict = judge(FAMILY, attempt.batch, coordinator.last_batch, OlderBatches.FAIL)
    except OlderBatch:
        return world.with_attempts(others)
    if protocol.judges and verdict is Verdict.SKIP:
        return world.with_attempts((*others, attempt._replace(at=SKIPPED)))
    after, slot = coordinator._replace(last_batch=NO_BATCH).join(attempt.batch)
    assert slot is not None
    joined = world.with_attempts((*others, attempt._replace(at=JOINED, slot=slot)))
    return joined._replace(coordinator=after._replace(last_batch=coordinator.last_batch))


def _report(world: World, attempt: Attempt) -> Iterator[tuple[str, World]]:
    """Reports an attempt. Spark counts the first attempt of a task that ends well, if its driver still runs that
    batch."""
    report = TaskReport(Guarantee.MICRO_BATCH, FAMILY, attempt.batch, attempt.task, 0, attempt.slot)
    for place, driver in enumerate(world.drivers):
        asked = driver.run == attempt.run and driver.batch == attempt.batch and driver.phase is Phase.RUNNING
        if asked and driver.reports[attempt.task] is None:
            reports = (*driver.reports[: attempt.task], report, *driver.reports[attempt.task + 1 :])
            yield f"{attempt} reports", world.with_driver(place, driver._replace(reports=reports))


def _driver_steps(
    world: World, index: int, driver: Driver, bounds: Bounds, protocol: Protocol
) -> Iterator[tuple[str, World]]:
    name, batch = f"driver {driver.run}", driver.batch
    if driver.phase is Phase.RUNNING:
        for task, report in enumerate(driver.reports):
            # A repetition follows a failure, or is a speculative one beside another: Spark does not say which.
            if report is None and driver.repeats < bounds.repeats:
                repeated = world.with_driver(index, driver._replace(repeats=driver.repeats + 1))
                attempts = (*world.attempts, Attempt(driver.run, batch, task))
                yield f"{name} repeats task {task}", repeated.with_attempts(attempts)
        if None not in driver.reports:
            yield from _commit(world, index, driver, protocol)
    elif driver.phase is Phase.ABORTING:
        after = world.coordinator.decide(batch, (), commit=False)
        assert after is not None
        yield f"{name} aborts batch {batch} and ends", world.with_driver(index, None)._replace(coordinator=after)
    elif world.logged >= batch:
        # Spark's checkpoint refuses a second driver: a zombie learns there that it is one.
        yield f"{name} finds batch {batch} in the commit log and ends", world.with_driver(index, None)
    else:
        logged = world._replace(logged=batch)
        following = Driver(driver.run, batch + 1, (None,) * bounds.tasks)
        if batch + 1 < bounds.batches:
            yield f"{name} logs batch {batch}", logged.with_driver(index, following).begun(following)
        else:
            yield f"{name} logs batch {batch}", logged.with_driver(index, None)


def _commit(world: World, index: int, driver: Driver, protocol: Protocol) -> Iterator[tuple[str, World]]:
    winners = protocol.winners(driver.reports, driver.batch, world.coordinator)
    after = world.coordinator.decide(driver.batch, winners, commit=True)
    name = f"driver {driver.run}"
    aborting = world.with_driver(index, driver._replace(phase=Phase.ABORTING))
    if after is None:
        yield f"{name} is refused batch {driver.batch}", aborting
        return
    decided = world.with_driver(index, driver._replace(phase=Phase.DECIDED))
    yield f"{name} decides batch {driver.batch}", decided._replace(coordinator=after)
    yield f"{name} decides batch {driver.batch} and does not hear so", world._replace(coordinator=after)
    yield f"{name} decides batch {driver.batch} and is told it failed", aborting._replace(coordinator=after)


def wrong_with(world: World, bounds: Bounds) -> str | None:
    """The broken invariant of a world, or None."""
    visible = world.coordinator.visible
    for batch in range(bounds.batches):
        contents = [content for number, content in visible if number == batch]
        runs = {content.partition(" task ")[0] for content in contents}
        if len(contents) != len(set(contents)) or len(runs) > 1:
            return f"batch {batch} is visible more than once: {contents}"
        if contents and len(contents) != bounds.tasks:
            return f"batch {batch} is visible in part: {contents}"
        if not contents and batch <= world.logged:
            return f"batch {batch} is in the commit log, and nothing of it is visible"
    return None
