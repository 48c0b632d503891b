"""Guarded Python functions: a failure quarantines the row's record, and the rest of the batch goes on.

    @guarded("risk double")
    def score(row):                     # a dict of the row's columns
        return {"risk": model(row["amount"])}

    def orders(orders):
        return score(orders)            # the same rows, with the column risk

Within a pipeline a row for which the function raises leaves the batch, with all other rows of its record. Outside of a
pipeline, in a test or a notebook, the failure is raised as ever. Failures of Spark's own expressions are not guarded
here: a pipeline finds their records by trying parts of the batch (`isolation.py`), which takes longer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.definition.errors import InvalidDefinition, Site, calling_site
from cordwood.pipelines.rows.watching import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RowFunction = Callable[[dict[str, Any]], Mapping[str, Any]]
BatchFunction = Callable[["pa.RecordBatch"], "pa.RecordBatch | pa.Table"]

_RESULT: Final = "_guarded"
_MAX_ERROR_LENGTH: Final = 500
"""Errors go into a header beside the record: one that repeats a large row would not fit."""


@dataclass
class Diverted:
    """Rows that leave a batch while it is made: (`_record`, `error`) of each guarded step."""

    persist: bool
    """False for streaming DataFrames, which cannot be persisted, and for a try that is thrown away."""
    count: bool = False
    """Failed rows are counted as they pass (`watching.py`)."""
    failures: "list[DataFrame]" = field(default_factory=list)
    kept: "list[DataFrame]" = field(default_factory=list)
    """Persisted results, so that a guarded function runs once for both the rows that pass and the rows that fail."""


_diverting: ContextVar[Diverted | None] = ContextVar("cordwood_diverting", default=None)


@contextmanager
def diverting(persist: bool, *, count: bool = False) -> Iterator[Diverted]:
    """Within this context, guarded functions divert rows instead of failing."""
    diverted = Diverted(persist, count)
    token = _diverting.set(diverted)
    try:
        yield diverted
    finally:
        _diverting.reset(token)


@dataclass(frozen=True)
class Guarded:
    """A guarded function: a DataFrame in, the same rows with the function's columns out."""

    function: RowFunction | BatchFunction
    schema: str
    arrow: bool
    site: Site

    def __call__(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        schema = self._schema()
        diverted = _diverting.get()
        taken = [name for name in rows.columns if name != RECORD]
        clash = sorted(set(schema.names) & set(taken))
        inputs = F.struct(*(F.col(f"`{name}`") for name in taken))
        if diverted is None:
            results = rows.withColumn(_RESULT, self._column(schema, raising=True)(inputs))
        else:
            if RECORD not in rows.columns:
                hint = f"keep {RECORD} in the select before it: it says which record to quarantine"
                raise InvalidDefinition(f"{self._name}: its rows have no column {RECORD}", self.site, hint)
            results = rows.withColumn(_RESULT, self._column(schema, raising=False)(inputs))
            failed = F.col(f"{_RESULT}.error")
            if diverted.count:
                results = counted(results, f"guarded {len(diverted.failures)}", failed)
            if diverted.persist:
                results = results.persist()
                diverted.kept.append(results)
            diverted.failures.append(results.where(failed.isNotNull()).select(RECORD, failed.alias("error")))
            results = results.where(failed.isNull())
        kept = [F.col(f"`{name}`") for name in rows.columns if name not in clash]
        made = [F.col(f"{_RESULT}.content")[name].alias(name) for name in schema.names]
        return results.select(*kept, *made)

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", "a guarded function")

    def _schema(self) -> "StructType":
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            schema = StructType.fromDDL(self.schema)
        except PySparkException as error:
            raise InvalidDefinition(f"{self._name}: {self.schema!r} is no schema", self.site) from error
        assert isinstance(schema, StructType)
        return schema

    def _column(self, schema: "StructType", *, raising: bool) -> Callable[..., Any]:
        import pyarrow as pa
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StringType, StructField, StructType

        arrow_type = pa.struct(to_arrow_schema(schema, timezone="UTC"))
        function: Any = self.function
        arrow = self.arrow

        def guard(rows: Any) -> Any:
            if arrow:
                return results_by_halves(rows, function, arrow_type, raising=raising)
            return results_row_by_row(rows.to_pylist(), function, arrow_type, (), raising=raising)

        guard.__annotations__ = {"rows": pa.Array, "return": pa.Array}
        returned = StructType([StructField("content", schema), StructField("error", StringType())])
        return F.arrow_udf(guard, returned)  # type: ignore[attr-defined, no-any-return]


def guarded(schema: str, *, arrow: bool = False) -> Callable[[Any], Guarded]:
    """Makes a Python function a guarded one. `schema` names the columns that it returns.

    The function is called for each row with a dict and returns a mapping. With `arrow=True` it is called with a
    RecordBatch of many rows and returns one of as many rows. If it raises, halves of the batch are tried until the
    failing rows are found, so its result for a row must not depend on the other rows.
    """
    site = calling_site()

    def guard(function: Any) -> Guarded:
        return Guarded(function, schema, arrow, site)

    return guard


# On the executors


def results_row_by_row(
    rows: Sequence[Any],
    function: Callable[[Any], Mapping[str, Any]],
    arrow_type: "pa.StructType",
    required: Sequence[str],
    *,
    raising: bool = False,
) -> "pa.Array":
    """(content, error) of every row. A null row has neither."""
    import pyarrow as pa

    contents: list[Any] = []
    errors: list[str | None] = []
    for row in rows:
        content, error = None, None
        if row is not None:
            try:
                content = dict(function(row))
                missing = next((name for name in required if content.get(name) is None), None)
                if missing is not None:
                    content, error = None, f"{missing} is missing or null"
            except Exception as failure:
                if raising:
                    raise
                content, error = None, _in_words(failure)
        contents.append(content)
        errors.append(error)
    try:
        column = pa.array(contents, arrow_type)
    except (pa.ArrowException, TypeError, ValueError):
        if raising:
            raise
        for index, content in enumerate(contents):
            try:
                pa.array([content], arrow_type)
            except (pa.ArrowException, TypeError, ValueError) as failure:
                contents[index], errors[index] = None, _in_words(failure)
        column = pa.array(contents, arrow_type)
    return _results(column, pa.array(errors, pa.string()))


def results_by_halves(rows: "pa.StructArray", function: BatchFunction, arrow_type: Any, *, raising: bool) -> "pa.Array":
    """(content, error) of every row, from a function of many rows. Rows that pass together are called together."""
    import pyarrow as pa

    try:
        made = function(pa.RecordBatch.from_struct_array(rows))
        if made.num_rows != len(rows):
            raise ValueError(f"{made.num_rows} rows returned for {len(rows)}")
        table = pa.Table.from_batches([made]) if isinstance(made, pa.RecordBatch) else made
        columns = [table.column(each.name).cast(each.type).combine_chunks() for each in arrow_type]
        content = pa.StructArray.from_arrays(columns, fields=list(arrow_type))
        return _results(content, pa.nulls(len(rows), pa.string()))
    except Exception as failure:
        if raising:
            raise
        if len(rows) <= 1:
            return _results(pa.nulls(len(rows), arrow_type), pa.array([_in_words(failure)] * len(rows), pa.string()))
        half = len(rows) // 2
        halves = [results_by_halves(part, function, arrow_type, raising=False) for part in (rows[:half], rows[half:])]
        return pa.concat_arrays(halves)


def _results(content: "pa.Array", error: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    return pa.StructArray.from_arrays([content, error], names=["content", "error"])


def _in_words(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"[:_MAX_ERROR_LENGTH]
