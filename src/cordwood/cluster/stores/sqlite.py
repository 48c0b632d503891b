"""The metadata store of one node: SQLite in a thread of its own.

Every transaction is fsynced (WAL, synchronous=FULL) before `txn` returns. Transactions that arrive while another is
being written share one fsync: each has its own revision, all are committed to the file together.

The file is locked exclusively: a second process that opens it fails. So the open file is the lease of all leased keys
of its process: these keys are gone when the file is opened again. While the file is open, the thread ends leases that
are not renewed in time.

Before SQLite opens the file, the store proves it whole (integrity.py), and not older than its witness (witness.py). A
store that is damaged or went back is refused and left unchanged.

Once the store is idle, or at the latest a few seconds after a change, the write-ahead log is copied into the file and
the witness written: a new topic is not in the log alone for long.

This module has the thread and the answers to callers; sqlite_tables.py has the tables and the reserve for a full disk.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from cordwood.cluster.stores.feed import Commit, CommitFeed, follow
from cordwood.cluster.stores.interface import (
    FIRST_REVISION,
    Compacted,
    Compare,
    KeyValue,
    LeaseEnded,
    Listing,
    Operation,
    OutcomeUnknown,
    Put,
    StoreClosed,
    StoreFailure,
    TxnResult,
    WatchStep,
    check_transaction,
)
from cordwood.cluster.stores.leases import Leases, monotonic_ms
from cordwood.cluster.stores.sqlite_tables import Database, sqlite_code

_MAX_JOBS_PER_COMMIT = 256
_MAX_FEED_EVENTS = 20_000
_SETTLE_AFTER_S = 0.2
"""After this long without a job the log is copied into the file, and the witness written."""
_SETTLE_AT_LEAST_EVERY_S = 5.0


class _Outcome(NamedTuple):
    """The outcome of a job: a result, or the error for the caller."""

    result: Any = None
    commit: Commit | None = None
    error: Exception | None = None


class _Job(NamedTuple):
    run: Callable[[Database], tuple[Any, Commit | None]]
    future: "asyncio.Future[Any] | None" = None
    """None: the store's own job."""
    lease: int = 0
    """The lease that the job ends, if it does not fail."""


