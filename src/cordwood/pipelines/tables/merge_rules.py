"""How the rows of a batch go into a table with a key: the rules of the merge, and the files that it has to search.

The rules are SQL, one set for every merge engine, with `s` for the batch's row and `t` for the table's. Engines quote
names differently, so each passes its quote.

A merge without ranges reads the whole table. With ranges it skips every file outside of them, so its cost follows the
files that a batch touches. If a batch touches every file, ranges would only add a comparison for every row. The ranges
have every key of the batch that any file may hold: a key outside of them is in no file, and is inserted without a
search.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.latest_rows import DELETED

if TYPE_CHECKING:
    import pyarrow as pa


class MergeRules(NamedTuple):
    """Conditions in the order in which they are tried: the first that holds decides."""

    same_key: str
    delete: str
    """For a row whose key the table has."""
    update: str
    """For a row whose key the table has."""
    insert: str
    """For a row whose key the table lacks."""


def merge_rules(table: Table, quote: str) -> MergeRules:
    deleted = f"s.{quoted(DELETED, quote)}"
    return MergeRules(
        " and ".join(f"t.{quoted(key, quote)} = s.{quoted(key, quote)}" for key in table.key),
        f"{deleted} and {_comes_after(table.latest_by, quote, deletes=True)}",
        f"not {deleted} and {_comes_after(table.latest_by, quote)}",
        f"not {deleted}",
    )


def quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote


def _comes_after(latest_by: Sequence[str], quote: str, *, deletes: bool = False) -> str:
    """True if a row of the batch is not older than the table's row, by these columns. Null comes before everything, as
    it does within a batch. A tombstone has none of the columns and always deletes."""
    after = "true"
    for name in reversed(latest_by):
        ours, theirs = f"s.{quoted(name, quote)}", f"t.{quoted(name, quote)}"
        same = f"({ours} = {theirs} or ({ours} is null and {theirs} is null))"
        after = f"(({ours} is not null and {theirs} is null) or {ours} > {theirs} or ({same} and {after}))"
    if deletes and latest_by:
        after = f"({' and '.join(f's.{quoted(name, quote)} is null' for name in latest_by)} or {after})"
    return after


MAX_RANGES: Final = 32
_MAX_LITERAL_LENGTH: Final = 256


class FileBounds(NamedTuple):
    """The least and the greatest key of a file; None if the log does not tell."""

    least: Any
    greatest: Any


class MergeScope(NamedTuple):
    files: int
    """How many files may hold a key of the batch."""
    ranges: tuple[tuple[Any, Any], ...] | None
    """Ranges of the first column of the key, both ends included; None: anything."""

    def condition(self, key: str, quote: str) -> str | None:
        """The ranges as SQL on the table's rows (`t`)."""
        if self.ranges is None:
            return None
        name = f"t.{quoted(key, quote)}"
        within = [f"({name} >= {_literal(least)} and {name} <= {_literal(most)})" for least, most in self.ranges]
        return f"({' or '.join(within)})" if within else "false"


_MAX_LISTED: Final = 16
"""`deltalake` skips files by a list of values only if it is short."""


class PartitionScope(NamedTuple):
    """The partitions that may hold a key of the batch, as far as the key has partition columns: a row in another
    partition has another key. A partition column that the key lacks says nothing, because a row may have come from any
    partition."""

    values: Mapping[str, tuple[Any, ...]]
    """By partition column, the batch's values in ascending order."""

    @classmethod
    def of(cls, told: "pa.Table", columns: Sequence[str]) -> "PartitionScope":
        import pyarrow as pa
        import pyarrow.compute as pc

        found: dict[str, tuple[Any, ...]] = {}
        for name in columns:
            kind = told.schema.field(name).type
            if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
                values = pc.unique(told.column(name)).drop_null().to_pylist()
                if not any(isinstance(each, str) and not 0 < len(each) <= _MAX_LITERAL_LENGTH for each in values):
                    found[name] = tuple(sorted(values))
        return cls(found)

    def near(self, actions: "pa.Table") -> "pa.Table":
        """The files, of these of a log, that are in one of the partitions."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, values in self.values.items() if actions.num_rows else ():
            column = actions.column(f"partition.{name}")
            actions = actions.filter(pc.is_in(column, value_set=pa.array(values, column.type)))
        return actions

    def condition(self, quote: str) -> str | None:
        """The partitions as SQL on the table's rows (`t`)."""
        conditions = []
        for name, values in self.values.items():
            column = f"t.{quoted(name, quote)}"
            if not values:
                return "false"
            if len(values) <= _MAX_LISTED:
                conditions.append(f"{column} in ({', '.join(map(_literal, values))})")
            else:
                conditions.append(f"({column} >= {_literal(values[0])} and {column} <= {_literal(values[-1])})")
        return " and ".join(conditions) or None


def merge_scope(keys: "pa.ChunkedArray", files: Sequence[FileBounds]) -> MergeScope:
    """The scope of a merge. `keys` are those of the batch, none of them null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(keys.type) or pa.types.is_integer(keys.type)):
        return MergeScope(len(files), None)
    ends = pc.min_max(keys).as_py()
    least, greatest = ends["min"], ends["max"]
    known = [each for each in files if each.least is not None and each.greatest is not None]
    near = [each for each in known if each.least <= greatest and each.greatest >= least]
    unknown = len(files) - len(known)
    if unknown:
        return _told(len(near) + unknown, [(least, greatest)], len(files))
    if not near:
        return MergeScope(0, ())
    ordered = keys.combine_chunks().sort()
    found: list[tuple[Any, Any]] = []
    without: list[FileBounds] = []
    for each in near:
        # The batch's keys within the file's bounds, if there are any.
        first, last = _search(ordered, each.least, "left"), _search(ordered, each.greatest, "right") - 1
        if first <= last:
            found.append((ordered[first].as_py(), ordered[last].as_py()))
        else:
            without.append(each)
    return _told(len(found), _united(found, without), len(files))


def _search(ordered: "pa.Array", value: Any, side: str) -> int:
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        there = ordered[middle].as_py()
        if there < value or (side == "right" and there == value):
            low = middle + 1
        else:
            high = middle
    return low


def _united(ranges: Sequence[tuple[Any, Any]], without: Sequence[FileBounds]) -> list[tuple[Any, Any]]:
    """Unites ranges unless a file without a key of the batch lies between them: every range costs a comparison for each
    row that the merge reads, and pays only by a file that is skipped."""
    ascending = sorted(without)
    reach = list(accumulate((each.greatest for each in ascending), max))
    united: list[tuple[Any, Any]] = []
    for least, greatest in sorted(ranges):
        before = bisect_left(ascending, least, key=lambda each: each.least)
        is_apart = bool(united) and before > 0 and reach[before - 1] > united[-1][1]
        if united and not is_apart:
            united[-1] = (united[-1][0], max(united[-1][1], greatest))
        else:
            united.append((least, greatest))
    step = -(-len(united) // MAX_RANGES)
    return [(united[at][0], united[min(at + step, len(united)) - 1][1]) for at in range(0, len(united), step or 1)]


def _told(files: int, ranges: Sequence[tuple[Any, Any]], all_files: int) -> MergeScope:
    ends = [end for each in ranges for end in each]
    if files == all_files or any(isinstance(end, str) and len(end) > _MAX_LITERAL_LENGTH for end in ends):
        return MergeScope(files, None)
    return MergeScope(files, tuple(ranges))


def _literal(value: Any) -> str:
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    return quoted(value, "'") if isinstance(value, str) else str(value)
