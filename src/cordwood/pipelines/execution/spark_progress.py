"""What Spark's progress of a batch says about offsets, about late rows and about its own time."""

import json
from collections.abc import Mapping
from typing import Any

from cordwood.pipelines.editions.positions import Positions, ahead, distance, from_json
from cordwood.spark.source.offsets import beginning_in


def offsets_between(progress: Mapping[str, Any], first: str, second: str) -> int | None:
    """How far the `second` offsets of a batch's progress are ahead of the `first`; None if Spark does not tell."""
    apart = 0
    for source in progress["sources"]:
        one, two = _offset(source.get(first)), _offset(source.get(second))
        if one is None and first == "startOffset":
            # The first batch has no start: its end tells where it began.
            one = _beginning(source.get(second))
        if one is None or two is None:
            return None
        apart += distance(ahead(two, one))
    return apart


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


def _beginning(text: str | None) -> Positions | None:
    found = {} if text is None else beginning_in(json.loads(text))
    if not found:
        return None
    began: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in found.items():
        began.setdefault(topic, {})[partition] = offset
    return began
