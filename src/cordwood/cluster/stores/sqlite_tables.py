"""The tables of the metadata store of one node, read and written inside of SQLite's transactions.

Table `history` has one row per key and revision, as in etcd: the newest row of a key is its state, a row without a
value is a deletion. Compaction removes superseded rows. There is no index by revision: only a watch that starts in the
past reads by revision, and metadata is small enough for a scan.

Table `leased` has the lease of each row that was put under one. Leases themselves are not stored: the process that has
the file open grants them, so all rows of the table at an opening belong to leases that have ended.

The file and its WAL hold free pages in reserve: on a full disk a broker can still delete a topic, which frees space. A
clean stop removes the WAL, and another program may fill the disk before the next start, which has to write as well: so
a file of zeros beside the store reserves space, which is given up when a commit finds none.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import suppress

from cordwood.cluster.stores.feed import Commit
from cordwood.cluster.stores.integrity import (
    FORMAT_VERSION,
    FORMAT_WITHOUT_CHECKSUMS,
    State,
    read_state,
    row_checksum,
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
    Put,
    StoreFailure,
    TxnResult,
    holds,
    prefix_end,
)
from cordwood.cluster.stores.opening_checks import check_store
from cordwood.cluster.stores.owner_only import OWNER_ONLY, create_for_owner, keep_to_owner
from cordwood.cluster.stores.witness import LEFT_OUT, witness_path, write_witness

_LAST_KEY = "\U0010ffff"
_RESERVE_PAGES = 256
_CHECKPOINT_PAGES = 192
"""The WAL begins again after this many pages, so that it stays within its reserve."""
_RESERVE_FILE_BYTES = 1 << 20
"""More than the WAL takes until it begins again."""
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
_LEASED_TABLE = """
CREATE TABLE IF NOT EXISTS leased (
    key TEXT NOT NULL,
    mod_revision INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    PRIMARY KEY (key, mod_revision)
) WITHOUT ROWID
"""


def sqlite_code(error: Exception) -> int | None:
    """SQLite's error code; None for other errors, such as text in the file that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", None)


