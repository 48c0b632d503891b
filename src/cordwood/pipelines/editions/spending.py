"""The parts of a batch's time: what a pipeline measures, and how it is shown.

One pass over the data does everything at once, so reading, decoding and the function have no times of their own there.
The parts that can be measured honestly are: for each output the time of its job, with the longest wait for rows and the
longest write of any task; the commit; Spark's own part of the batch; and the rest of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spent:
    """The time that one output took."""

    stage_ms: int
    """The time of the output's job."""
    rows_ms: int = 0
    """The part of the job in which the task that waited longest waited for its rows."""
    write_ms: int = 0
    """The part of the job in which the task that wrote longest wrote."""
    commit_ms: int = 0
    """The time of making the batch visible in the output: for a table with a key, the merge."""


def spent_in_batch(
    outputs: Mapping[str, Spent], *, staging_ms: int, commit_ms: int, is_one_pass: bool
) -> dict[str, Any]:
    """The parts of a batch's time, as its event has them: no part includes another. `commit`: the part of no single
    output. `other`: calling the function, planning, and, for a batch that went step by step, the search for poison
    records."""
    return {
        "one_pass": is_one_pass,
        "outputs": {
            name: {
                "total": each.stage_ms + each.commit_ms,
                "rows": each.rows_ms,
                "write": each.write_ms,
                "commit": each.commit_ms,
            }
            for name, each in outputs.items()
        },
        "commit": max(0, commit_ms - sum(each.commit_ms for each in outputs.values())),
        "other": max(0, staging_ms - sum(each.stage_ms for each in outputs.values())),
    }


def spent_in_words(batch: Mapping[str, Any]) -> str | None:
    """The parts in a batch's event, as one line for people; None if the event has none."""
    spent, tables = batch.get("spent"), batch.get("tables", {})
    if not spent:
        return None
    parts = []
    for name, each in spent["outputs"].items():
        inside = (
            f"read, decode and function {_seconds(each['rows'])}, write {_seconds(each['write'])}, "
            f"commit {_seconds(each.get('commit', 0))}"
        )
        parts.append(f"{name} {_seconds(each['total'])} ({inside}{_files(tables.get(name))})")
    parts.append(f"commit {_seconds(spent['commit'])}")
    parts.append(f"{'other' if spent['one_pass'] else 'finding poison'} {_seconds(spent['other'])}")
    if spent.get("spark") is not None:
        parts.append(f"Spark {_seconds(spent['spark'])}")
    return ", ".join(parts)


def _files(change: Mapping[str, int] | None) -> str:
    """The files of a table that a batch searched, rewrote and added: the cost of the batch follows from them."""
    if change is None:
        return ""
    told = (("searched", "files_searched"), ("rewritten", "files_rewritten"), ("added", "files_added"))
    return f"; files: {', '.join(f'{change[name]} {word}' for word, name in told)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
