"""Faults on the workers of one machine (`serve --workers`), judged by the history of their clients.

    python -m tests.cluster.faults.workers --minutes 10 --seed 7                # all faults, one after the other
    python -m tests.cluster.faults.workers --only worker-killed --rounds 20     # one kind, twenty times

Plain, idempotent and transactional producers, readers and groups work all the time. At the end of an act (four
minutes) every acknowledged record is read, all processes end by SIGTERM with 0, and each partition is in one place.
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.cluster.faults.__main__ import ACT_S, Diary
from tests.cluster.faults.clients import Clients
from tests.cluster.faults.stage import TRACE
from tests.cluster.local_cluster import is_alive
from tests.cluster.test_workers import LocalWorkers, free_range
from tests.deadline import eventually
from tests.pausing import pause, resume

MOST_WORKERS = 4
LEASE_S = 3.0
SERVE_WITHIN_S = 120.0
CALM_S = (0.0, 8.0)
"""Between two faults: groups and transactions get to work at times, and at times not."""


class Workers:
    """The workers, over all their starts. Promises that their processes are gone at the end."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self._output = directory / "output.log"
        base = free_range(MOST_WORKERS)
        self._listeners = f"listeners=127.0.0.1:{base}"
        self.bootstrap = ",".join(f"127.0.0.1:{base + place}" for place in range(MOST_WORKERS))
        self.count = 0
        self._running: LocalWorkers | None = None

    @property
    def running(self) -> LocalWorkers:
        assert self._running is not None
        return self._running

    def launch(self, count: int) -> None:
        self.count = count
        self._running = LocalWorkers(self.data, count, "--set", self._listeners)
        self._running.launch()

    def start(self, count: int) -> None:
        self.launch(count)
        self.running.wait_ready()

    def pid(self, worker: int) -> int:
        """Of the life that served last."""
        lives = re.findall(rf"worker {worker} \(pid (\d+)\) serves again", self.running.said)
        return int(lives[-1]) if lives else self.running.pids[worker]

    def all_pids(self) -> list[int]:
        return [self.pid(worker) for worker in range(1, self.count + 1)]

    def wait_serving(self) -> None:
        eventually(lambda: all(map(is_alive, self.all_pids())), what="the next life of a worker")

    def kill_supervisor(self) -> None:
        """The workers get SIGTERM from the kernel; their output ends with the last of them."""
        self.running.supervisor.kill()
        self.over()

    def stop(self) -> None:
        code = self.running.stop()
        assert code == 0, f"the supervisor ended with {code}:\n{self.running.said[-3000:]}"
        self.over()

    def over(self) -> None:
        running, self._running = self.running, None
        self.ended(running)

    def ended(self, running: LocalWorkers) -> None:
        """Keeps the output of a start that is over, and looks at it."""
        running.end()
        with self._output.open("a") as file:
            file.write(f"---\n{running.said}")
        traces = TRACE.findall(running.said)
        assert not traces, f"{len(traces)} traces:\n{running.said[-6000:]}"

    def end(self) -> None:
        if self._running is not None:
            for pid in (self._running.supervisor.pid, *self._running.pids.values()):
                if is_alive(pid):
                    resume(pid)
            self.over()

    def misplaced(self) -> list[str]:
        """Partitions of a stopped supervisor that are not in one place, and what a move left behind."""
        places = Counter(path.parent.name for path in self.data.rglob("00000000000000000000.log"))
        found = [f"{name} is in {count} places" for name, count in places.items() if count > 1]
        return found + ["moves of partitions did not end"] * (self.data / "partition-moves").exists()


Kind = Callable[[Workers, random.Random], str]


def worker_killed(workers: Workers, chance: random.Random) -> str:
    worker = chance.randint(1, workers.count)
    os.kill(workers.pid(worker), signal.SIGKILL)
    return f"kill -9 of worker {worker} of {workers.count}"


def all_workers_killed(workers: Workers, chance: random.Random) -> str:
    for pid in workers.all_pids():
        os.kill(pid, signal.SIGKILL)
    return f"kill -9 of all {workers.count} workers"