class Database:
    """The store's tables. Methods are synchronous; the caller begins and commits the transaction."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._reserve_file = f"{path}-reserve"
        check_store(path)
        for file in (path, f"{path}-wal", witness_path(path)):
            keep_to_owner(file)
        # SQLite gives the write-ahead log the mode of the database.
        create_for_owner(path)
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            self._prepare(path)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, path: str) -> None:
        self._reserved_bytes = _size(self._reserve_file)
        execute = self.connection.execute
        execute("PRAGMA locking_mode=EXCLUSIVE")
        mode = execute("PRAGMA journal_mode=WAL").fetchone()[0]
        assert mode == "wal", f"SQLite chose journal mode {mode}"
        execute("PRAGMA synchronous=FULL")
        execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        try:
            self._prepare_tables(path)
        except sqlite3.OperationalError as error:
            if sqlite_code(error) != sqlite3.SQLITE_FULL or not self.make_room():
                raise
            if self.connection.in_transaction:
                execute("ROLLBACK")
            self._prepare_tables(path)
        self.keep_reserve()

    def _prepare_tables(self, path: str) -> None:
        execute = self.connection.execute
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
        execute(_LEASED_TABLE)
        self.restore_state()
        self._end_former_leases()
        execute("COMMIT")

    def _end_former_leases(self) -> None:
        """Removes the keys of leases that a former process held, in one revision."""
        leased = self._leased()
        self._once_leased = {key for key, _, _ in leased}
        """All keys of the table `leased`, and perhaps more."""
        self.first_lease = 1 + max((lease for _, _, lease in leased), default=0)
        """The first id that no lease had whose keys the history knows."""
        if leased and self.drop(self.leased_keys()) is not None:
            self.save_state()

    def _begin(self, state: State) -> None:
        self.connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?)", (*state, state.checksum))
        self.connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")

    def _add_checksums(self) -> None:
        """Converts a file of the format without checksums, trusting its rows."""
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
        """Copies the log into the file, and writes the witness. Called between transactions."""
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        try:
            write_witness(self._path, self.revision, self._all_but_partitions())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def keep_reserve(self) -> None:
        """Fills up the free pages of the file, if the disk has space. Called between transactions."""
        execute = self.connection.execute
        self._fill_reserve_file()
        (free_pages,) = execute("PRAGMA freelist_count").fetchone()
        if free_pages >= _RESERVE_PAGES // 2:
            return
        (page_size,) = execute("PRAGMA page_size").fetchone()
        try:
            # Two transactions: pages that one transaction both takes and frees are never written.
            execute("INSERT INTO reserve VALUES (zeroblob(?))", (_RESERVE_PAGES * page_size,))
            execute("PRAGMA wal_checkpoint(RESTART)")
            execute("DELETE FROM reserve")
        except sqlite3.OperationalError as error:
            if sqlite_code(error) != sqlite3.SQLITE_FULL:
                raise

    def _fill_reserve_file(self) -> None:
        """Writes the missing part of the reserve file, if the disk has space.

        Something else with its name, such as a directory or a link, stays as it is: the store goes on without a
        reserve.
        """
        if self._reserved_bytes >= _RESERVE_FILE_BYTES:
            return
        with suppress(OSError), open(self._reserve_file, "ab", buffering=0, opener=_open_no_link) as file:
            while (missing := _RESERVE_FILE_BYTES - file.tell()) > 0:
                file.write(bytes(min(missing, 1 << 16)))
        self._reserved_bytes = _size(self._reserve_file)

    def make_room(self) -> bool:
        """Makes room for the WAL on a full disk, between transactions; False if there is none to make."""
        self._reserved_bytes = 0
        if not _size(self._reserve_file):
            return False
        try:
            os.unlink(self._reserve_file)
        except OSError:
            return False
        return True

    def _all_but_partitions(self) -> Sequence[KeyValue]:
        rows = self.connection.execute(
            "SELECT key, value, create_revision, max(mod_revision) FROM history WHERE key < ? OR key >= ? GROUP BY key",
            (LEFT_OUT, prefix_end(LEFT_OUT)),
        )
        return [KeyValue(*row) for row in rows if row[1] is not None]

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
        if row is None or row[0] is None:
            return None
        value, created, modified = row
        lease = None
        if key in self._once_leased:
            lease = self.connection.execute(
                "SELECT lease FROM leased WHERE key = ? AND mod_revision = ?", (key, modified)
            ).fetchone()
        return KeyValue(key, value, created, modified, 0 if lease is None else lease[0])

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
        items = [KeyValue(key, value, created, modified) for key, value, created, modified in rows if value is not None]
        if self._once_leased:
            leases = {(key, modified): lease for key, modified, lease in self._leased()}
            items = [item._replace(lease=leases.get((item.key, item.mod_revision), 0)) for item in items]
        return Listing(revision, items)

    def _leased(self) -> Sequence[tuple[str, int, int]]:
        return self.connection.execute("SELECT key, mod_revision, lease FROM leased").fetchall()

    def leased_keys(self, of_lease: int | None = None) -> Sequence[str]:
        """The keys that belong to a lease, or to any."""
        return [
            key
            for key, mod_revision, lease in self._leased()
            if of_lease in (None, lease) and (item := self.get(key)) is not None and item.mod_revision == mod_revision
        ]

    def drop(self, keys: Sequence[str]) -> Commit | None:
        """Removes keys in one revision."""
        return self.txn((), [Delete(key) for key in keys])[1]

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> tuple[TxnResult, Commit | None]:
        if not all(holds(compare, self.get(compare.key)) for compare in compares):
            return TxnResult(False, self.revision), None
        revision = self.revision + 1
        events: dict[str, Event] = {}
        leases: list[tuple[str, int, int]] = []
        for operation in operations:
            if isinstance(operation, Put):
                old = self.get(operation.key)
                created = revision if old is None else old.create_revision
                events[operation.key] = Event(operation.key, operation.value, created, revision)
                if operation.lease:
                    leases.append((operation.key, revision, operation.lease))
                    self._once_leased.add(operation.key)
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
        self.connection.executemany("INSERT INTO leased VALUES (?, ?, ?)", leases)
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
        # Superseded rows go first, then the remaining deletions: a deletion removed first would bring back the row that
        # it supersedes.
        self._delete(
            "DELETE FROM history AS old WHERE mod_revision < ?1 AND EXISTS (SELECT 1 FROM history AS newer "
            "WHERE newer.key = old.key AND newer.mod_revision > old.mod_revision AND newer.mod_revision <= ?1)",
            (revision,),
        )
        self._delete("DELETE FROM history WHERE mod_revision <= ? AND value IS NULL", (revision,))
        self.connection.execute(
            "DELETE FROM leased WHERE NOT EXISTS (SELECT 1 FROM history "
            "WHERE history.key = leased.key AND history.mod_revision = leased.mod_revision)"
        )
        self.compact_revision = revision

    def _delete(self, statement: str, parameters: tuple[int, ...]) -> None:
        gone = self.connection.execute(f"{statement} RETURNING checksum", parameters).fetchall()
        self._rows = self._rows.with_rows(-len(gone), -sum(checksum for (checksum,) in gone))


def _size(path: str) -> int:
    """The size of a file; 0 if there is none, or if something else has its name."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file, but follows no link, and does not wait for the reader of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, OWNER_ONLY)
