"""One run of the benchmarks: the systems, the rounds, the clock, and the figures so far.

Owns alternation and failure. Promises: systems take turns within every case, the order changing each round; a
measurement that fails is noted with its message and does not stop the others; a quick run leaves out rounds, and in
the end whole cases, rather than overrun its time, and says so.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from benchmarks import load
from benchmarks.figures import KAFKA, Figure, Metric, limit_of
from benchmarks.kafka_peer import KafkaJars
from benchmarks.processes import Meter, Usage
from benchmarks.report import in_words
from benchmarks.systems import (
    CordwoodSystem,
    Durability,
    KafkaSystem,
    System,
    SystemFailed,
    create_topics,
    delete_topics,
)


class OutOfTime(Exception):
    """A quick run has used its time."""


@dataclass(frozen=True)
class Plan:
    """How much a run measures."""

    quick: bool
    rounds: int
    seconds: float
    backlog_bytes: Mapping[int, int]
    fanout_bytes: int
    java_messages: Mapping[int, int]
    partitions: int
    cold_bytes: int
    steady_s: float
    warm_up_s: float
    timeout_s: float
    total_s: float | None

    @property
    def few_rounds(self) -> int:
        """For measurements that start brokers or take long."""
        return 1 if self.quick else min(3, self.rounds)


FULL = Plan(
    quick=False,
    rounds=5,
    seconds=4.0,
    backlog_bytes={100: 600_000_000, 1024: 2_000_000_000},
    fanout_bytes=4_000_000_000,
    java_messages={100: 5_000_000, 1024: 1_000_000},
    partitions=10_000,
    cold_bytes=4_000_000_000,
    steady_s=15,
    warm_up_s=120,
    timeout_s=120,
    total_s=None,
)
QUICK = Plan(
    quick=True,
    rounds=2,
    seconds=1.0,
    backlog_bytes={100: 100_000_000, 1024: 400_000_000},
    fanout_bytes=800_000_000,
    java_messages={100: 300_000, 1024: 100_000},
    partitions=1_000,
    cold_bytes=600_000_000,
    steady_s=3,
    warm_up_s=15,
    timeout_s=20,
    total_s=270,
)


ONE_MESSAGE_REQUESTS = {
    "batch.num.messages": "1",
    "linger.ms": "0",
    "max.in.flight.requests.per.connection": "64",
    "queue.buffering.max.messages": "1000",  # else the tail that is still queued at the end dominates
}
"""librdkafka's settings for a Produce request per message, up to 64 of them on the way."""


class Sample(NamedTuple):
    """One measurement of one system: a value per metric, in the order of the metrics."""

    values: Sequence[float]
    limit: str = ""
    command: str = ""


class Measured(NamedTuple):
    """A client's run and what the broker used meanwhile."""

    client: load.LoadResult
    broker: Usage

    @property
    def limit(self) -> str:
        return limit_of(
            client=self.client.busiest_thread_s / self.client.seconds,
            broker=self.broker.busiest_thread_s / self.client.seconds,
            machine=self.broker.machine_share,
        )


