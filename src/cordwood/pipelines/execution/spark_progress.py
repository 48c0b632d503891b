"""What Spark's progress of a batch says about records, about late rows and about its own time."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cordwood.pipelines.editions.positions import Positions, ahead, distance, from_json

_INPUT: Final = "cordwood input "
"""Begins the names of the counts of inputs (`parsed_once`)."""


def of_batches(progress: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The progress of each batch that was carried out. While a query waits for records, Spark reports progress under
    the number of the batch that comes next."""
    return {each["batchId"]: each for each in progress if "addBatch" in each.get("durationMs", {})}


def offsets_left(progress: Mapping[str, Any]) -> int | None:
    """How far the log went beyond a batch when it began; None if Spark does not tell."""
    apart = 0
    for source in progress["sources"]:
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        apart += distance(ahead(latest, end))
    return apart


def records_read(progress: Mapping[str, Any]) -> int:
    """The records of all inputs in a stateful batch; none in a batch that only ends windows. Each output reads the
    inputs by itself, and Spark keeps the count of one of them."""
    counts = progress.get("observedMetrics", {})
    return sum(int(row["rows"]) for name, row in counts.items() if name.startswith(_INPUT))


def sparks_own_ms(progress: Mapping[str, Any] | None) -> int | None:
    """The part of a batch's time that Spark spends on planning, on finding the end of the read and on its
    checkpoint."""
    durations = {} if progress is None else progress.get("durationMs", {})
    whole, carried_out = durations.get("triggerExecution"), durations.get("addBatch")
    return None if whole is None or carried_out is None else whole - carried_out


def rows_too_late(progress: Mapping[str, Any] | None) -> int:
    """The rows of a batch that came after the watermark, so that operators with state left them out. An aggregation
    counts what is left of them after rows of one group were put together."""
    operators = () if progress is None else progress.get("stateOperators", ())
    return sum(each.get("numRowsDroppedByWatermark", 0) for each in operators)


def _offset(text: str | None) -> Positions | None:
    """Parses an offset, which Spark reports as the text of the source's JSON."""
    offset = None if text is None else json.loads(text)
    return None if offset is None else from_json(offset)
