"""The threads of the made-up machine: the seed picks the moment and the order in which work under way ends.

A piece of work is done as a whole at some moment after its submission, or, in a game about threads, a few disk
operations at a time with other steps in between. Its result is delivered at some later moment. A flush round syncs its
tickets one by one in any order, or the whole disk at once.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import StorageFailure
from simulation.world.disk import ProcessDied, SimulatedDisk

Work = Callable[[], Any]
Done = Callable[[Any], None]
Step = tuple[str, Callable[[], None]]
"""A step that could happen next in a thread: its name for the transcript, and the function that does it."""

Patience = Callable[[], int]
"""The number of disk operations that a thread does before other steps happen."""


class Strand:
    """Work in a separate thread that runs only while the simulator waits for it: never two at a time."""

    def __init__(self, work: Work, disk: SimulatedDisk, patience: Patience | None) -> None:
        """Without `patience` the work is done as a whole."""
        self.finished = False
        self.result: Any = None
        self._work = work
        self._disk = disk
        self._patience = patience
        self._turn = 0
        self._killed = False
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def step(self) -> None:
        """Lets the work go on for some disk operations."""
        assert not self.finished
        if self._patience is None:
            self._run()
            return
        self._turn = self._patience()
        self._disk.running = self
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_in_thread, name="simulated", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        self._disk.running = None

    def pause(self) -> None:
        """Stops the thread when its turn is over. The disk calls this, in the thread, before each operation."""
        self._turn -= 1
        if self._turn <= 0:
            self._back.release()
            self._go.acquire()
        if self._killed:
            raise ProcessDied("killed in the middle of its work")

    def kill(self) -> None:
        """Ends the thread at its present place: the process is gone."""
        if self._thread is not None and not self.finished:
            self._killed = True
            self._go.release()
            self._thread.join()

    def _run_in_thread(self) -> None:
        try:
            self._run()
        except ProcessDied:
            # The disk remembers the death.
            self.finished = True
        finally:
            self._back.release()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except Exception as failure:
            self.result = failure
        self.finished = True


class Job:
    __slots__ = ("done", "strand")

    def __init__(self, strand: Strand, done: Done) -> None:
        self.strand = strand
        self.done = done

    def do(self) -> None:
        while not self.strand.finished:
            self.strand.step()


class SimulatedWorkers:
    """Replaces `broker.threads.Workers`."""

    def __init__(self, disk: SimulatedDisk, patience: Patience | None) -> None:
        self.jobs: list[Job] = []
        self._disk = disk
        self._patience = patience

    @property
    def under_way(self) -> int:
        return len(self.jobs)

    def submit(self, work: Work, done: Done) -> None:
        self.jobs.append(Job(Strand(work, self._disk, self._patience), done))

    def steps(self) -> list[Step]:
        return [
            ("deliver work", partial(self._deliver, job)) if job.strand.finished else ("do work", job.strand.step)
            for job in self.jobs
        ]

    def _deliver(self, job: Job) -> None:
        self.jobs.remove(job)
        job.done(job.strand.result)

    def close(self, timeout_s: float = 0) -> None:
        """Finishes all submitted work, as real threads would, and delivers the results here."""
        while self.jobs:
            job = self.jobs.pop(0)
            job.do()
            job.done(job.strand.result)

    def kill(self) -> None:
        for job in self.jobs:
            job.strand.kill()
        self.jobs.clear()


class SimulatedFlusher:
    """Replaces `broker.flusher.Flusher`: one round at a time; a failed sync ends the flusher for good."""

    def __init__(
        self,
        disk: SimulatedDisk,
        patience: Patience | None,
        flushed: Callable[[list[FlushTicket]], None],
        failed: Callable[[Exception], None],
        survived: Callable[[FlushTicket, StorageFailure], bool],
        *,
        together: bool,
    ) -> None:
        """`together`: one sync of the whole disk may end a round."""
        self._disk = disk
        self._patience = patience
        self._survived = survived
        self._together = together
        self._flushed = flushed
        self._failed = failed
        self._round: list[FlushTicket] | None = None
        self._syncing: list[tuple[FlushTicket, Strand]] = []
        self._broken = False

    @property
    def idle(self) -> bool:
        return self._round is None and not self._broken

    def start(self, tickets: list[FlushTicket]) -> None:
        assert self.idle
        assert tickets
        self._round = tickets
        self._syncing = [(ticket, Strand(ticket.sync, self._disk, self._patience)) for ticket in tickets]

    def steps(self) -> list[Step]:
        if self._round is None or self._broken:
            return []
        if not self._syncing:
            return [("flush round is over", self._over)]
        steps: list[Step] = [
            (f"sync {ticket.directory.partition} to {ticket.end_offset}", partial(self._sync, ticket, strand))
            for ticket, strand in self._syncing
        ]
        if len(self._syncing) > 1 and self._together:
            steps.append(("sync the whole disk", self._sync_everything))
        return steps

    def close(self) -> None:
        """Finishes the round under way."""
        while self._round is not None and not self._broken:
            self.steps()[0][1]()

    def kill(self) -> None:
        for _, strand in self._syncing:
            strand.kill()

    def _sync(self, ticket: FlushTicket, strand: Strand) -> None:
        strand.step()
        if not strand.finished or self._disk.died:
            return
        failure = strand.result
        if isinstance(failure, StorageFailure) and self._survived(ticket, failure):
            assert self._round is not None
            self._round.remove(ticket)
        elif isinstance(failure, Exception):
            self._break(failure)
            return
        self._syncing.remove((ticket, strand))

    def _sync_everything(self) -> None:
        """Ends the round by one sync of the whole disk; threads that still sync single logs are ended."""
        try:
            self._disk.sync_everything()
        except Exception as failure:
            self._break(failure)
        else:
            self.kill()
            self._syncing.clear()

    def _break(self, failure: Exception) -> None:
        self._broken = True
        self._failed(failure)

    def _over(self) -> None:
        tickets, self._round = self._round, None
        assert tickets is not None
        self._flushed(tickets)
