"""Positions in a SQL database, beside the effects: a table with one row for each group and partition.

A row holds the next offset and a fence, a number that rises whenever a consumer takes the partition over. A writer
names the fence that it got and the position that it knows. So of two consumers that both believe to own a partition
only the last to take it over can write, and no consumer can write twice. Works with any DB-API 2.0 connection that
begins transactions by itself.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

TABLE = "cordwood_positions"
PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}

_KEY = "consumer_group = ? and topic_id = ? and partition_index = ?"
_CREATE = f"""
    create table if not exists {TABLE} (
        consumer_group varchar(255) not null,
        topic varchar(255) not null,
        topic_id varchar(40) not null,
        partition_index integer not null,
        next_offset bigint not null,
        fence bigint not null,
        primary key (consumer_group, topic_id, partition_index)
    )"""
_INSERT = f"""
    insert into {TABLE} (consumer_group, topic, topic_id, partition_index, next_offset, fence)
    select ?, ?, ?, ?, ?, 0 where not exists (select 1 from {TABLE} where {_KEY})"""


class Cursor(Protocol):
    """The part of a DB-API cursor that is used here."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: str, parameters: Any = ..., /) -> Any: ...

    def fetchone(self) -> Any: ...

    def close(self) -> Any: ...


class Connection(Protocol):
    """The part of a DB-API connection that is used here."""

    def cursor(self) -> Any: ...

    def commit(self) -> Any: ...

    def rollback(self) -> Any: ...


class Place(NamedTuple):
    """A partition as a group reads it. A topic that is deleted and created anew is another topic: it has another id."""

    group: str
    topic: str
    topic_id: str
    partition: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.group, self.topic_id, self.partition


class Held(NamedTuple):
    """A partition that was taken: where to go on, and in whose name."""

    next_offset: int
    fence: int


class SqlPositions:
    """The table of positions. Its connection must not be used for anything else meanwhile: uncommitted changes are
    rolled back."""

    def __init__(self, connection: Connection, paramstyle: str | None = None) -> None:
        """`paramstyle` is that of the connection's module (PEP 249), looked up by default."""
        style = paramstyle or _paramstyle_of(connection)
        if style not in PLACEHOLDERS:
            raise ValueError(f"a connection with paramstyle {style!r}: only {', '.join(PLACEHOLDERS)} are known here")
        if not _begins_transactions(connection):
            raise ValueError("the connection commits every statement by itself: effect and position would part")
        self._connection = connection
        self._placeholder = PLACEHOLDERS[style]

    def create_table(self) -> None:
        with self.transaction() as cursor:
            cursor.execute(_CREATE)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Runs the block in one transaction: all of its statements take effect, or none."""
        cursor: Cursor = self._connection.cursor()
        try:
            yield cursor
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()

    def take(self, place: Place, start_offset: Callable[[], int]) -> Held:
        """Takes a partition over from its owner. `start_offset` is called if the group has no position there."""
        if not self._is_known(place):
            self._insert(place, start_offset())
        with self.transaction() as cursor:
            # The write comes first and locks the row: the read below then sees the last owner's commits.
            self._execute(cursor, f"update {TABLE} set fence = fence + 1 where {_KEY}", *place.key)
            self._execute(cursor, f"select next_offset, fence from {TABLE} where {_KEY}", *place.key)
            next_offset, fence = cursor.fetchone()
        return Held(int(next_offset), int(fence))

    def advance(self, cursor: Cursor, place: Place, held: Held, next_offset: int) -> bool:
        """Moves the position, in the caller's transaction. False if another consumer took the partition or moved it."""
        statement = f"update {TABLE} set next_offset = ? where {_KEY} and fence = ? and next_offset = ?"
        self._execute(cursor, statement, next_offset, *place.key, held.fence, held.next_offset)
        return cursor.rowcount == 1

    def _is_known(self, place: Place) -> bool:
        with self.transaction() as cursor:
            self._execute(cursor, f"select 1 from {TABLE} where {_KEY}", *place.key)
            return cursor.fetchone() is not None

    def _insert(self, place: Place, next_offset: int) -> None:
        try:
            with self.transaction() as cursor:
                self._execute(cursor, _INSERT, *place, next_offset, *place.key)
        except Exception:
            # Another one inserted it at the same moment: drivers have no common error for that.
            if not self._is_known(place):
                raise

    def _execute(self, cursor: Cursor, statement: str, *parameters: object) -> None:
        cursor.execute(statement.replace("?", self._placeholder), parameters)


def _paramstyle_of(connection: Connection) -> str:
    module = type(connection).__module__.partition(".")[0]
    return str(getattr(sys.modules.get(module), "paramstyle", "unknown"))


def _begins_transactions(connection: Connection) -> bool:
    autocommit = getattr(connection, "autocommit", None)
    if autocommit is True:
        return False
    if isinstance(connection, sqlite3.Connection) and autocommit is not False:
        return connection.isolation_level is not None
    return True
