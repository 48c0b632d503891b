"""The threads of the made-up machine: work that is under way and ends when, and in which order, the seed wants.

Each piece of work is done at some moment after it was asked for, as a whole, and its result is delivered at some later
moment. A flush round syncs its tickets one by one in any order, or the whole disk at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from cordwood.log.flushing import FlushTicket
from cordwood.simulation.disk import SimulatedDisk

Work = Callable[[], Any]
Done = Callable[[Any], None]
Step = tuple[str, Callable[[], None]]
"""What can happen next in some thread: its name for the transcript, and doing it."""


class Job:
    __slots__ = ("done", "finished", "result", "work")

    def __init__(self, work: Work, done: Done) -> None:
        self.work = work
        self.done = done
        self.finished = False
        self.result: Any = None

    def do(self) -> None:
        try:
            self.result = self.work()
        except Exception as failure:
            self.result = failure
        self.finished = True


class SimulatedWorkers:
    """In the place of `broker.threads.Workers`."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    @property
    def under_way(self) -> int:
        return len(self.jobs)

    def submit(self, work: Work, done: Done) -> None:
        self.jobs.append(Job(work, done))

    def steps(self) -> list[Step]:
        return [
            ("deliver work", partial(self._deliver, job)) if job.finished else ("do work", job.do) for job in self.jobs
        ]

    def _deliver(self, job: Job) -> None:
        self.jobs.remove(job)
        job.done(job.result)

    def close(self, timeout_s: float = 0) -> None:
        """Lets what was submitted finish, as real threads would, and delivers it here."""
        while self.jobs:
            job = self.jobs.pop(0)
            if not job.finished:
                job.do()
            job.done(job.result)


class SimulatedFlusher:
    """In the place of `broker.flusher.Flusher`: one round at a time; a failed sync ends it for good."""

    def __init__(
        self,
        disk: SimulatedDisk,
        flushed: Callable[[list[FlushTicket]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._disk = disk
        self._flushed = flushed
        self._failed = failed
        self._round: list[FlushTicket] | None = None
        self._unsynced: list[FlushTicket] = []
        self._broken = False
        self.rounds = 0

    @property
    def idle(self) -> bool:
        return self._round is None and not self._broken

    def start(self, tickets: list[FlushTicket]) -> None:
        assert self.idle
        assert tickets
        self._round = tickets
        self._unsynced = list(tickets)
        self.rounds += 1

    def steps(self) -> list[Step]:
        if self._round is None or self._broken:
            return []
        if not self._unsynced:
            return [("flush round is over", self._over)]
        steps: list[Step] = [
            (f"sync {ticket.log.partition} to {ticket.end_offset}", partial(self._sync, ticket))
            for ticket in self._unsynced
        ]
        if len(self._unsynced) > 1:
            steps.append(("sync the whole disk", self._sync_everything))
        return steps

    def close(self) -> None:
        """Waits for the round that is under way."""
        while self._round is not None and not self._broken:
            self.steps()[0][1]()

    def _sync(self, ticket: FlushTicket) -> None:
        try:
            ticket.sync()
        except Exception as failure:
            self._break(failure)
        else:
            self._unsynced.remove(ticket)

    def _sync_everything(self) -> None:
        try:
            self._disk.sync_everything()
        except Exception as failure:
            self._break(failure)
        else:
            self._unsynced.clear()

    def _break(self, failure: Exception) -> None:
        self._broken = True
        self._failed(failure)

    def _over(self) -> None:
        tickets, self._round = self._round, None
        assert tickets is not None
        self._flushed(tickets)
