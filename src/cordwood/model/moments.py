"""Moments as people write them."""

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
