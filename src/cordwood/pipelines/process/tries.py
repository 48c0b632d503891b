"""Failures in a row of a run: how long to pause before the next try, and when to give up."""

from typing import Final

from cordwood.model.back_off import BackOff

BACK_OFF: Final = BackOff(1_000, 60_000)


class Tries:
    """Counts failures. A success begins the count anew."""

    def __init__(self, max_restarts: int, back_off: BackOff = BACK_OFF) -> None:
        self._max_restarts = max_restarts
        self._back_off = back_off
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def pause_s(self) -> float | None:
        """Counts a failure. Returns the pause before the next try; None: it is time to give up."""
        self._failures += 1
        return None if self._failures > self._max_restarts else self._back_off.pause_ms(self._failures) / 1000

    def given_up(self, message: str) -> str:
        """The message of the last failure, which says how many there were."""
        return f"{message} (given up after {self._failures} failures in a row)" if self._max_restarts else message
