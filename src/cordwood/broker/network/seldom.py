"""Bounds the log lines that clients cause: a client that fails thousands of times a second must not fill the disk."""

import re
from collections import Counter
from typing import Final

SAID_EVERY_S: Final = 10.0
MOST_KINDS: Final = 50
"""Further kinds share one line, so that a client that fails in ever new ways cannot cause any number of lines."""

_OTHER_KINDS: Final = ""
_NUMBERS: Final = re.compile(r"[0-9]+")


class SaidSeldom:
    """Counts events by kind, and allows one log line for each kind in SAID_EVERY_S.

    Events whose kinds differ in numbers only are of one kind: numbers are often the client's own."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._say_from_s: dict[str, float] = {}

    def count(self, kind: str, now_s: float) -> int:
        """Counts an event. Returns the number of such events so far if a line is due, 0 otherwise."""
        kind = _NUMBERS.sub("", kind)
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            kind = _OTHER_KINDS
        self._counts[kind] += 1
        if now_s < self._say_from_s.get(kind, 0.0):
            return 0
        self._say_from_s[kind] = now_s + SAID_EVERY_S
        return self._counts[kind]
