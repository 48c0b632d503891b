"""Rules by which a row of a batch replaces, deletes or adds a row of the table: one set for every merge engine.

The rules are SQL, with `s` for the batch's row and `t` for the table's. Engines quote names differently, so each passes
its quote.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cordwood.pipelines.definition.definition import Table
from cordwood.pipelines.tables.latest_rows import DELETED


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
