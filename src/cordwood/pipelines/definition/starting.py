"""The starting point of an edition: parses the text that people write into the source's options.

`earliest`, `latest`, a moment as `@2026-01-31T12:00:00Z` or `@1700000000000`, or offsets as `{"orders": {"0": 23}}`.
"""

import json
from collections.abc import Mapping

from cordwood.model.timestamps import parse_time_ms

EXAMPLES = 'earliest, latest, @2026-01-31T12:00:00Z, @1700000000000 or {"orders": {"0": 23}}'


def starting_options(starting: str) -> Mapping[str, str]:
    """The options of `format("cordwood")`. Raises ValueError for a text that names no place."""
    if not isinstance(starting, str):  # a file that nobody has type-checked
        raise ValueError(f"{starting!r:.80} is no text: offsets are JSON, in quotes")
    if starting in ("earliest", "latest"):
        return {"startingOffsets": starting}
    if starting.startswith("@"):
        timestamp_ms = str(parse_time_ms(starting[1:]))
        # A partition whose records are all older has nothing to replay: reading begins at its end.
        return {"startingTimestamp": timestamp_ms, "startingOffsetsByTimestampStrategy": "latest"}
    if starting.startswith("{"):
        offsets = json.loads(starting)
        if not isinstance(offsets, dict) or not all(isinstance(each, dict) for each in offsets.values()):
            raise ValueError(f"{starting!r} has no offsets")
        return {"startingOffsets": starting}
    raise ValueError(f"{starting!r} is no place in a log")
