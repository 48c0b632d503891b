"""The SQL that takes a staged batch into its table.

A merge takes the last staged row of each key, by the order that Spark has: null before everything, text byte by byte.
So all staged texts but keys are compared byte by byte (`collate "C"`), also with those of the table. Keys have the
collation of the table's key, whose index finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.postgresql.copying import PART
from cordwood.pipelines.postgresql.place import Database, named
from cordwood.pipelines.postgresql.relations import DELETED_AT, Columns
from cordwood.pipelines.tables.latest_rows import DELETED
from cordwood.pipelines.tables.merge_rules import merge_rules


@dataclass(frozen=True)
class Statements:
    """The statements for one staging table."""

    place: Database
    table: Table
    staging: str
    columns: Columns
    """The columns of the staged rows that go into the table."""
    order: Sequence[str]
    """The columns of the staged rows that order the rows of a key."""

    def make_staging(self, staged: Columns) -> str:
        """`staged` are all columns of the staged rows."""
        binary = {name for name, kind in staged.items() if kind == "text" and name not in self.table.key}
        collated = ' collate "C"'
        told = [f"{named(name)} {kind}{collated if name in binary else ''}" for name, kind in staged.items()]
        return f"create unlogged table {named(self.staging)} ({', '.join([*told, f'{PART} bigint'])})"

    def analyze_staging(self) -> str:
        return f"analyze {named(self.staging)}"

    def drop_staging(self) -> str:
        return f"drop table if exists {named(self.staging)}"

    def count(self, parts: Sequence[int]) -> str:
        return f"select count(*) from {self._of(parts)}"

    def repeated_key(self, parts: Sequence[int]) -> str:
        """A row if several staged rows have one key."""
        return f"select 1 from {self._of(parts)} group by {_list(self.table.key)} having count(*) > 1 limit 1"

    def append(self, parts: Sequence[int]) -> str:
        names = _list(self.columns)
        return f"insert into {named(self.place.relation)} ({names}) select {names} from {self._of(parts)}"

    def merge(self, parts: Sequence[int]) -> str:
        rules = merge_rules(self.table, '"')
        source = self._last(parts)
        if self.table.remember_deletes_ms is not None:
            # A row that is as new as the remembered delete comes after it, and a tombstone has no order.
            source = (
                f"select s.* from ({source}) s left join {named(self.place.memory)} t on {rules.same_key} "
                f"where t.{named(DELETED_AT)} is null or {rules.delete} or {rules.update}"
            )
        return (
            f"merge into {named(self.place.relation)} t using ({source}) s on {rules.same_key} "
            f"when matched and {rules.delete} then delete "
            f"when matched and {rules.update} then update set {_assigned(self.columns)} "
            f"when not matched and {rules.insert} then insert ({_list(self.columns)}) values ({_staged(self.columns)})"
        )

    def remember(self, parts: Sequence[int]) -> str:
        """Remembers the deletes of the batch that have an order."""
        rules, kept = merge_rules(self.table, '"'), list(dict.fromkeys([*self.table.key, *self.table.latest_by]))
        ordered = " or ".join(f"{named(name)} is not null" for name in self.table.latest_by)
        deletes = f"select * from ({self._last(parts)}) l where {named(DELETED)} and ({ordered})"
        at = named(DELETED_AT)
        return (
            f"merge into {named(self.place.memory)} t using ({deletes}) s on {rules.same_key} "
            f"when matched and {rules.delete} then update set {_assigned(kept)}, {at} = now() "
            f"when not matched then insert ({_list(kept)}, {at}) values ({_staged(kept)}, now())"
        )

    def _last(self, parts: Sequence[int]) -> str:
        """The last staged row of each key."""
        keys = _list(self.table.key)
        order = ", ".join([keys, *(f"{named(name)} desc nulls last" for name in self.order)])
        return f"select distinct on ({keys}) * from {self._of(parts)} order by {order}"

    def _of(self, parts: Sequence[int]) -> str:
        return f"{named(self.staging)} where {PART} in ({', '.join(map(str, parts))})"


def forget_deletes(place: Database, kept_ms: int) -> str:
    """Forgets remembered deletes whose time is over."""
    older = f"now() - interval '{kept_ms} milliseconds'"
    return f"delete from {named(place.memory)} where {named(DELETED_AT)} < {older}"


def _list(names: Sequence[str] | Columns) -> str:
    return ", ".join(map(named, names))


def _assigned(names: Sequence[str] | Columns) -> str:
    return ", ".join(f"{named(name)} = s.{named(name)}" for name in names)


def _staged(names: Sequence[str] | Columns) -> str:
    return ", ".join(f"s.{named(name)}" for name in names)
