"""Batches in a table of PostgreSQL: staged by the tasks, merged by one transaction that also writes the batch's number.

The number's row is written first in that transaction. So a second transaction of the same batch waits for the end of
the first one, whose driver may have been killed while PostgreSQL was still at work, and then finds the number there.

The staging table is not in PostgreSQL's write-ahead log: its rows need not outlive a crash, because an interrupted
batch is staged again. PostgreSQL empties such a table when it recovers, so a merge counts the rows before it takes
them.

A batch without rows writes no number. So the edition keeps the numbers that its tables have, and a table whose number
is lower than the kept one was restored from an older copy.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.postgresql.copying import Part, copy_rows, plain_rows
from cordwood.pipelines.postgresql.place import Database, connected, one, relation_of
from cordwood.pipelines.postgresql.relations import (
    BATCHES,
    STAGING_ID_LENGTH,
    Columns,
    columns_for,
    drop_stale_staging,
    is_nested,
    prepare,
    table_gone,
    table_older,
)
from cordwood.pipelines.postgresql.statements import Statements, forget_deletes
from cordwood.pipelines.tables.data_files import DataFile
from cordwood.pipelines.tables.latest_rows import ordered_rows
from cordwood.pipelines.tables.staged import Change, Staged

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame

_FORGETTING_INTERVAL_MS: Final = 3_600_000


class PostgresBatches:
    def __init__(self, place: Database, table: Table, staging: Path) -> None:
        self._place = place.for_tasks()
        self._table = table
        self._opened: Connection[Any] | None = None
        self._statements: Statements | None = None
        """Those of the batch that is staged."""
        self._has_batches = place.made
        """Made anew, the table would lack the rows of these batches."""
        self._taken = dict(place.taken)
        self._forgotten_at_ms: int | None = None

    def last_batch(self, application: str) -> int | None:
        connection = self._connection()
        last = self._number(connection, application)
        self._has_batches = self._has_batches or last is not None
        if self._has_batches and relation_of(connection, self._place.relation) is None:
            raise table_gone(self._place)
        known = self._taken.get(application)
        if known is not None and (last is None or last < known):
            raise table_older(self._place, last, known)
        if last is not None:
            self._taken[application] = last
        return last

    @property
    def taken(self) -> Mapping[str, int]:
        """The last batch that the table is known to have of each application. It never has an older one again."""
        return self._taken

    def _number(self, connection: "Connection[Any]", application: str) -> int | None:
        if relation_of(connection, BATCHES) is None:
            return None
        key = (self._place.relation, application)
        found = one(connection, f"select batch from {BATCHES} where relation = %s and application = %s", *key)
        return None if found is None else int(found[0])

    def stage(self, rows: "DataFrame") -> Staged:
        began_s = time.monotonic()
        wanted = columns_for(self._table, rows.drop(RECORD).schema)
        ordered = ordered_rows(rows, self._table) if self._table.key else None
        staged, order = (rows.drop(RECORD), ()) if ordered is None else ordered
        staging = self.begin(wanted, columns_for(self._table, staged.schema), order)
        nested = [each.name for each in staged.schema if is_nested(each.dataType)]
        before_ms = round((time.monotonic() - began_s) * 1000)
        found = staged_parts(copy_rows(plain_rows(staged), nested, self._place, staging, self._table.key))
        return replace(found, write_ms=before_ms + found.write_ms)

    def begin(self, wanted: Columns, staged: Columns, order: Sequence[str]) -> str:
        """Makes the table ready for rows with the wanted columns, and an empty staging table, whose name it returns."""
        connection = self._connection()
        prepare(self._place, connection, wanted, self._table, may_make=not self._has_batches)
        drop_stale_staging(self._place, connection)
        staging = f"{self._place.staging_prefix}{uuid.uuid4().hex[:STAGING_ID_LENGTH]}"
        self._statements = Statements(self._place, self._table, staging, wanted, order)
        connection.execute(self._statements.make_staging(staged))
        return staging

    def commit(self, staged: Staged, application: str, batch_id: int) -> Change:
        if staged.rows:
            connection = self._connection()
            with connection.transaction():
                if self._takes_number(connection, application, batch_id):
                    self._write(connection, staged)
            self._has_batches = True
            self._taken[application] = batch_id
        self.discard(staged)
        return Change()

    def _takes_number(self, connection: "Connection[Any]", application: str, batch_id: int) -> bool:
        """False if the table has the batch."""
        # Spark counts on the batch from the commit on, so the database must not promise less; and another driver waits
        # for the number of one that has stopped in the middle.
        connection.execute(
            "select set_config('idle_in_transaction_session_timeout', '60s', true), case current_setting("
            "'synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', true) end"
        )
        taken = one(
            connection,
            f"insert into {BATCHES} as b (relation, application, batch) values (%s, %s, %s) "
            "on conflict (relation, application) do update set batch = excluded.batch where b.batch < excluded.batch "
            "returning batch",
            self._place.relation,
            application,
            batch_id,
        )
        return taken is not None

    def _write(self, connection: "Connection[Any]", staged: Staged) -> None:
        statements = self._statements
        assert statements is not None, "a batch is staged"
        parts = [int(file.name) for file in staged.files]
        (there,) = one(connection, statements.count(parts))
        if there != staged.rows:
            raise RuntimeError(
                f"{self._place}: {staged.rows} rows were staged and {there} are there: PostgreSQL was restarted "
                "meanwhile"
            )
        if not self._table.key:
            connection.execute(statements.append(parts))
            return
        if not statements.order and one(connection, statements.repeated_key(parts)) is not None:
            raise InvalidRows(
                f"table {self._table.name}: a batch has several rows of one {', '.join(self._table.key)}, "
                "and nothing says which is the last",
                "keep the column _record, or declare latest_by=",
            )
        connection.execute(statements.analyze_staging())
        if self._table.remember_deletes_ms is not None:
            connection.execute(statements.remember(parts))
        connection.execute(statements.merge(parts))

    def discard(self, staged: Staged) -> None:
        """Drops the staging table; that of a database which is away is dropped by a later batch."""
        import psycopg

        if self._statements is not None:
            with suppress(psycopg.OperationalError):
                self._connection().execute(self._statements.drop_staging())

    def tidy(self, now_ms: int) -> str | None:
        """Forgets deletes whose time is over, once an hour. The rest PostgreSQL vacuums by itself."""
        kept_ms = self._table.remember_deletes_ms
        is_time = self._forgotten_at_ms is None or now_ms - self._forgotten_at_ms > _FORGETTING_INTERVAL_MS
        if kept_ms is not None and is_time and relation_of(self._connection(), self._place.memory) is not None:
            self._forgotten_at_ms = now_ms
            self._connection().execute(forget_deletes(self._place, kept_ms))
        return None

    def _connection(self) -> "Connection[Any]":
        """The driver's connection, made anew if PostgreSQL has ended it since."""
        import psycopg

        if self._opened is not None:
            try:
                self._opened.execute("select 1")
                return self._opened
            except psycopg.Error:
                self._opened.close()
        self._opened = connected(self._place)
        return self._opened


def staged_parts(parts: Sequence[Part]) -> Staged:
    """The staged batch that these parts make up."""
    return Staged(
        tuple(DataFile(str(part.number), 0, part.rows, "", 0) for part in parts),
        sum(part.rows for part in parts),
        null_keys=sum(part.unstorable for part in parts),
        input_ms=max((part.input_ms for part in parts), default=0),
        write_ms=max((part.write_ms for part in parts), default=0),
    )
