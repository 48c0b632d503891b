"""The metadata store of one node: SQLite in a thread of its own.

Durable: every transaction is fsynced (WAL, synchronous=FULL) before `txn` returns. Transactions that are asked for
while another is being written share its fsync: each has its own revision, all are committed to the file together.

The file is held exclusively, so a second process that opens it fails instead of interleaving.

Before SQLite opens the file, it is proven whole (stores/integrity.py), and not older than what was seen of it last
(stores/witness.py). A store that is damaged or went back is refused, and nothing of it is changed.

Once the store is idle, or at the latest a few seconds after a change, the write-ahead log is copied into the file and
the witness written: a new topic does not live in the log alone for long.

Table `history` has one row per key and revision, as etcd keeps it: the newest row of a key is its state, a row without
a value says that it was deleted. Compaction removes rows that newer ones supersede. There is no index by revision:
only a watch that starts in the past reads by revision, and metadata is small enough to scan for that.

The file and its WAL hold free pages in reserve, so that on a full disk a broker can still start, and a topic can still
be deleted: that is how the disk gets space again.
"""

import asyncio
import errno
import os
import queue
import shlex
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from cordwood.cluster.stores.feed import Commit, CommitFeed, follow
from cordwood.cluster.stores.integrity import (
    FORMAT_VERSION,
    FORMAT_WITHOUT_CHECKSUMS,
    State,
    read_image,
    read_state,
    row_checksum,
    verify,
)
from cordwood.cluster.stores.interface import (
    FIRST_REVISION,
    Compacted,
    Compare,
    Delete,
    Event,
    KeyValue,
    Listing,
    Operation,
    OutcomeUnknown,
    Put,
    StoreClosed,
    StoreFailure,
    TxnResult,
    check_transaction,
    holds,
    prefix_end,
)
from cordwood.cluster.stores.wal import DamagedStore
from cordwood.cluster.stores.witness import LEFT_OUT, read_witness, witness_path, write_witness

_MAX_JOBS_PER_COMMIT = 256
_MAX_FEED_EVENTS = 20_000
_LAST_KEY = "\U0010ffff"
_RESERVE_PAGES = 256
_CHECKPOINT_PAGES = 192
"""The WAL begins again after so many pages, so that it stays within what the reserve made it take."""
_SETTLE_AFTER_S = 0.2
"""Idle for so long: the log is copied into the file, and the witness written."""
_SETTLE_AT_LEAST_EVERY_S = 5.0
_STATE_TABLE = """
CREATE TABLE state (
    revision INTEGER NOT NULL,
    compact_revision INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    row_sum INTEGER NOT NULL,
    checksum INTEGER NOT NULL
)
"""
_SCHEMA = f"""
CREATE TABLE history (
    key TEXT NOT NULL,
    mod_revision INTEGER NOT NULL,
    create_revision INTEGER NOT NULL,
    value BLOB,
    checksum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (key, mod_revision)
) WITHOUT ROWID;
{_STATE_TABLE};
CREATE TABLE reserve (filler BLOB);
"""


