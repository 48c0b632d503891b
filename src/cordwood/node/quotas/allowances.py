"""The allowances of many, by names that they choose themselves: what is kept of names is bounded.

An allowance that is full again holds no news, and is dropped. While there is no room, newcomers of one crowd share one
allowance, and take nothing of those that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from cordwood.node.quotas.allowance import Allowance

MOST: Final = 10_000
"""At some 400 bytes each: 4 MB."""
LOOK_AGAIN_MS: Final = 1_000
"""A look for allowances that can go takes some milliseconds."""

Place = TypeVar("Place", bound=Hashable)
Crowd = TypeVar("Crowd", bound=Hashable)


class Allowances(Generic[Place, Crowd]):
    def __init__(self, burst_ms: int, dropped: Callable[[], None]) -> None:
        """`dropped` is called when allowances that were given out hold no more."""
        self._burst_ms = burst_ms
        self._dropped = dropped
        self._known: dict[Place, Allowance] = {}
        self._crowds: dict[Crowd, Allowance] = {}
        self._look_from_ms = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def crowded(self) -> bool:
        """True if some share an allowance because there is no room: what is given out now may change soon."""
        return bool(self._crowds)

    def of(self, place: Place, crowd: Crowd, per_ms: float, now_ms: int) -> Allowance:
        """The allowance at a place, with this rate; that of the crowd if there is no room."""
        found = self._known.get(place)
        if found is None:
            if self._has_room(now_ms):
                found = self._known[place] = Allowance(per_ms, self._burst_ms, now_ms)
            else:
                found = self._crowds.get(crowd)
                if found is None:
                    found = self._crowds[crowd] = Allowance(per_ms, self._burst_ms, now_ms)
        found.per_ms = per_ms
        return found

    def clear(self) -> None:
        self._known.clear()
        self._crowds.clear()

    def _has_room(self, now_ms: int) -> bool:
        if (self._crowds or len(self._known) >= MOST) and now_ms >= self._look_from_ms:
            self._look_from_ms = now_ms + LOOK_AGAIN_MS
            self._known = {place: each for place, each in self._known.items() if not each.is_full(now_ms)}
            self._crowds = {crowd: each for crowd, each in self._crowds.items() if not each.is_full(now_ms)}
            self._dropped()
        return len(self._known) < MOST
