"""The place of an edition's table in a PostgreSQL database, connections to it, and its failures in the user's words.

    orders               a view, which readers ask for: it leads to the live edition's table
    orders__v2           the table of the edition v2; v2.2 has orders__v2_2
    orders__shared       the table of an output that is not replayable
    orders__v2__deleted  the deletes that the table remembers
    orders__v2__s…       rows of a batch that is being made; nobody reads them

A failure while a pipeline runs is raised as psycopg raises it, and the batch is tried again. Commands, and a run before
its first batch, refuse instead.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.tables.merge_rules import quoted

if TYPE_CHECKING:
    from psycopg import Connection

SHARED: Final = "shared"
_CONNECT_WITHIN_S: Final = 15
_LEAST_VERSION: Final = 15
"""MERGE came with PostgreSQL 15."""
_PASSWORD_HINT: Final = (
    "the password comes from PGPASSWORD or ~/.pgpass, or from os.environ[…] in the definition: an edition keeps none"
)


@dataclass(frozen=True)
class Database:
    """One edition's table. It goes to the executors, with any credentials of the definition; nothing prints them."""

    url: str
    name: str
    """The name that readers ask for."""
    edition: str
    pipeline: str
    owner: str
    """The edition that made the table, told apart from an earlier one of the same name."""
    leads: bool = field(default=False, compare=False)
    """True if the name is to lead to this table."""
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    made: bool = field(default=False, compare=False)
    """True if the edition knows that the table has taken batches: it is not made again."""
    taken: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """The last batch that the table has taken of each application, as the edition knows."""

    def __str__(self) -> str:
        return f"{self.relation} at {self.url}"

    @property
    def relation(self) -> str:
        return f"{self.name}__{self.edition.replace('.', '_')}"

    @property
    def memory(self) -> str:
        return f"{self.relation}__deleted"

    @property
    def staging_prefix(self) -> str:
        return f"{self.relation}__s"

    def with_options(self, more: Mapping[str, str]) -> "Database":
        return replace(self, given=tuple({**dict(self.given), **more}.items()))

    def for_tasks(self) -> "Database":
        """The place as executors need it, which may lack the environment of the driver."""
        password = os.environ.get("PGPASSWORD")
        return self.with_options({"password": password, **dict(self.given)}) if password else self


def connected(place: Database) -> "Connection[Any]":
    """A connection, which commits each statement that is in no transaction block."""
    check_driver(place.name)
    import psycopg

    options: dict[str, Any] = {
        "application_name": f"cordwood {place.pipeline}",
        "client_encoding": "UTF8",
        "prepare_threshold": None,  # a pooler may give each transaction another session
        **dict(place.given),
    }
    if "connect_timeout=" not in place.url:
        options["connect_timeout"] = _CONNECT_WITHIN_S
    return psycopg.connect(place.url, autocommit=True, **options)


def check_driver(table: str) -> None:
    """Raises WrongState where psycopg is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        hint = "in a clone: pip install '.[postgresql]'"
        raise WrongState(f"table {table}: tables of PostgreSQL need psycopg ({error})", hint) from error


def named(name: str) -> str:
    """The name as SQL has it."""
    return quoted(name, '"')


def one(connection: "Connection[Any]", query: str, *values: Any) -> Any:
    return connection.execute(query, values or None).fetchone()


@contextmanager
def refusing_failures(place: Database, cannot_be: str) -> Iterator[None]:
    """Turns a failure of the database into a refusal."""
    check_driver(place.name)
    import psycopg

    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        hint = "readers hold it for long; pg_stat_activity names them, and the same command tries again"
        raise WrongState(f"{place} cannot be {cannot_be}: {_told(error)}", hint) from error
    except psycopg.OperationalError as error:
        raise WrongState(f"{place.url} cannot be reached: {_told(error)}", _hint(str(error))) from error
    except psycopg.Error as error:
        raise WrongState(f"{place} cannot be {cannot_be}: {_told(error)}", error.diag.message_detail or "") from error


def commit(place: Database, connection: "Connection[Any]", left: str, hint: str) -> None:
    """Ends a transaction of a command. `left` says what a database that is gone by now leaves behind."""
    import psycopg

    try:
        connection.execute("commit")
    except psycopg.Error as error:
        raise WrongState(f"{place}: {left}: {_told(error)}", hint) from error


def _told(error: Exception) -> str:
    """The first line of the failure that names a cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("Is the server running", "Multiple connection attempts"))]
    return (causes or lines or [type(error).__name__])[0]


def _hint(text: str) -> str:
    if "password" in text or "authentication" in text:
        return _PASSWORD_HINT
    if "does not exist" in text:
        return "create it, or correct the address"
    return "is PostgreSQL running there? `psql` with this address tries the same"


def check_database(place: Database) -> None:
    """Refuses a database that is away, cannot hold the table, or has another one of this name. Nothing is changed."""
    with refusing_failures(place, "checked"), connected(place) as connection:
        version = connection.info.server_version // 10_000
        if version < _LEAST_VERSION:
            hint = f"{_LEAST_VERSION} or later has"
            raise WrongState(f"{place.url} is PostgreSQL {version}, which has no MERGE", hint)
        encoding, is_read_only, schema, may_create = one(
            connection,
            "select current_setting('server_encoding'), current_setting('transaction_read_only') = 'on', "
            "current_schema(), has_schema_privilege(current_schema(), 'create')",
        )
        if encoding != "UTF8":
            hint = "a database that was created with encoding 'UTF8' can"
            raise WrongState(f"{place.url} has the encoding {encoding}, which cannot hold every text", hint)
        if is_read_only:
            hint = "the address of the primary takes writes"
            raise WrongState(f"{place.url} takes no writes: it is a standby, or its default is read only", hint)
        if schema is None:
            raise WrongState(
                f"{place.url} has no schema for new tables: none of its search_path exists",
                "create it, or name another in the address: ?options=-csearch_path%3Dname",
            )
        if not may_create:
            raise WrongState(
                f"{connection.info.user} may not create tables in the schema {schema} of {place.url}",
                f"`grant create on schema {schema} to {connection.info.user}`, as its owner",
            )
        check_name_is_free(place, connection)


@dataclass(frozen=True)
class Relation:
    """A table or a view that is there."""

    kind: str
    comment: str


def relation_of(connection: "Connection[Any]", name: str) -> Relation | None:
    """The table or view of this name; None if there is none."""
    found = one(
        connection,
        "select relkind::text, coalesce(obj_description(oid, 'pg_class'), '') from pg_class "
        "where relname = %s and relnamespace = current_schema()::regnamespace",
        name,
    )
    return None if found is None else Relation(*found)


def check_name_is_free(place: Database, connection: "Connection[Any]") -> None:
    """Refuses a table or a view of the readers' name that the pipeline did not make."""
    found = relation_of(connection, place.name)
    if found is not None and not (found.kind == "v" and found.comment.startswith(f"cordwood {place.pipeline}: ")):
        raise WrongState(
            f"{place.url} has a table or view {place.name} already, which {place.pipeline} did not make",
            "choose another name: the pipeline makes its tables itself",
        )
