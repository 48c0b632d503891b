"""Counts a batch's inputs during its one pass, and believes a count only if the whole input was read.

Rows are counted by nodes in the plans of the outputs themselves (`DataFrame.observe`), so that counting costs no pass
of its own. Such a count has only the rows that passed, and a plan need not read all of its input: a limit stops early,
an optimizer that finds one side of a join empty does not read the other. A poison record that was not read would
vanish. So each count is looked up in the plan that was executed. It holds if between the counting node and the next
exchange, or the end of the plan, there are only operators that take their whole input: an exchange always does. If a
count does not hold, or the optimizer has removed it, the batch goes step by step.

Spark counts a stage that it has to repeat once (its accumulators keep the last attempt).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from cordwood.pipelines.definition.definition import ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import Row

_PREFIX: Final = "cordwood "
_METRICS: Final = "CollectMetricsExec"
_TAKE_ALL: Final = frozenset(
    {
        "ProjectExec",
        "FilterExec",
        "GenerateExec",
        "ExpandExec",
        "UnionExec",
        "SortExec",
        "WindowExec",
        "HashAggregateExec",
        "ObjectHashAggregateExec",
        "SortAggregateExec",
        "ArrowEvalPythonExec",
        "BatchEvalPythonExec",
        "ColumnarToRowExec",
        "WholeStageCodegenExec",
        "InputAdapter",
        "SerializeFromObjectExec",
        "DeserializeToObjectExec",
        _METRICS,
    }
)
"""Operators that take the whole input of every task that runs them."""
_TAKE_ALL_OR_NONE: Final = frozenset({"BroadcastHashJoinExec"})
"""Joins that read nothing of one side if the other is empty. A count below them holds unless it is zero."""
_EXCHANGES: Final = frozenset({"ShuffleExchangeExec", "BroadcastExchangeExec"})
_OURS: Final = "MapInArrowExec"
"""The last node of a plan that is executed here: the writer, which takes its input to the end. Other nodes of this kind
are the function's, and may stop early."""
_IN_ORDER: Final = frozenset(
    {"Project", "Filter", "Generate", "CollectMetrics", "SubqueryAlias", "ArrowEvalPython", "BatchEvalPython"}
)
"""Nodes of a logical plan that leave rows in their order and in their task."""
_SOURCE: Final = "LogicalRDD"


class _Took(IntEnum):
    """How many of a node's rows the operators above it take."""

    SOME = 0
    ALL_OR_NONE = 1
    ALL = 2

    def holds_for(self, rows: int) -> bool:
        return self is _Took.ALL or (self is _Took.ALL_OR_NONE and rows > 0)


@dataclass(frozen=True)
class Count:
    rows: int
    failed: int
    by_value: Mapping[str, int] = field(default_factory=dict)
    """The rows with each value of the column that was asked for."""


class Values(NamedTuple):
    """A column of text whose values are counted, each by itself."""

    column: str
    distinct: int
    """The most values that it has."""

    def aggregate(self) -> "Column":
        """One aggregate for all values: a batch is planned anew each time, and every aggregate adds to that. The
        sketch is exact for fewer values than it has room for, and null is one of them."""
        from pyspark.sql import functions as F

        room = self.distinct + 2
        return F.expr(f"approx_top_k({self.column}, {room}, {room}) AS by_value")


@dataclass
class Watched:
    """The counts of one pass. `names` are the counts that were asked for."""

    names: list[str] = field(default_factory=list)
    counts: dict[str, Count] = field(default_factory=dict)
    """The counts that hold."""

    def see(self, frame: "DataFrame") -> None:
        """Takes the counts out of the plan of a frame that was executed."""
        for name, row, took in _metrics(frame._jdf.queryExecution().executedPlan(), _Took.ALL, is_top=True):
            if name.startswith(_PREFIX) and took.holds_for(row.getLong(0)):
                by_value = _by_value(row.getList(2)) if row.length() > 2 else {}
                self.counts[name] = Count(row.getLong(0), row.getLong(1), by_value)

    @property
    def holds(self) -> bool:
        """True if every count that was asked for holds."""
        return all(name in self.counts for name in self.names)


_watching: ContextVar[Watched | None] = ContextVar("cordwood_watching", default=None)