@dataclass
class Bench:
    """The state of a run; scenarios get it and add figures through it."""

    console: Console
    plan: Plan
    directory: Path
    names: Sequence[str]
    jars: KafkaJars | None
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    scenario: str = ""
    scenario_ends: float = float("inf")
    _began: float = field(default_factory=time.monotonic)
    _kept: list[System] = field(default_factory=list)
    _absent: set[str] = field(default_factory=set)
    _counter: int = 0
    _neighbours_s: float = 0.0
    _metered_s: float = 0.0

    # -- systems

    def new_system(self, name: str, *, heap: str | None = None, as_shipped: bool = False) -> System:
        """A broker of that name on a new directory, not started."""
        self._counter += 1
        directory = self.directory / f"{name}-{self._counter}"
        if name == KAFKA:
            assert self.jars is not None
            system: System = KafkaSystem(directory, self.jars, heap, as_shipped=as_shipped)
        else:
            system = CordwoodSystem(directory, as_shipped=as_shipped)
        self.labels[name] = system.label
        return system

    @contextmanager
    def fresh(self, name: str, *, heap: str | None = None, as_shipped: bool = False) -> Iterator[System]:
        """A broker of its own for one measurement; its data goes with it."""
        system = self.new_system(name, heap=heap, as_shipped=as_shipped)
        try:
            yield system
        finally:
            dispose(system)

    def pair(self) -> list[System]:
        """One running and warm broker of each kind, kept from scenario to scenario. A dead one is replaced."""
        for system in [system for system in self._kept if not system.alive]:
            self.note(f"{system.name} has died and is started again; it ended with:\n{system.tail()}")
            self._kept.remove(system)
            dispose(system)
        running = {system.name for system in self._kept}
        for name in self.names:
            if name not in running and name not in self._absent:
                system = self.new_system(name)
                try:
                    system.start()
                except Exception as error:
                    dispose(system)
                    self._absent.add(name)
                    self.note(f"{name} did not start: {error}")
                    continue
                self._kept.append(system)
                self._warm_up(system)
        return sorted(self._kept, key=lambda system: self.names.index(system.name))

    def close(self) -> None:
        """Stop the kept pair: at the end, and before brokers that must have the machine to themselves."""
        while self._kept:
            dispose(self._kept.pop())

    def _warm_up(self, system: System) -> None:
        """Small and large requests until the small ones get no faster."""

        def one_round() -> Measured:
            with self.topic(system, partitions=4) as topic:
                small = self.load(system, "produce", topic, properties=ONE_MESSAGE_REQUESTS, seconds=1.5)
                for size in (100, 1024):
                    self.load(system, "produce", topic, seconds=0.7, size=size, partitions=4)
                self.load(system, "consume", topic, partitions=4)
            return small

        try:
            self.until_no_faster(f"warming up {system.name}", one_round, limit_s=self.plan.warm_up_s)
        except Exception as error:
            self.note(f"warm-up of {system.name}: {error}")

    def warm_up_to(self, what: str, run: Callable[[], Measured]) -> None:
        """Before a scenario whose requests the first warm-up does not make; the same for every system."""
        self.until_no_faster(what, run, limit_s=1 if self.plan.quick else self.plan.warm_up_s / 5)

    def until_no_faster(self, what: str, run: Callable[[], Measured], *, limit_s: float) -> Measured:
        """The fastest of runs that go on while they gain a tenth, since a JVM compiles what is hot for a while."""
        ends = time.monotonic() + limit_s
        best = run()
        self.say(f"{what}: {best.client.messages_per_s:,.0f} messages/s")
        while time.monotonic() < ends:
            next_run = run()
            self.say(f"{what}: {next_run.client.messages_per_s:,.0f} messages/s")
            gain = next_run.client.messages_per_s / best.client.messages_per_s
            best = next_run if gain > 1 else best
            if gain < 1.1:
                return best
        self.note(f"{what}: it was still getting faster after {limit_s:.0f} s")
        return best

    # -- measuring

    @contextmanager
    def topic(
        self,
        system: System,
        *,
        partitions: int = 1,
        durability: Durability = "os",
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[str]:
        """A topic that is deleted afterwards: its dirty pages are dropped, not written during the next run."""
        self._counter += 1
        name = f"bench-{self._counter}"
        create_topics(system, [name], partitions, {**system.topic_settings(durability), **(settings or {})})
        try:
            yield name
        finally:
            if system.alive:
                delete_topics(system, [name])

    def load(
        self,
        system: System,
        mode: str,
        topic: str,
        *,
        properties: Mapping[str, str] | None = None,
        bootstrap: str = "",
        beside_another: bool = False,
        timeout_s: float | None = None,
        **flags: object,
    ) -> Measured:
        """Run load.c to its end and meter the broker meanwhile. `beside_another`: another client of ours runs, too.

        `bootstrap`: another listener of the system than its first."""
        patience_s = timeout_s or self.plan.timeout_s
        meter = Meter(*system.pids)
        address = bootstrap or system.bootstrap
        run = load.start(mode, address, topic, properties=properties, timeout=int(patience_s), **flags)
        client = run.result(patience_s + 10)
        used = meter.usage()
        if not beside_another:
            self.count_neighbours(used, client.cpu_s)
        return Measured(client, used)

    def count_neighbours(self, used: Usage, clients_cpu_s: float) -> None:
        """Remember how much of the machine went to processes that are no part of the measurement."""
        self._neighbours_s += max(0.0, used.machine_busy_s - used.cpu_s - clients_cpu_s)
        self._metered_s += used.wall_s

    @property
    def neighbour_cores(self) -> float:
        """Cores that other processes (and the idle system of the pair) took on average while a client ran."""
        return self._neighbours_s / self._metered_s if self._metered_s else 0.0

    def prepared(self, systems: Sequence[System], prepare: Callable[[System], None]) -> list[System]:
        """The systems that could be prepared for a case; the others are noted with their reason."""
        able = []
        for system in systems:
            self.check_time()
            try:
                prepare(system)
            except Exception as error:
                self.note(f"{system.name} could not be prepared: {type(error).__name__}: {error}")
                continue
            able.append(system)
        return able

    def alternate(
        self,
        case: str,
        metrics: Sequence[Metric],
        systems: Sequence[System],
        measure: Callable[[System], Sample],
        *,
        rounds: int | None = None,
    ) -> None:
        """Measure every system in turn, round by round, and add one figure per metric."""
        names = [system.name for system in systems]
        by_name = {system.name: system for system in systems}

        def measure_living(name: str) -> Sample:
            system = by_name[name]
            if not system.alive and system in self._kept:  # every request to it would run into a timeout
                raise SystemFailed(f"{name} has died:\n{system.tail()}")
            return measure(system)

        self.alternate_names(case, metrics, names, measure_living, rounds=rounds)

    def alternate_names(
        self,
        case: str,
        metrics: Sequence[Metric],
        names: Sequence[str],
        measure: Callable[[str], Sample],
        *,
        rounds: int | None = None,
        needed_s: float = 0.0,
    ) -> None:
        """As `alternate`, for measurements that start a broker of their own."""
        self.check_time()
        figures = [Figure(self.scenario, case, metric) for metric in metrics]
        self.figures.extend(figures)
        failed: set[str] = set()
        total = rounds or self.plan.rounds
        for number in range(total):
            if number and self._late:
                break
            for name in names if number % 2 == 0 else reversed(names):
                if name in failed:
                    continue
                self.check_time(needed_s)
                try:
                    sample = measure(name)
                except Exception as error:
                    failed.add(name)
                    message = f"{type(error).__name__}: {error}"
                    for figure in figures:
                        figure.failures[name] = message
                    self.say(f"{case} · {name}: failed: {message.splitlines()[-1]}")
                    continue
                for figure, value in zip(figures, sample.values, strict=True):
                    figure.add(name, value, sample.limit, sample.command)
                first = f"{metrics[0].name} {in_words(sample.values[0], metrics[0].unit)}"
                self.say(f"{case} · round {number + 1}/{total} · {name}: {first}")

    # -- time and words

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _late(self) -> bool:
        return time.monotonic() > self.scenario_ends

    def check_time(self, needed_s: float = 0.0) -> None:
        """Refuse to begin what would not end in time; `needed_s` is a guess for what comes next."""
        if self.plan.total_s is not None and self.elapsed_s + needed_s > self.plan.total_s:
            raise OutOfTime(f"the {self.plan.total_s:.0f} s of a quick run are used up")

    def say(self, text: str) -> None:
        """Progress: one line, with the seconds since the start."""
        self.console.print(f"[dim]{self.elapsed_s:5.0f} s  {self.scenario}: {escape(text)}[/]")

    def note(self, text: str) -> None:
        """Something that a reader of the figures must know."""
        self.notes.append(f"{self.scenario}: {text}")
        self.console.print(f"[yellow]note:[/] {escape(self.notes[-1])}")


def dispose(system: System) -> None:
    """Stop a broker and remove its directory."""
    system.stop()
    shutil.rmtree(system.directory, ignore_errors=True)
