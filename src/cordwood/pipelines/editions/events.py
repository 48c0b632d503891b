"""The events of a running pipeline: small JSON objects, one for each thing that happened, and their text for people."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from cordwood.pipelines.editions.spending import spent_in_words

Event = Mapping[str, Any]
"""`event` names the kind: doing, started, batch, remark, caught-up, ended, failed."""
Tell = Callable[[Event], None]


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
            return f"{event['pipeline']} {event['edition']} failed: {event['message']}{again}"
        case kind:
            raise AssertionError(f"an event of no known kind: {kind}")


def say(event: Event) -> None:
    """Prints the line for people."""
    print(in_words(event), flush=True)


def _batch(event: Event) -> str:
    moment = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).strftime("%H:%M:%S")
    parts = [f"{moment} batch {event['batch']}", "? in" if event["rows_in"] is None else f"{event['rows_in']:,} in"]
    parts += [f"{rows:,} to {output}" for output, rows in event["rows_out"].items()]
    parts += [f"{output} has it already" for output in event["repeated"]]
    if event["quarantined"]:
        parts.append(f"{event['quarantined']:,} quarantined")
    if event["lag"] is not None:
        parts.append(f"lag {event['lag']:,}")
    parts.append(f"{event['duration_ms'] / 1000:.1f} s")
    return ", ".join(parts)
