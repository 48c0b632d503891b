"""Counters of requests for metrics: integers only, and no reads of a clock."""

from cordwood.broker.network.sending import HangUp
from cordwood.metrics.histogram import Histogram
from cordwood.node.loop.ports import Frame


class ApiActivity:
    __slots__ = ("durations", "request_bytes", "requests", "response_bytes")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.durations = Histogram()


class Activity:
    """Counters by API key. Unknown keys share one entry, so that no client can make the broker's memory grow."""

    UNKNOWN = -1

    def __init__(self, known_keys: frozenset[int]) -> None:
        self.by_api: dict[int, ApiActivity] = {}
        self._known = known_keys

    def arrived(self, api_key: int, size_bytes: int) -> ApiActivity:
        api = self.by_api.get(api_key)
        if api is None:
            if api_key not in self._known:
                api_key = self.UNKNOWN
            api = self.by_api.setdefault(api_key, ApiActivity())
        api.requests += 1
        api.request_bytes += size_bytes
        return api


def frame_bytes(frame: Frame | HangUp) -> int:
    """The length of an answer, records in their files included."""
    if isinstance(frame, bytes):
        return len(frame)
    if isinstance(frame, list):
        return sum(len(part) if isinstance(part, bytes) else part.length for part in frame)
    return 0
