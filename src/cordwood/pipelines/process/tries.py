"""Failures in a row of a run: how long to pause before the next try, and when to give up.

A run is started again `--max-restarts` times in a row, and given up at the failure after that. A batch that went over
its deadline is tried once more only: it held the cores, which others share, until then, and most likely does so again.
"""

from typing import Final

from cordwood.model.back_off import BackOff
from cordwood.model.quantities import count_in_words
from cordwood.pipelines.definition.errors import BatchOverdue

BACK_OFF: Final = BackOff(1_000, 60_000)
_RESTARTS_OF_OVERDUE: Final = 1


class Tries:
    """Counts failures. A success begins the count anew."""

    def __init__(self, max_restarts: int, back_off: BackOff = BACK_OFF) -> None:
        self._max_restarts = max_restarts
        self._back_off = back_off
        self._overdue = 0
        self.failures = 0
        """Failures since the last success."""

    def succeeded(self) -> None:
        self.failures = self._overdue = 0

    def pause_ms(self, code: str = "") -> int | None:
        """Counts a failure with this code. Returns the pause before the next try; None: it is time to give up."""
        self.failures += 1
        self._overdue += code == BatchOverdue.code
        if self.failures > self._max_restarts or self._overdue > _RESTARTS_OF_OVERDUE:
            return None
        return self._back_off.pause_ms(self.failures)

    def given_up(self, message: str) -> str:
        """The message of the last failure, which says how many restarts there were."""
        return given_up(message, self.failures - 1)


def given_up(message: str, restarts: int) -> str:
    """The message of a failure after which a run is not started again, after so many restarts in a row."""
    return f"{message} (given up after {count_in_words(restarts, 'restart')} in a row)" if restarts else message