class SqliteStore:
    """The metadata store on SQLite, made by `await SqliteStore.open(path)`. Belongs to one event loop."""

    def __init__(self, path: str, retained_revisions: int, boot_ms: Callable[[], int]) -> None:
        self._path = path
        self._boot_ms = boot_ms
        self._leases = Leases(forgives_pauses=True)
        """Belongs to the store's thread."""
        self._ending: set[int] = set()
        """The leases that an earlier job of the group of jobs under way has ended."""
        self._retained_revisions = retained_revisions
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[int] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._feed = CommitFeed(FIRST_REVISION, _MAX_FEED_EVENTS)
        self._refusal: StoreFailure | None = None
        """The reason why no job is taken any more."""
        self._closing = False
        # The thread is a daemon: an exit at any moment damages nothing.
        self._thread = threading.Thread(target=self._work, name="metadata-store", daemon=True)

    @classmethod
    async def open(
        cls, path: str, *, retained_revisions: int = 1000, boot_ms: Callable[[], int] = monotonic_ms
    ) -> "SqliteStore":
        """Opens the file, or creates it. Keeps at least the last `retained_revisions`; `boot_ms` reads the clock of
        leases. Raises StoreFailure."""
        assert retained_revisions > 0
        store = cls(path, retained_revisions, boot_ms)
        store._thread.start()
        try:
            store._feed = CommitFeed(await store._opened, _MAX_FEED_EVENTS)
        except StoreFailure:
            raise
        except Exception as error:
            in_use = sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            reason = "it is in use by another process, or by another broker in this one" if in_use else str(error)
            raise StoreFailure(f"cannot open the metadata store {path}: {reason}") from error
        return store

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_transaction(compares, operations)

        def run(database: Database) -> tuple[TxnResult, Commit | None]:
            for operation in operations:
                if isinstance(operation, Put) and operation.lease:
                    self._check_lease(operation.lease)
            return database.txn(compares, operations)

        result: TxnResult = await self._ask(run)
        return result

    async def grant(self, ttl_ms: int) -> int:
        lease: int = await self._ask(lambda database: (self._leases.grant(ttl_ms, self._boot_ms()), None))
        return lease

    async def renew(self, lease: int) -> None:
        def run(database: Database) -> tuple[None, None]:
            self._check_lease(lease)
            self._leases.renew(lease, self._boot_ms())
            return None, None

        await self._ask(run)

    async def revoke(self, lease: int) -> None:
        await self._ask(_ending(lease), lease)

    async def get(self, key: str) -> KeyValue | None:
        result: KeyValue | None = await self._ask(lambda database: (database.get(key), None))
        return result

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        result: Listing = await self._ask(lambda database: (database.list(prefix, revision), None))
        return result

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[WatchStep]:
        return follow(self._feed, prefix, from_revision, self._history)

    async def _history(self, revision: int) -> Sequence[Commit]:
        result: Sequence[Commit] = await self._ask(lambda database: (database.history(revision), None))
        return result

    async def compact(self, revision: int) -> None:
        def run(database: Database) -> tuple[None, None]:
            database.compact(revision)
            return None, None

        await self._ask(run)

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._refuse(StoreClosed("the metadata store is closed"))
            self._jobs.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _ask(self, run: Callable[[Database], tuple[Any, Commit | None]], lease: int = 0) -> "asyncio.Future[Any]":
        if self._refusal is not None:
            raise self._refusal
        future = self._loop.create_future()
        self._jobs.put(_Job(run, future, lease))
        return future

    def _refuse(self, reason: StoreFailure) -> None:
        self._refusal = reason
        self._feed.close(reason)

    # The methods below run in the store's thread, except _deliver.

    def _work(self) -> None:
        try:
            database = Database(self._path)
        except Exception as error:
            self._in_loop(self._opened.set_exception, error)
            return
        self._leases = Leases(database.first_lease, forgives_pauses=True)
        self._in_loop(self._opened.set_result, database.revision)
        failure: StoreFailure | None = None
        ending = False
        # The first settling comes soon after a start: earlier short runs may have left their changes in the log alone.
        settled_s, settled = time.monotonic() - _SETTLE_AT_LEAST_EVERY_S + _SETTLE_AFTER_S, FIRST_REVISION
        while not ending:
            jobs, ending = self._next_jobs(None if failure else self._patience_s(settled != database.revision))
            if failure is None:
                jobs = [*self._expired(), *jobs]
                outcomes, failure = self._run(database, jobs)
                self._end_leases(jobs, outcomes)
            else:
                outcomes = [_Outcome(error=failure)] * len(jobs)
            self._in_loop(self._deliver, jobs, outcomes, database.compact_revision, failure)
            idle = not jobs or time.monotonic() - settled_s > _SETTLE_AT_LEAST_EVERY_S
            if failure is None and settled != database.revision and (idle or ending):
                failure = self._settle(database)
                settled_s, settled = time.monotonic(), database.revision
                if failure is not None:
                    self._in_loop(self._deliver, (), (), database.compact_revision, failure)
        database.connection.close()
        self._in_loop(self._ended.set_result, None)

    def _patience_s(self, unsettled: bool) -> float | None:
        """The longest wait of the thread for a job. None: for ever."""
        waits_s = [_SETTLE_AFTER_S] if unsettled else []
        deadline_ms = self._leases.next_deadline_ms
        if deadline_ms is not None:
            waits_s.append(max(0, deadline_ms - self._boot_ms()) / 1000)
        return min(waits_s, default=None)

    def _check_lease(self, lease: int) -> None:
        """Raises LeaseEnded. A key that is put under a lease behind the job that ends it would stay for ever."""
        if lease in self._ending:
            raise LeaseEnded(f"lease {lease} has ended")
        self._leases.check(lease)

    def _attempt(self, database: Database, job: _Job) -> _Outcome:
        try:
            outcome = _Outcome(*job.run(database))
        except (Compacted, LeaseEnded, ValueError) as error:
            # A mistake of the caller, found before any write.
            return _Outcome(error=error)
        if job.lease:
            self._ending.add(job.lease)
        return outcome

    def _expired(self) -> Sequence[_Job]:
        return [_Job(_ending(lease), lease=lease) for lease in self._leases.due(self._boot_ms())]

    def _end_leases(self, jobs: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
        """Ends leases whose keys are gone. A lease whose keys could not be removed, on a full disk, begins anew."""
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.lease and outcome.error is None:
                self._leases.end(job.lease)
            elif job.lease and job.future is None:
                self._leases.renew(job.lease, self._boot_ms())

    def _next_jobs(self, timeout_s: float | None) -> tuple[Sequence[_Job], bool]:
        """Waits for a job, and takes the jobs that wait behind it; True if the store is to end after these jobs.

        Returns no job after `timeout_s` without one.
        """
        jobs: list[_Job] = []
        try:
            job = self._jobs.get(timeout=timeout_s)
        except queue.Empty:
            return jobs, False
        while job is not None:
            jobs.append(job)
            if len(jobs) == _MAX_JOBS_PER_COMMIT:
                return jobs, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs, False
        return jobs, True

    def _run(self, database: Database, jobs: Sequence[_Job]) -> tuple[Sequence[_Outcome], StoreFailure | None]:
        """Runs the jobs in one transaction of SQLite. The second value is the reason if the store cannot go on."""
        execute = database.connection.execute
        state = database.revision, database.compact_revision
        committing = False
        self._ending.clear()
        try:
            execute("BEGIN")
            outcomes = [self._attempt(database, job) for job in jobs]
            if database.revision - database.compact_revision >= 2 * self._retained_revisions:
                database.compact(database.revision - self._retained_revisions)
            if state != (database.revision, database.compact_revision):
                database.save_state()
            committing = True
            execute("COMMIT")
        except Exception as error:
            undone = self._undo(database, jobs, error, committing)
            goes_on = undone[1] is None and sqlite_code(error) == sqlite3.SQLITE_FULL
            return self._run(database, jobs) if goes_on and database.make_room() else undone
        return outcomes, self._keep_reserve(database)

    def _keep_reserve(self, database: Database) -> StoreFailure | None:
        try:
            database.keep_reserve()
        except (sqlite3.Error, OSError) as error:
            return StoreFailure(f"the metadata store {self._path} failed: {error}")
        return None

    def _settle(self, database: Database) -> StoreFailure | None:
        try:
            database.settle()
        except (sqlite3.Error, OSError) as error:
            if sqlite_code(error) == sqlite3.SQLITE_FULL:
                return None
            return StoreFailure(f"the metadata store {self._path} failed: {error}")
        return None

    def _undo(
        self, database: Database, jobs: Sequence[_Job], error: Exception, committing: bool
    ) -> tuple[Sequence[_Outcome], StoreFailure | None]:
        """Rolls a failed group of jobs back. No job of the group happened, unless the commit itself failed. A full disk
        may get space again; after any other failure the file's content is unknown, and the store refuses jobs until it
        is opened again."""
        full = sqlite_code(error) == sqlite3.SQLITE_FULL
        failure: StoreFailure
        try:
            if database.connection.in_transaction:
                database.connection.execute("ROLLBACK")
            database.restore_state()
        except (sqlite3.Error, StoreFailure):
            full = False
        if full:
            failure = StoreFailure(f"no space left for the metadata store {self._path}")
        elif committing:
            failure = OutcomeUnknown(f"the metadata store {self._path} failed: {error}")
        else:
            failure = StoreFailure(f"the metadata store {self._path} failed: {error}")
        failure.__cause__ = error
        return [_Outcome(error=failure)] * len(jobs), None if full else failure

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # The loop was closed before the store: no caller is left.
            assert self._loop.is_closed()

    def _deliver(
        self, jobs: Sequence[_Job], outcomes: Sequence[_Outcome], compact_revision: int, failure: StoreFailure | None
    ) -> None:
        """Tells watchers and callers the committed changes. Runs in the loop."""
        self._feed.publish([outcome.commit for outcome in outcomes if outcome.commit is not None])
        self._feed.forget(compact_revision)
        if failure is not None and self._refusal is None:
            self._refuse(failure)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future is None or job.future.done():
                continue
            if outcome.error is not None:
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome.result)


def _ending(lease: int) -> Callable[[Database], tuple[None, Commit | None]]:
    """The work of a job that removes the keys of a lease."""
    return lambda database: (None, database.drop(database.leased_keys(lease)))
