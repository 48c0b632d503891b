"""Where the time of a batch goes: what a pipeline measures of it, and how it is told.

One pass over the data does everything at once, so reading, decoding and the function have no times of their own there.
What can be told apart honestly: for each output how long its job took, and of that how long the task that took longest
waited for its rows and how long it wrote; the commit; Spark's own part of the batch; and the rest of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spent:
    """What staging an output took. `rows_ms` and `write_ms` are 0 where that is not known."""

    total_ms: int
    rows_ms: int = 0
    write_ms: int = 0


def spent_in_batch(
    outputs: Mapping[str, Spent], *, staging_ms: int, commit_ms: int, is_one_pass: bool
) -> dict[str, Any]:
    """As it stands in a batch's event. `other`: calling the function, planning, and, for a batch that went step by
    step, the search for poison records."""
    return {
        "one_pass": is_one_pass,
        "outputs": {
            name: {"total": each.total_ms, "rows": each.rows_ms, "write": each.write_ms}
            for name, each in outputs.items()
        },
        "commit": commit_ms,
        "other": max(0, staging_ms - sum(each.total_ms for each in outputs.values())),
    }


def spent_in_words(spent: Mapping[str, Any]) -> str:
    """As one line for people."""
    parts = []
    for name, each in spent["outputs"].items():
        inside = f" (rows {_seconds(each['rows'])}, writing {_seconds(each['write'])})" if each["write"] else ""
        parts.append(f"{name} {_seconds(each['total'])}{inside}")
    parts.append(f"commit {_seconds(spent['commit'])}")
    parts.append(f"{'other' if spent['one_pass'] else 'finding poison'} {_seconds(spent['other'])}")
    if spent.get("spark") is not None:
        parts.append(f"Spark {_seconds(spent['spark'])}")
    return ", ".join(parts)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