def worker_terminated(workers: Workers, chance: random.Random) -> str:
    worker = chance.randint(1, workers.count)
    pid = workers.pid(worker)
    os.kill(pid, signal.SIGTERM)
    # The life that ends must not count as the next one.
    eventually(lambda: not is_alive(pid), what="the end of a worker after SIGTERM")
    return f"SIGTERM of worker {worker} of {workers.count}"


def worker_paused(workers: Workers, chance: random.Random) -> str:
    """Shorter and longer than a lease, and not so long that the supervisor kills it."""
    worker = chance.randint(1, workers.count)
    pid = workers.pid(worker)
    pause(pid)
    seconds = chance.uniform(0.5, 2 * LEASE_S)
    time.sleep(seconds)
    resume(pid)
    return f"worker {worker} of {workers.count} stood still for {seconds:.1f} s"


def worker_hangs(workers: Workers, chance: random.Random) -> str:
    worker = chance.randint(1, workers.count)
    pid = workers.pid(worker)
    pause(pid)
    eventually(lambda: not is_alive(pid), what="the end of the worker that hangs")
    return f"worker {worker} of {workers.count} hung and was killed"


def supervisor_paused(workers: Workers, chance: random.Random) -> str:
    pid = workers.running.supervisor.pid
    pause(pid)
    seconds = chance.choice([1.0, LEASE_S, 15.0])
    time.sleep(seconds)
    resume(pid)
    return f"the supervisor stood still for {seconds:.0f} s"


def supervisor_and_worker_paused(workers: Workers, chance: random.Random) -> str:
    """The worker goes on before the supervisor, with a lease that ended."""
    worker = chance.randint(1, workers.count)
    pids = [workers.running.supervisor.pid, workers.pid(worker)]
    for pid in pids:
        pause(pid)
    time.sleep(chance.uniform(LEASE_S, 3 * LEASE_S))
    for pid in reversed(pids):
        resume(pid)
        time.sleep(chance.uniform(0, LEASE_S))
    return f"the supervisor and worker {worker} of {workers.count} stood still"


def supervisor_killed(workers: Workers, chance: random.Random) -> str:
    before, after = workers.count, _another_number(workers, chance)
    workers.kill_supervisor()
    workers.start(after)
    return f"kill -9 of the supervisor of {before} workers; started with {after}"


def everything_killed(workers: Workers, chance: random.Random) -> str:
    before, after = workers.count, _another_number(workers, chance)
    for pid in (workers.running.supervisor.pid, *workers.all_pids()):
        os.kill(pid, signal.SIGKILL)
    workers.kill_supervisor()
    workers.start(after)
    return f"kill -9 of {before} workers and their supervisor; started with {after}"


def supervisor_killed_while_a_worker_hangs(workers: Workers, chance: random.Random) -> str:
    """The next start waits for the worker of the last one, which has a pending SIGTERM."""
    before, after = workers.count, _another_number(workers, chance)
    running = workers.running
    pid = workers.pid(chance.randint(1, before))
    pause(pid)
    running.supervisor.kill()
    workers.launch(after)
    time.sleep(chance.uniform(1, 3 * LEASE_S))
    assert workers.running.supervisor.poll() is None, workers.running.said
    resume(pid)
    workers.running.wait_ready()
    workers.ended(running)
    return f"kill -9 of the supervisor of {before} workers, one of which stood still; started with {after}"


def number_changed(workers: Workers, chance: random.Random) -> str:
    before, after = workers.count, _another_number(workers, chance)
    workers.stop()
    assert not (found := workers.misplaced()), found
    workers.start(after)
    return f"stopped with {before} workers, started with {after}"


def killed_while_starting(workers: Workers, chance: random.Random) -> str:
    """Three starts with other numbers of workers are killed: while partitions move, or while workers start."""
    before = workers.count
    workers.stop()
    tried = []
    for _ in range(3):
        workers.launch(_another_number(workers, chance))
        tried.append(workers.count)
        time.sleep(chance.uniform(0.1, 2.5))
        workers.kill_supervisor()
    workers.start(_another_number(workers, chance))
    return f"stopped with {before} workers, starts with {tried} killed; started with {workers.count}"


