"""Finds out whether the tables of a pipeline can be written, before anything of the pipeline is made.

Only a write shows that an object store is there, that it takes the credentials, and that these may write: a small
object, which is removed at once. A database says so itself. A running pipeline does not come here: it waits for a store
or a database that is away.
"""

import uuid
from importlib.util import find_spec
from typing import Final

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.table_output import Table, TableFormat
from cordwood.pipelines.postgresql.place import Database, check_database
from cordwood.pipelines.tables.stores import ObjectStore, reason_of

_SOON: Final = {"max_retries": "2", "retry_timeout": "20s", "connect_timeout": "5s", "timeout": "10s"}
"""A person waits for the answer."""


def check_tables_can_be_written(pipeline: Pipeline) -> None:
    """Raises WrongState for a store or a database that is away, refuses the credentials or lets them only read."""
    for table in pipeline.tables.values():
        if table.format is TableFormat.ICEBERG and find_spec("pyiceberg") is None:
            hint = "in a clone: pip install '.[iceberg]'"
            raise WrongState(f"table {table.name}: Iceberg tables need pyiceberg, which is not installed", hint)
        if table.format is TableFormat.POSTGRESQL:
            assert table.location is not None, "a table of a database has its address"
            options = tuple(table.storage_options.items())
            check_database(Database(table.location, table.name, "", pipeline.name, "", given=options))
        elif table.location is not None:
            _try_to_write(table, pipeline.name)


def _try_to_write(table: Table, pipeline: str) -> None:
    from deltalake.exceptions import DeltaError

    assert table.location is not None
    place = ObjectStore(table.location, tuple({**table.storage_options, **_SOON}.items()))
    name = f"{pipeline}/trial-{uuid.uuid4()}"
    try:
        place.replace(name, b"written and removed before the pipeline runs")
        place.remove(name)
    except (OSError, DeltaError) as error:
        raise WrongState(
            f"table {table.name}: {table.location} cannot be written: {reason_of(error)}",
            "storage_options= names the store's address and region; credentials are those of the environment, or of "
            "storage_options=, and have to be allowed to write, list and delete there",
        ) from error
