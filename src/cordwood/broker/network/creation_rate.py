"""The rate at which connections may come: those beyond it wait for their turn, a bounded time."""

from typing import Final

SAVED_S: Final = 1.0
"""What was not used of this time may come at once: as in Kafka, the rate is one over seconds."""
LONGEST_WAIT_S: Final = 10.0


class CreationRate:
    def __init__(self) -> None:
        self._next_s = 0.0
        """The turn of the next connection; in the past while there are few."""

    def wait_s(self, per_s: int, now_s: float) -> float | None:
        """How long a new connection waits for its turn; None: too long, and it takes no turn."""
        turn_s = max(self._next_s, now_s - SAVED_S)
        if turn_s - now_s > LONGEST_WAIT_S:
            return None
        self._next_s = turn_s + 1 / per_s
        return max(turn_s - now_s, 0.0)