def _another_number(workers: Workers, chance: random.Random) -> int:
    return chance.choice([number for number in range(1, MOST_WORKERS + 1) if number != workers.count])


KINDS: dict[str, Kind] = {
    kind.__name__.replace("_", "-"): kind
    for kind in (
        worker_killed,
        all_workers_killed,
        worker_terminated,
        worker_paused,
        worker_hangs,
        supervisor_paused,
        supervisor_and_worker_paused,
        supervisor_killed,
        everything_killed,
        supervisor_killed_while_a_worker_hangs,
        number_changed,
        killed_while_starting,
    )
}


class Run:
    """Acts on one directory. The seed decides which faults come and on whom."""

    def __init__(self, directory: Path, diary: Diary, seed: int, pace_s: float) -> None:
        self._directory = directory
        self._say = diary.say
        self._seed = seed
        self._pace_s = pace_s
        self._chance = random.Random(seed)
        self._workers = Workers(directory)
        self.counts: Counter[str] = Counter()
        self.acked = 0

    def act(self, number: int, kinds: list[str], *, until_s: float | None) -> None:
        """Each of these faults once, or any of them for so long. Raises AssertionError with what was found."""
        workers = self._workers
        workers.start(self._chance.randint(2, MOST_WORKERS))
        history = self._directory / f"history-{number}.jsonl"
        clients = Clients(workers.bootstrap, history, number, self._seed + number, pace_s=self._pace_s, replicas=1)
        try:
            clients.start()
            assert clients.acknowledgements.come_everywhere(), "not every partition acknowledges"
            for name in kinds if until_s is None else iter(lambda: self._chance.choice(kinds), ""):
                if until_s is not None and time.monotonic() > until_s:
                    break
                self._round(name, clients)
            self._judge(number, clients)
        finally:
            clients.abandon()
            workers.end()

    def _round(self, name: str, clients: Clients) -> None:
        time.sleep(self._chance.uniform(*CALM_S))
        clients.acknowledgements.longest_gap()
        self._say(f"{name}: {KINDS[name](self._workers, self._chance)}")
        self.counts[name] += 1
        assert clients.acknowledgements.come_everywhere(), "a partition acknowledges nothing though all workers run"
        self._workers.wait_serving()
        gap = clients.acknowledgements.longest_gap()
        self._say(f"  the longest time between two acks was {gap.seconds:.1f} s ({gap.topic}-{gap.partition})")

    def _judge(self, number: int, clients: Clients) -> None:
        report = clients.finish()
        self._say(f"act {number}: {clients.words()}")
        assert report.clean, report.render()
        assert not clients.failures, "\n".join(clients.failures)
        self._workers.stop()
        assert not (found := self._workers.misplaced()), found
        self.acked += report.totals.acked
        self._say(f"act {number} is clean: {report.totals.acked} acked")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.workers", description=__doc__)
    parser.add_argument("--minutes", type=float, help="faults for so long, in any order")
    parser.add_argument("--rounds", type=int, default=1, help="without --minutes: each kind so many times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--pace-ms", type=float, default=20, help="the time between two records of a producer")
    parser.add_argument("--directory", type=Path, help="keep everything here: logs, histories, data")
    options = parser.parse_args()
    kinds = options.only.split(",")
    if unknown := set(kinds) - KINDS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="cordwood-workers-"))
    directory.mkdir(parents=True, exist_ok=True)
    diary = Diary(directory / "diary.log")
    diary.say(f"{' '.join(sys.argv[1:])} (seed {options.seed}, pid {os.getpid()}, {directory})")
    run = Run(directory, diary, options.seed, options.pace_ms / 1000)
    began_s = time.monotonic()
    if options.minutes is None:
        run.act(0, kinds * options.rounds, until_s=None)
    else:
        until_s, number = began_s + options.minutes * 60, 0
        while time.monotonic() < until_s:
            run.act(number, kinds, until_s=min(until_s, time.monotonic() + ACT_S))
            number += 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(run.counts.items()))
    diary.say(f"found nothing in {(time.monotonic() - began_s) / 60:.1f} min, {run.acked} acked: {counts}")
    if options.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
