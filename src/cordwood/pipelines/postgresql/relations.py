"""The tables and views of an output in PostgreSQL: made, grown with their columns, led to, dropped.

Every table and view that is made here says in its comment who made it, so that nothing else is ever changed or dropped.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import InvalidRows, WrongState
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.postgresql.place import (
    Database,
    check_name_is_free,
    commit,
    connected,
    named,
    refusing_failures,
    relation_of,
)
from cordwood.pipelines.tables.merge_rules import quoted

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql.types import DataType, StructType

BATCHES: Final = "cordwood_batches"
DELETED_AT: Final = "_deleted_at"
STAGING_ID_LENGTH: Final = 8
_MAX_NAME_BYTES: Final = 63
_PLAIN_TYPES: Final = {
    "string": "text",
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
}
_LOCK_WITHIN: Final = "10s"
"""Readers that hold a table or the name for longer make a change of it fail, instead of all later readers wait behind
the change."""

Columns = Mapping[str, str]
"""Types of PostgreSQL by the column's name."""


def is_nested(kind: "DataType") -> bool:
    return kind.typeName() in ("struct", "array", "map")


def columns_for(table: Table, schema: "StructType") -> Columns:
    """The columns that take rows of this schema. Raises InvalidRows."""
    found: dict[str, str] = {}
    for each in schema:
        name = each.dataType.simpleString()
        plain = _PLAIN_TYPES.get(name) or (name.replace("decimal", "numeric") if name.startswith("decimal") else None)
        if is_nested(each.dataType):
            plain = "jsonb"
        if plain is None:
            raise InvalidRows(f"table {table.name}: PostgreSQL has no type for the column {each.name} ({name})")
        if plain == "jsonb" and each.name in table.latest_by:
            raise InvalidRows(
                f"table {table.name}: latest_by {each.name} is {name}, which PostgreSQL orders differently",
                "select what is in it as columns of their own, and give latest_by= these",
            )
        if len(each.name.encode()) > _MAX_NAME_BYTES:
            raise InvalidRows(
                f"table {table.name}: the column {each.name} has a name of more than {_MAX_NAME_BYTES} bytes"
            )
        found[each.name] = plain
    return found


def columns_of(connection: "Connection[Any]", relation: str) -> Columns | None:
    """The columns of a table or view; None if there is none."""
    found = connection.execute(
        "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a join pg_class c on "
        "c.oid = a.attrelid where c.relname = %s and c.relnamespace = current_schema()::regnamespace and a.attnum > 0 "
        "and not a.attisdropped order by a.attnum",
        (relation,),
    ).fetchall()
    return dict(found) or None


def prepare(
    place: Database, connection: "Connection[Any]", wanted: Columns, table: Table, *, may_make: bool = True
) -> None:
    """Makes sure that the table is there with all wanted columns, and that the name leads to it if it should. Raises
    WrongState if the table is to be made and must not be."""
    if len(place.staging_prefix) + STAGING_ID_LENGTH > _MAX_NAME_BYTES:
        text = f"table {place.name}: {place.relation} is too long for a name in PostgreSQL"
        raise InvalidRows(text, "choose a shorter name")
    with connection.transaction():
        _lock(connection, place)
        there = columns_of(connection, place.relation)
        if there is None:
            if not may_make:
                raise table_gone(place)
            _create(place, connection, wanted, table)
        else:
            _add_columns(place, connection, there, wanted)
        if table.remember_deletes_ms is not None:
            _create_memory(place, connection, wanted, table)
        if place.leads:
            lead(place, connection)


def table_gone(place: Database) -> WrongState:
    return WrongState(
        f"{place} has taken batches, and is gone: going on would lose their rows",
        f"bring the database back from a copy; or `cordwood pipeline replay {place.pipeline} --fresh` builds the "
        "outputs anew for a swap",
    )


def table_older(place: Database, last: int | None, known: int) -> WrongState:
    now = "has none of its batches now" if last is None else f"ends at batch {last} now"
    return WrongState(
        f"{place} has taken batch {known}, and {now}: the database was restored from an older copy, and going on would "
        "lose the rows between",
        f"bring back a copy that has batch {known}; or `cordwood pipeline replay {place.pipeline} --fresh` builds the "
        "outputs anew for a swap",
    )


def _create(place: Database, connection: "Connection[Any]", wanted: Columns, table: Table) -> None:
    connection.execute(f"create table {named(place.relation)} ({_declared(wanted, table.key)})")
    _comment(connection, "table", place.relation, f"cordwood {place.owner}")
    connection.execute("select pg_advisory_xact_lock(hashtext('cordwood'))")  # other pipelines make the next one, too
    connection.execute(
        f"create table if not exists {BATCHES} "
        "(relation text, application text, batch bigint not null, primary key (relation, application))"
    )


def _create_memory(place: Database, connection: "Connection[Any]", wanted: Columns, table: Table) -> None:
    if relation_of(connection, place.memory) is None:
        columns = {name: wanted[name] for name in (*table.key, *table.latest_by)}
        columns[DELETED_AT] = "timestamp with time zone not null"
        connection.execute(f"create table {named(place.memory)} ({_declared(columns, table.key)})")


def _declared(columns: Columns, key: Sequence[str]) -> str:
    parts = [f"{named(name)} {kind}" for name, kind in columns.items()]
    if key:
        parts.append(f"primary key ({', '.join(map(named, key))})")
    return ", ".join(parts)