class _Database:
    """The store's tables, synchronously, inside a transaction that the caller begins and commits."""

    def __init__(self, path: str) -> None:
        self._path = path
        check_store(path)
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._prepare(path)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, path: str) -> None:
        execute = self.connection.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        mode = execute("PRAGMA journal_mode=WAL").fetchone()[0]
        assert mode == "wal", f"SQLite chose journal mode {mode}"
        execute("PRAGMA synchronous=FULL")
        execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        execute("BEGIN IMMEDIATE")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";"):
                execute(statement)
            self._begin(State(FIRST_REVISION, 0))
        elif version == FORMAT_WITHOUT_CHECKSUMS:
            self._add_checksums()
        elif version != FORMAT_VERSION:
            raise StoreFailure(f"{path} has format {version}; this version of Cordwood reads {FORMAT_VERSION}")
        execute("COMMIT")
        self.restore_state()
        self.keep_reserve()

    def _begin(self, state: State) -> None:
        self.connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?)", (*state, state.checksum))
        self.connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")

    def _add_checksums(self) -> None:
        """From the format before: the rows as they are."""
        execute = self.connection.execute
        revisions = execute("SELECT revision, compact_revision FROM state").fetchone()
        execute("ALTER TABLE history ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
        rows = execute("SELECT key, value, create_revision, mod_revision FROM history").fetchall()
        sums = [(row_checksum(*row), row[0], row[3]) for row in rows]
        self.connection.executemany("UPDATE history SET checksum = ? WHERE key = ? AND mod_revision = ?", sums)
        execute("DROP TABLE state")
        execute(_STATE_TABLE)
        self._begin(State(*revisions).with_rows(len(rows), sum(each[0] for each in sums)))

    def settle(self) -> None:
        """Copies the log into the file, and says in the witness how far the store is. Between transactions."""
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        try:
            write_witness(self._path, self.revision, self._all_but_partitions())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def keep_reserve(self) -> None:
        """Fills up the free pages of the file, as far as the disk has space. Between transactions."""
        execute = self.connection.execute
        (free_pages,) = execute("PRAGMA freelist_count").fetchone()
        if free_pages >= _RESERVE_PAGES // 2:
            return
        (page_size,) = execute("PRAGMA page_size").fetchone()
        try:
            # In two transactions: pages that are freed in the transaction that took them are never written.
            execute("INSERT INTO reserve VALUES (zeroblob(?))", (_RESERVE_PAGES * page_size,))
            execute("PRAGMA wal_checkpoint(RESTART)")
            execute("DELETE FROM reserve")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_FULL:
                raise

    def _all_but_partitions(self) -> Sequence[KeyValue]:
        rows = self.connection.execute(
            "SELECT key, value, create_revision, max(mod_revision) FROM history WHERE key < ? OR key >= ? GROUP BY key",
            (LEFT_OUT, prefix_end(LEFT_OUT)),
        )
        return [KeyValue._make(row) for row in rows if row[1] is not None]

    def save_state(self) -> None:
        state = self._rows._replace(revision=self.revision, compact_revision=self.compact_revision)
        self.connection.execute(
            "UPDATE state SET revision = ?, compact_revision = ?, row_count = ?, row_sum = ?, checksum = ?",
            (*state, state.checksum),
        )

    def restore_state(self) -> None:
        self._rows = read_state(self.connection, self._path)
        self.revision, self.compact_revision = self._rows[:2]

    def get(self, key: str) -> KeyValue | None:
        row = self.connection.execute(
            "SELECT value, create_revision, mod_revision FROM history WHERE key = ? ORDER BY mod_revision DESC LIMIT 1",
            (key,),
        ).fetchone()
        return None if row is None or row[0] is None else KeyValue(key, *row)

    def list(self, prefix: str, revision: int) -> Listing:
        revision = revision or self.revision
        if revision > self.revision:
            raise ValueError(f"revision {revision} is in the future: the store is at {self.revision}")
        if revision < self.compact_revision:
            raise Compacted(self.compact_revision)
        # SQLite takes the other columns of a group from the row that has the maximum.
        rows = self.connection.execute(
            "SELECT key, value, create_revision, max(mod_revision) FROM history "
            "WHERE key >= ? AND key < ? AND mod_revision <= ? GROUP BY key ORDER BY key",
            (prefix, prefix_end(prefix) or _LAST_KEY, revision),
        )
        return Listing(revision, [KeyValue._make(row) for row in rows if row[1] is not None])

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> tuple[TxnResult, Commit | None]:
        if not all(holds(compare, self.get(compare.key)) for compare in compares):
            return TxnResult(False, self.revision), None
        revision = self.revision + 1
        events: dict[str, Event] = {}
        for operation in operations:
            if isinstance(operation, Put):
                old = self.get(operation.key)
                created = revision if old is None else old.create_revision
                events[operation.key] = Event(operation.key, operation.value, created, revision)
            elif isinstance(operation, Delete):
                if self.get(operation.key) is not None:
                    events[operation.key] = Event(operation.key, None, 0, revision)
            else:
                for item in self.list(operation.prefix, 0).items:
                    events[item.key] = Event(item.key, None, 0, revision)
        if not events:
            return TxnResult(True, self.revision), None
        commit = Commit(revision, tuple(event for _, event in sorted(events.items())))
        sums = [row_checksum(*event) for event in commit.events]
        self.connection.executemany(
            "INSERT INTO history (key, value, create_revision, mod_revision, checksum) VALUES (?, ?, ?, ?, ?)",
            [(*event, checksum) for event, checksum in zip(commit.events, sums, strict=True)],
        )
        self._rows = self._rows.with_rows(len(sums), sum(sums))
        self.revision = revision
        return TxnResult(True, revision), commit

    def history(self, from_revision: int) -> Sequence[Commit]:
        """Every commit from a revision on."""
        if from_revision <= self.compact_revision:
            raise Compacted(self.compact_revision)
        rows = self.connection.execute(
            "SELECT mod_revision, key, value, create_revision FROM history WHERE mod_revision >= ? "
            "ORDER BY mod_revision, key",
            (from_revision,),
        )
        events: dict[int, list[Event]] = {}
        for mod_revision, key, value, create_revision in rows:
            events.setdefault(mod_revision, []).append(Event(key, value, create_revision, mod_revision))
        return [Commit(revision, tuple(events[revision])) for revision in sorted(events)]

    def compact(self, revision: int) -> None:
        if revision > self.revision:
            raise ValueError(f"revision {revision} is in the future: the store is at {self.revision}")
        if revision <= self.compact_revision:
            return
        # First what is superseded, then the deletions that are left: a deletion gone first would bring back the row
        # that it supersedes.
        self._delete(
            "DELETE FROM history AS old WHERE mod_revision < ?1 AND EXISTS (SELECT 1 FROM history AS newer "
            "WHERE newer.key = old.key AND newer.mod_revision > old.mod_revision AND newer.mod_revision <= ?1)",
            (revision,),
        )
        self._delete("DELETE FROM history WHERE mod_revision <= ? AND value IS NULL", (revision,))
        self.compact_revision = revision

    def _delete(self, statement: str, parameters: tuple[int, ...]) -> None:
        gone = self.connection.execute(f"{statement} RETURNING checksum", parameters).fetchall()
        self._rows = self._rows.with_rows(-len(gone), -sum(checksum for (checksum,) in gone))


def check_present(path: str) -> None:
    """Raises DamagedStore if the store's files are missing or empty. For a directory that has a broker's data already:
    a store that was created anew would know none of its topics. Changes nothing."""
    if not any(os.path.exists(file) and os.path.getsize(file) for file in (path, f"{path}-wal", witness_path(path))):
        raise DamagedStore(
            f"the metadata store {path} is gone, and the records of a broker are beside it. {_what_to_do(path)}"
        )


def check_store(path: str) -> None:
    """Raises DamagedStore if the store is damaged, or went back. Changes nothing."""
    try:
        state = verify(read_image(path), path)
    except DamagedStore as damage:
        raise DamagedStore(f"{damage}. {_what_to_do(path)}") from damage
    witness = read_witness(path)
    if witness is not None and (state is None or state.revision < witness.revision):
        at = "empty" if state is None else f"at revision {state.revision}"
        raise DamagedStore(
            f"the metadata store {path} went back: it is {at}, and was at {witness.revision} when {witness_path(path)} "
            f"was written. It was put back from an older copy, or lost what was acknowledged. {_what_to_do(path)}"
        )


def _what_to_do(path: str) -> str:
    return (
        "Nothing was changed. Put back the whole data directory from a backup, or run `cordwood recover metadata "
        f"{shlex.quote(os.path.dirname(path))}`: it keeps a copy, and goes on with all that can be proven"
    )


class _Outcome(NamedTuple):
    """What came of a job: a result, or the error that its caller gets."""

    result: Any = None
    commit: Commit | None = None
    error: Exception | None = None


class _Job(NamedTuple):
    run: Callable[[_Database], tuple[Any, Commit | None]]
    future: "asyncio.Future[Any]"


class SqliteStore:
    """Open one with `await SqliteStore.open(path)`. Belongs to the event loop that opened it."""

    def __init__(self, path: str, retained_revisions: int) -> None:
        self._path = path
        self._retained_revisions = retained_revisions
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[int] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._feed = CommitFeed(FIRST_REVISION, _MAX_FEED_EVENTS)
        self._refusal: StoreFailure | None = None
        """Why nothing is taken any more."""
        self._closing = False
        # A daemon, because it holds nothing that an exit at any moment could damage.
        self._thread = threading.Thread(target=self._work, name="metadata-store", daemon=True)

    @classmethod
    async def open(cls, path: str, *, retained_revisions: int = 1000) -> "SqliteStore":
        """Opens the file, or creates it. Keeps at least the last `retained_revisions`. Raises StoreFailure."""
        assert retained_revisions > 0
        store = cls(path, retained_revisions)
        store._thread.start()
        try:
            store._feed = CommitFeed(await store._opened, _MAX_FEED_EVENTS)
        except StoreFailure:
            raise
        except Exception as error:
            in_use = _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            reason = "it is in use by another process, or by another broker in this one" if in_use else str(error)
            raise StoreFailure(f"cannot open the metadata store {path}: {reason}") from error
        return store

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_transaction(compares, operations)
        result: TxnResult = await self._ask(lambda database: database.txn(compares, operations))
        return result

    async def get(self, key: str) -> KeyValue | None:
        result: KeyValue | None = await self._ask(lambda database: (database.get(key), None))
        return result

    async def list(self, prefix: str, revision: int = 0) -> Listing:
        result: Listing = await self._ask(lambda database: (database.list(prefix, revision), None))
        return result

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Sequence[Event]]:
        return follow(self._feed, prefix, from_revision, self._history)

    async def _history(self, revision: int) -> Sequence[Commit]:
        result: Sequence[Commit] = await self._ask(lambda database: (database.history(revision), None))
        return result

    async def compact(self, revision: int) -> None:
        def run(database: _Database) -> tuple[None, None]:
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

    def _ask(self, run: Callable[[_Database], tuple[Any, Commit | None]]) -> "asyncio.Future[Any]":
        if self._refusal is not None:
            raise self._refusal
        future = self._loop.create_future()
        self._jobs.put(_Job(run, future))
        return future

    def _refuse(self, reason: StoreFailure) -> None:
        self._refusal = reason
        self._feed.close(reason)

    # What follows runs in the store's thread, but for _deliver.

    def _work(self) -> None:
        try:
            database = _Database(self._path)
        except Exception as error:
            self._in_loop(self._opened.set_exception, error)
            return
        self._in_loop(self._opened.set_result, database.revision)
        failure: StoreFailure | None = None
        ending = False
        settled_s, settled = time.monotonic(), FIRST_REVISION
        while not ending:
            jobs, ending = self._next_jobs(None if failure or settled == database.revision else _SETTLE_AFTER_S)
            if failure is None:
                outcomes, failure = self._run(database, jobs)
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

    def _next_jobs(self, timeout_s: float | None) -> tuple[Sequence[_Job], bool]:
        """Waits for a job, and takes those that wait behind it; True if the store is to end after them.

        None if there was none for so long.
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

    def _run(self, database: _Database, jobs: Sequence[_Job]) -> tuple[Sequence[_Outcome], StoreFailure | None]:
        """Runs the jobs in one transaction of SQLite. The second value says why the store cannot go on."""
        execute = database.connection.execute
        state = database.revision, database.compact_revision
        committing = False
        try:
            execute("BEGIN")
            outcomes = [_attempt(database, job) for job in jobs]
            if database.revision - database.compact_revision >= 2 * self._retained_revisions:
                database.compact(database.revision - self._retained_revisions)
            if state != (database.revision, database.compact_revision):
                database.save_state()
            committing = True
            execute("COMMIT")
        except Exception as error:
            return self._undo(database, jobs, error, committing)
        return outcomes, self._keep_reserve(database)

    def _keep_reserve(self, database: _Database) -> StoreFailure | None:
        try:
            database.keep_reserve()
        except sqlite3.Error as error:
            return StoreFailure(f"the metadata store {self._path} failed: {error}")
        return None

    def _settle(self, database: _Database) -> StoreFailure | None:
        try:
            database.settle()
        except (sqlite3.Error, OSError) as error:
            if _code(error) == sqlite3.SQLITE_FULL:
                return None
            return StoreFailure(f"the metadata store {self._path} failed: {error}")
        return None

    def _undo(
        self, database: _Database, jobs: Sequence[_Job], error: Exception, committing: bool
    ) -> tuple[Sequence[_Outcome], StoreFailure | None]:
        """Nothing of a failed group happened, unless the commit itself failed. A full disk may get space again; after
        any other failure nobody knows what the file holds, so nothing more is promised until it is opened again."""
        full = _code(error) == sqlite3.SQLITE_FULL
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
            # The loop was closed without closing the store: nobody is left to be told.
            assert self._loop.is_closed()

    def _deliver(
        self, jobs: Sequence[_Job], outcomes: Sequence[_Outcome], compact_revision: int, failure: StoreFailure | None
    ) -> None:
        """In the loop: watchers and callers learn what was committed."""
        self._feed.publish([outcome.commit for outcome in outcomes if outcome.commit is not None])
        self._feed.forget(compact_revision)
        if failure is not None and self._refusal is None:
            self._refuse(failure)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():
                continue
            if outcome.error is not None:
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome.result)


def _attempt(database: _Database, job: _Job) -> _Outcome:
    try:
        return _Outcome(*job.run(database))
    except (Compacted, ValueError) as error:
        # The caller's mistake, found before anything was written.
        return _Outcome(error=error)


def _code(error: Exception) -> int | None:
    """SQLite's; None of errors that are not its own, as text in the file that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", None)
