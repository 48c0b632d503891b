"""The events of a running pipeline: small JSON objects, one for each thing that happened, and their text for people.

The event of a batch has the parts of its time. One pass over the data does everything at once, so reading, decoding and
the function have no times of their own there. The parts that can be measured honestly are: for each output the time of
its job, with the longest wait for rows and the longest write of any task; the commit; Spark's own part of the batch;
and the rest of ours.

`rules` of a batch has the rows that break rules, by the rule's name: {"amount >= 0": {"dropped": 3}}, or "quarantined",
where whole records are counted. `quarantined_by_input` has the records that it set aside, by the name of the input.
`too_late` has the rows that came after the watermark of a stateful function, which Spark leaves out.

`failure.json` of an edition keeps the failure of its last run, for `status`. A finished batch removes it.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cordwood.pipelines.editions.editions import PipelineState

Event = Mapping[str, Any]
"""`event` names the kind: doing, started, batch, remark, caught-up, ended, failed."""
Tell = Callable[[Event], None]
SET_ASIDE: Final = "quarantined_by_input"
"""In the event of a batch, and in the progress that is kept of an edition."""


def line_of(event: Event) -> str:
    """An event as one line of JSON."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def in_words(event: Event, *, verbose: bool = False) -> str:
    """An event as one line for people; if `verbose`, with the parts of a batch's time."""
    match event["event"]:
        case "started":
            doing = "replays into" if event["replaying"] else "runs"
            return f"{event['pipeline']} {doing} edition {event['edition']} (version {event['version']})"
        case "batch":
            spent = spent_in_words(event) if verbose else None
            return _batch(event) + (f": {spent}" if spent else "")
        case "remark":
            return str(event["text"])
        case "doing":
            return f"{event['pipeline']} {event['edition']}: {event['text']} …"
        case "caught-up":
            return f"{event['pipeline']} {event['edition']}: caught up, {event['lag']:,} records behind the end"
        case "ended":
            return f"{event['pipeline']} {event['edition']}: {event['reason']}"
        case "failed":
            again = "" if event.get("again_in_s") is None else f"; again in {event['again_in_s']:g} s"
            who = " ".join(filter(None, (event["pipeline"], event["edition"])))
            return f"{who} failed: {event['message']}{again}"
        case kind:
            raise AssertionError(f"an event of no known kind: {kind}")


def is_empty_batch(event: Event) -> bool:
    """True for a batch that read nothing and wrote nothing: of offsets without records, as aborted transactions leave
    them."""
    if event["event"] != "batch" or event["rows_in"] != 0:
        return False
    return not any(event["rows_out"].values()) and not event["quarantined"]


def say(event: Event) -> None:
    """Prints the line for people."""
    if not is_empty_batch(event):
        print(in_words(event), flush=True)


def _batch(event: Event) -> str:
    moment = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).strftime("%H:%M:%S")
    parts = [f"{moment} batch {event['batch']}", "? in" if event["rows_in"] is None else f"{event['rows_in']:,} in"]
    parts += [f"{rows:,} to {output}" for output, rows in event["rows_out"].items()]
    parts += [f"{output} has it already" for output in event["repeated"]]
    if event["quarantined"]:
        parts.append(f"{event['quarantined']:,} quarantined")
    if event.get("too_late"):
        parts.append(f"{event['too_late']:,} too late")
    for rule, counts in event.get("rules", {}).items():
        parts += [f"{count:,} {outcome} by {rule}" for outcome, count in counts.items()]
    if event["lag"] is not None:
        parts.append(f"lag {event['lag']:,}")
    parts.append(f"{event['duration_ms'] / 1000:.1f} s")
    return ", ".join(parts)


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


def note_failure(state: PipelineState, edition: str, event: Event) -> None:
    """Writes down an event of the kind `failed`."""
    kept = {name: event[name] for name in ("code", "message", "hint")}
    state.files.replace(_path(state, edition), {**kept, "at_ms": int(time.time() * 1000)})


def clear_failure(state: PipelineState, edition: str) -> None:
    if _path(state, edition).exists():
        state.files.remove_file(_path(state, edition))


def last_failure(state: PipelineState, edition: str) -> Mapping[str, Any] | None:
    """`code`, `message`, `hint` and `at_ms`, if the edition has failed since its last batch."""
    return state.files.read(_path(state, edition))


def _path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "failure.json"