def _add_columns(place: Database, connection: "Connection[Any]", there: Columns, wanted: Columns) -> None:
    if not _is_own(place, connection):
        raise WrongState(
            f"{place} is there already and belongs to another edition",
            f'`drop table "{place.relation}"` in the database removes it, if nothing needs it any more',
        )
    changed = next((name for name, kind in wanted.items() if there.get(name, kind) != kind), None)
    if changed is not None:
        raise InvalidRows(
            f"table {place.name}: the column {changed} was {there[changed]} and is now {wanted[changed]}",
            "a change of types is a new version: replay it beside the live table, and swap",
        )
    for name, kind in wanted.items():
        if name not in there:
            connection.execute(f"alter table {named(place.relation)} add column {named(name)} {kind}")


def _is_own(place: Database, connection: "Connection[Any]") -> bool:
    found = relation_of(connection, place.relation)
    return found is not None and found.comment == f"cordwood {place.owner}"


def lead(place: Database, connection: "Connection[Any]") -> None:
    """Has the name lead to the table, inside a transaction: readers get the one table or the other, whole. Nothing
    changes if the table does not exist yet, or the name leads to it."""
    import psycopg

    columns = columns_of(connection, place.relation)
    if columns is None:
        return
    comment = f"cordwood {place.pipeline}: {place.relation}"
    view = relation_of(connection, place.name)
    if view is not None and view.comment == comment and columns_of(connection, place.name) == columns:
        return
    check_name_is_free(place, connection)
    selected = f"{named(place.name)} as select {', '.join(map(named, columns))} from {named(place.relation)}"
    try:
        with connection.transaction():
            connection.execute(f"create or replace view {selected}")
    except psycopg.errors.InvalidTableDefinition:
        # The columns differ from those of the other table: only a new view can have them.
        granted = _granted(connection, place.name)
        connection.execute(f"drop view {named(place.name)}")
        connection.execute(f"create view {selected}")
        for privilege, role in granted:
            connection.execute(f"grant {privilege} on {named(place.name)} to {role}")
    _comment(connection, "view", place.name, comment)


def _granted(connection: "Connection[Any]", view: str) -> list[tuple[str, str]]:
    """The privileges of others on a view, and whose they are, as SQL has it."""
    found: list[tuple[str, str]] = connection.execute(
        "select a.privilege_type, coalesce(quote_ident(r.rolname), 'public') from pg_class c, aclexplode(c.relacl) a "
        "left join pg_roles r on r.oid = a.grantee where c.relname = %s and "
        "c.relnamespace = current_schema()::regnamespace and a.grantee <> c.relowner",
        (view,),
    ).fetchall()
    return found


def names_leading(places: Sequence[Database]) -> AbstractContextManager[None]:
    """Has names lead to these tables when the block ends well. A crash within it leaves the names as they were, and the
    next run of the live edition moves them."""
    left = "the name still leads to the table of the edition before"
    return _changing(
        places, lead, "made the one that its name leads to", left, "`cordwood pipeline run` moves the name"
    )


def dropping(places: Sequence[Database]) -> AbstractContextManager[None]:
    """Drops these tables when the block ends well. After a crash within it the tables are still there."""
    return _changing(places, _drop, "dropped", "the table is still there", "`drop table` in the database removes it")


@contextmanager
def _changing(
    places: Sequence[Database],
    change: "Callable[[Database, Connection[Any]], None]",
    cannot_be: str,
    left: str,
    hint: str,
) -> Iterator[None]:
    """Changes tables around the block, those of one database in one transaction: a refusal of the database comes before
    the block. `left` and `hint` are for a database that is gone at the end of it."""
    with ExitStack() as stack:
        begun: dict[Hashable, tuple[Database, Connection[Any]]] = {}
        for place in places:
            with refusing_failures(place, cannot_be):
                at = (place.url, place.given)
                if at not in begun:
                    begun[at] = place, stack.enter_context(connected(place))
                    begun[at][1].execute("begin")
                _lock(begun[at][1], place)
                change(place, begun[at][1])
        yield
        for place, connection in begun.values():
            commit(place, connection, left, hint)


def _drop(place: Database, connection: "Connection[Any]") -> None:
    drop_stale_staging(place, connection)
    if _is_own(place, connection):
        connection.execute(f"drop table {named(place.relation)}")
        connection.execute(f"drop table if exists {named(place.memory)}")
        connection.execute(f"delete from {BATCHES} where relation = %s", (place.relation,))


def drop_stale_staging(place: Database, connection: "Connection[Any]") -> None:
    """Drops tables of batches that were interrupted. One that a task still writes to is left for later."""
    import psycopg

    prefix = place.staging_prefix
    found = connection.execute(
        "select relname from pg_class where left(relname, %s) = %s and length(relname) = %s and "
        "relname ~ '[0-9a-f]+$' and relkind = 'r' and relpersistence = 'u' and "
        "relnamespace = current_schema()::regnamespace",
        (len(prefix), prefix, len(prefix) + STAGING_ID_LENGTH),
    ).fetchall()
    for (name,) in found:
        try:
            with connection.transaction():
                connection.execute(f"lock table {named(name)} in access exclusive mode nowait")
                connection.execute(f"drop table {named(name)}")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
            continue


def _lock(connection: "Connection[Any]", place: Database) -> None:
    """Until the end of the transaction: two runs that make tables of one name at once would fail in odd ways."""
    connection.execute(f"set local lock_timeout = '{_LOCK_WITHIN}'")
    connection.execute("select pg_advisory_xact_lock(hashtext('cordwood'), hashtext(%s))", (place.name,))


def _comment(connection: "Connection[Any]", kind: str, name: str, text: str) -> None:
    connection.execute(f"comment on {kind} {named(name)} is {quoted(text, chr(39))}")