@contextmanager
def watching() -> Iterator[Watched]:
    """Within this context, `counted` counts rows and `collected` examines executed plans."""
    watched = Watched()
    token = _watching.set(watched)
    try:
        yield watched
    finally:
        _watching.reset(token)


def counted(rows: "DataFrame", name: str, failed: Any = ERROR, values: Values | None = None) -> "DataFrame":
    """The same rows, counted as they pass, and with them those whose `failed` is not null, and those with each of the
    `values`."""
    from pyspark.sql import functions as F

    watched = _watching.get()
    assert watched is not None, "nobody watches"
    full = f"{_PREFIX}{name}"
    more = [] if values is None else [values.aggregate()]
    watched.names.append(full)
    return rows.observe(full, F.count(F.lit(1)).alias("rows"), F.count(failed).alias("failed"), *more)


def behind(rows: "DataFrame", name: str) -> "DataFrame":
    """The same rows, behind a node of the plan through which Spark pushes no filter. Without it, a function's filter
    is judged on records that were left out before the function."""
    from pyspark.sql import functions as F

    # Two nodes of one plan with different rows may not have the same name. No watcher looks for this count.
    return rows.observe(f"behind {name} {uuid4().hex}", F.count(F.lit(1)).alias("rows"))


def _by_value(counts: Any) -> dict[str, int]:
    return {each.getString(0): each.getLong(1) for each in counts if not each.isNullAt(0)}


def count_of(watched: Watched, name: str) -> Count:
    return watched.counts[f"{_PREFIX}{name}"]


def count_if_it_holds(watched: Watched, name: str) -> Count | None:
    return watched.counts.get(f"{_PREFIX}{name}")


def collected(frame: "DataFrame") -> "list[Row]":
    """`frame.collect()`, whose plan the watcher examines. The frame's last step has to take its input to the end."""
    found = frame.collect()
    saw(frame)
    return found


def saw(frame: "DataFrame") -> None:
    watched = _watching.get()
    if watched is not None:
        watched.see(frame)


def keeps_order(rows: "DataFrame") -> bool:
    """True if rows are in the order, and in the tasks, in which the source gave them."""
    return _keeps_order(rows._jdf.queryExecution().analyzed())


def task_count(source: "DataFrame") -> int | None:
    """The number of tasks that read a batch; None if that cannot be told without planning it."""
    plan = source._jdf.queryExecution().analyzed()
    return int(plan.rdd().getNumPartitions()) if _kind(plan) == _SOURCE else None


def _keeps_order(plan: Any) -> bool:
    while True:
        kind = _kind(plan)
        if kind == _SOURCE:
            return True
        children = _children(plan)
        if kind not in _IN_ORDER or len(children) != 1:
            return False
        (plan,) = children


def _metrics(plan: Any, took: _Took, *, is_top: bool) -> Iterator[tuple[str, Any, _Took]]:
    """Every counting node of a plan, and how many of its rows the operators above it take."""
    kind = _kind(plan)
    if kind == "AdaptiveSparkPlanExec":
        yield from _metrics(plan.executedPlan(), took, is_top=is_top)
        return
    if kind == "ResultQueryStageExec":
        yield from _metrics(plan.plan(), took, is_top=is_top)
        return
    if kind.endswith("QueryStageExec"):
        yield from _metrics(plan.plan(), _Took.ALL, is_top=False)
        return
    if kind == "InMemoryTableScanExec":
        # A task that reads a cached partition has computed all of it before.
        yield from _metrics(plan.relation().cachedPlan(), took, is_top=False)
        return
    if kind in _EXCHANGES:
        took = _Took.ALL
    elif kind in _TAKE_ALL_OR_NONE:
        took = min(took, _Took.ALL_OR_NONE)
    elif kind not in _TAKE_ALL and not (kind == _OURS and is_top):
        took = _Took.SOME
    if kind == _METRICS:
        yield plan.name(), plan.collectedMetrics(), took
    is_wrapping = kind in ("WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec")
    for child in _children(plan):
        yield from _metrics(child, took, is_top=is_top and is_wrapping)


def _children(plan: Any) -> Sequence[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]


def _kind(plan: Any) -> str:
    name: str = plan.getClass().getSimpleName()
    return name
