"""The source of a history: files, or events in memory.

A source is read twice, once to judge and once for the evidence, in the same order. Several histories, of clients in
several processes, are merged by their clocks; within one history the order of lines is the order of events, whatever
the clock says.
"""

import heapq
from collections.abc import Iterable, Iterator
from os import PathLike, fspath
from typing import NamedTuple

from cordwood.history.events import Event, InvalidHistory, parse

HistoryLike = str | PathLike[str] | Iterable[Event]


class Line(NamedTuple):
    """One event and its place: its number in its own history, counted from 1."""

    event: Event
    history: str
    number: int

    @property
    def place(self) -> str:
        return f"{self.history}:{self.number}" if self.history else f"line {self.number}"


class Source:
    """Histories that can be read again and again."""

    def __init__(self, histories: Iterable[HistoryLike]) -> None:
        self._histories: list[str | Iterable[Event]] = []
        for history in histories:
            if isinstance(history, str | PathLike):
                self._histories.append(fspath(history))
            else:
                # A generator gives its events only once, and evidence needs a second reading.
                self._histories.append(list(history) if isinstance(history, Iterator) else history)
        if not self._histories:
            raise ValueError("there is no history to check")
        self.torn_places: set[str] = set()

    def __iter__(self) -> Iterator[Line]:
        if len(self._histories) == 1:
            return self._lines(self._histories[0], "")
        named = [
            self._lines(history, history if isinstance(history, str) else f"history {number}")
            for number, history in enumerate(self._histories, 1)
        ]
        return heapq.merge(*named, key=lambda line: line.event.at_ms)

    def _lines(self, history: str | Iterable[Event], name: str) -> Iterator[Line]:
        if not isinstance(history, str):
            for number, event in enumerate(history, 1):
                yield Line(event, name, number)
            return
        with open(history, "rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    event = parse(text)
                except InvalidHistory as error:
                    if not text.endswith(b"\n"):
                        # A recorder that was killed leaves half a line at the very end: that event never happened.
                        self.torn_places.add(f"{history}:{number}")
                        return
                    raise InvalidHistory(f"{history}:{number}: {error}") from None
                yield Line(event, name, number)
