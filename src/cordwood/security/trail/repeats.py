"""Counts repeated events: a client without a right asks again and again.

The first event of a window is told at once. Further ones with the same principal, host, listener, operation and kind of
resource are counted, and told in one line when the window ends, with the first names of their resources. The windows
are bounded: an event that finds no room is counted with all others of its kind, so that no event is forgotten, only its
principal.

Peers that have not logged in choose the names under which they fail. They have a share of the windows, and each address
a share of that one: a flood of made-up names does not make the users' own events nameless.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.trail.events import Event, Told, What

MOST_WINDOWS: Final = 1_000
MOST_NAMES: Final = 5
"""The names of resources that a window tells of its repeats, of 1 KB at most each; `OTHERS` stands for further ones."""
STRANGERS_SHARE: Final = 2
"""A half of the windows is for strangers at most, and a twentieth for those of one address."""
STRANGERS_SHARE_OF_ADDRESS: Final = 20
OF_STRANGERS: Final = frozenset({What.FAILED_LOG_IN, What.FAILED_HANDSHAKE})
OTHERS: Final = "(others)"
"""Stands for the principals and hosts of events that found no window."""

Key = tuple[What, str, str, str, Operation | None, ResourceKind | None]


class _Window:
    __slots__ = ("count", "ends_ms", "event", "first_ms", "last_ms", "names")

    def __init__(self, event: Event, ends_ms: int) -> None:
        self.event = event
        self.ends_ms = ends_ms
        self.count = self.first_ms = self.last_ms = 0
        self.names: list[str] = []

    def add(self, name: str, now_ms: int) -> None:
        if not self.count:
            self.first_ms = now_ms
        self.count += 1
        self.last_ms = now_ms
        if len(self.names) <= MOST_NAMES and name not in self.names:
            self.names.append(name if len(self.names) < MOST_NAMES else OTHERS)


class Repeats:
    def __init__(self, window_ms: int, most: int = MOST_WINDOWS) -> None:
        self._window_ms = window_ms
        self._most = most
        self._windows: dict[Key, _Window] = {}
        """Open windows, those that end first in front."""
        self._strangers: Counter[str] = Counter()
        """How many of them are for strangers, by address."""

    def __len__(self) -> int:
        return len(self._windows)

    def is_first(self, event: Event, now_ms: int) -> bool:
        """True if the event begins a window and is to be told now; otherwise it is counted."""
        key = (event.what, event.principal, event.host, event.listener, event.operation, event.kind)
        window = self._windows.get(key)
        if window is not None:
            window.add(event.name, now_ms)
            return False
        if self._has_room(event):
            if event.what in OF_STRANGERS:
                self._strangers[event.host] += 1
            self._windows[key] = _Window(event, now_ms + self._window_ms)
            return True
        self._others(event, now_ms).add(event.name, now_ms)
        return False

    def _has_room(self, event: Event) -> bool:
        if event.what in OF_STRANGERS:
            return not self._is_crowded(event.host) and self._strangers.total() < self._most // STRANGERS_SHARE
        return len(self._windows) < self._most

    def _is_crowded(self, host: str) -> bool:
        """True if strangers at this address have all windows that one address gets."""
        return self._strangers[host] >= self._most // STRANGERS_SHARE_OF_ADDRESS

    def _leave(self, event: Event) -> None:
        if event.what in OF_STRANGERS and event.principal != OTHERS:
            self._strangers[event.host] -= 1
            if not self._strangers[event.host]:
                del self._strangers[event.host]

    def _others(self, event: Event, now_ms: int) -> _Window:
        """The window of events without one of their own. There are at most as many as kinds of events, and those of
        crowded addresses."""
        of_address = event.what in OF_STRANGERS and self._is_crowded(event.host)
        host = event.host if of_address else OTHERS
        key = (event.what, OTHERS, host, "", None, None)
        window = self._windows.get(key)
        if window is None:
            others = Event(event.what, OTHERS, host, "", event.action, error=event.error)
            window = self._windows[key] = _Window(others, now_ms + self._window_ms)
        return window

    @property
    def next_end_ms(self) -> int | None:
        """When the next window ends; None: none is open."""
        return next((window.ends_ms for window in self._windows.values()), None)

    def ended(self, now_ms: int | None) -> list[Told]:
        """Closes the windows that have ended (None: all), and returns what was counted in them."""
        told = []
        for key, window in list(self._windows.items()):
            if now_ms is not None and window.ends_ms > now_ms:
                break
            del self._windows[key]
            self._leave(window.event)
            if window.count:
                told.append(Told(window.event, window.count, window.first_ms, window.last_ms, tuple(window.names)))
        return told
