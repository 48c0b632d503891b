"""How often somebody over a quota was held back, for metrics."""

from dataclasses import dataclass


@dataclass
class Throttled:
    times: int = 0
    ms: int = 0
    """The time of all of them together."""

    def count(self, throttle_ms: int) -> None:
        self.times += 1
        self.ms += throttle_ms
