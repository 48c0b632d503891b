"""The search for poison records on Spark (`rows/isolation.py`): tries a batch's function on some of its records.

A job fails as a whole at its first failing task, and Spark's status store tells which task that was. The records of a
piece are sent to one task by a shuffle, and a node through which Spark pushes no filter keeps the function behind it.
"""

from collections.abc import Callable, Collection, Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from cordwood.model.quantities import count_in_words
from cordwood.pipelines.definition.definition import RECORD
from cordwood.pipelines.execution.spark_jobs import NewJobs
from cordwood.pipelines.rows.isolation import PIECES, Failed, Origin, Region, find_poison
from cordwood.pipelines.rows.spans import Span, within
from cordwood.pipelines.rows.watching import behind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Function = Callable[[Mapping[str, "DataFrame"]], "str | None"]
"""Runs the function, and what judges its outputs, on these inputs. Returns the error, or None."""
_MOST_AT_ONCE: Final = 100
"""The most records of a region that has but a few: where hashes collide."""


class PoisonSearch:
    """The search in one batch. `told` gets its state in words before each try."""

    def __init__(
        self, function: Function, inputs: "Mapping[str, DataFrame]", count: int, told: Callable[[str], None]
    ) -> None:
        self._function = function
        self._inputs = inputs
        self._count = count
        self._told = told
        self._tries = 0
        self._found = 0
        self._searched: Collection[str] = inputs

    def find(self, limit: int) -> dict[Origin, str]:
        """The records that fail alone. If there are none, those of one input that fail with all records of the others,
        as where both are joined."""
        found = find_poison(self._count, self, limit)
        others = list(self._inputs) if len(self._inputs) > 1 and not found else []
        for name in others:
            self._searched = [name]
            # Without any of its records the failure has another cause.
            if self.apart(Region(), frozenset(), ()) is None:
                found = find_poison(self._count, self, limit)
            if found:
                break
        return found

    def apart(self, region: Region, pieces: Set[int], without: Collection[Origin]) -> Failed | None:
        self._found = len(without)
        wanted = _piece_of(region).isin(sorted(pieces)) & _is_in(region)
        if without:
            wanted &= ~within([_span(each) for each in without])

        def part(rows: "DataFrame", name: str) -> "DataFrame":
            return behind(rows.where(wanted).repartitionById(PIECES, _piece_of(region)), name)

        jobs = NewJobs(self._context)
        error = self._try(part)
        if error is None:
            return None
        tasks = jobs.tasks_of_failure(PIECES)
        return Failed(tasks.failed & pieces, tasks.passed & pieces) if tasks is not None else Failed()

    def records(self, region: Region) -> Collection[Origin]:
        found = []
        for name in self._searched:
            place = self._inputs[name].select(f"{RECORD}.*").where(_is_in(region, address=""))
            rows = place.select("topic", "partition", "offset").distinct().limit(_MOST_AT_ONCE).collect()
            found += [Origin(row["topic"], row["partition"], row["offset"]) for row in rows]
        return sorted(found)

    def alone(self, record: Origin) -> str | None:
        return self._try(lambda rows, _: rows.where(within([_span(record)])))

    def _try(self, part: "Callable[[DataFrame, str], DataFrame]") -> str | None:
        self._tries += 1
        tries = f"{self._tries} {'try' if self._tries == 1 else 'tries'}"
        among = f"among {count_in_words(self._count, 'record')}"
        self._told(f"looking {among} for those that the function fails on ({tries}, {self._found} found)")
        return self._function(
            {name: part(rows, name) if name in self._searched else rows for name, rows in self._inputs.items()}
        )

    @property
    def _context(self) -> Any:
        return next(iter(self._inputs.values())).sparkSession.sparkContext


def _hash(address: str = f"{RECORD}.") -> "Column":
    from pyspark.sql import functions as F

    return F.xxhash64(*(F.col(f"{address}{name}") for name in ("topic", "partition", "offset")))


def _is_in(region: Region, address: str = f"{RECORD}.") -> "Column":
    from pyspark.sql import functions as F

    return _hash(address).bitwiseAND(F.lit((1 << region.bits) - 1)) == F.lit(region.value)


def _piece_of(region: Region) -> "Column":
    from pyspark.sql import functions as F

    return F.shiftrightunsigned(_hash(), region.bits).bitwiseAND(F.lit(PIECES - 1)).cast("int")


def _span(record: Origin) -> Span:
    return Span(record.topic, record.partition, record.offset, record.offset + 1)
