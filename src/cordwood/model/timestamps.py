"""Moments as people write and read them."""

from datetime import UTC, datetime

MAX_TIMESTAMP_MS = 2**63 - 1


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970, from digits or ISO 8601 (UTC unless it names a zone). Raises ValueError for other texts.

    A moment before 1970 is 0: no record is older, and the protocol has other meanings for negative times.
    """
    if text.isdecimal():
        if (timestamp_ms := int(text)) > MAX_TIMESTAMP_MS:
            raise ValueError(f"{text} ms are more than a timestamp can have")
        return timestamp_ms
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(round(moment.timestamp() * 1000), 0)


def time_in_words(timestamp_ms: int | None) -> str:
    """A timestamp in UTC, to the millisecond; `-` for a record without one."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
