"""Narrows the matches of regular expressions to the topics that the reader of a member may describe.

The rules belong to the loop, so they are asked in the loop, in steps: ten thousand topics take some tens of
milliseconds. Narrowed matches are kept until the rules or the topics change, and those used longest ago are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from cordwood.groups.consumer.records import Resolution
from cordwood.groups.consumer.topics import Reader, Subscribed
from cordwood.node.loop.loop import Loop

MAX_NARROWED: Final = 10_000
"""If more expressions and readers are in use at a time, heartbeats ask the rules again and again."""
NAMES_PER_TURN: Final = 250
"""At some 4 us each: a millisecond."""


class TopicRights(Protocol):
    """The rules about topics, as this room needs them."""

    @property
    def asks(self) -> bool:
        """False: every reader may describe every topic."""

    @property
    def revision(self) -> int:
        """An answer holds as long as the revision is the same."""

    def may_describe_topic(self, reader: Reader, name: str) -> bool: ...


class _Narrowed(NamedTuple):
    whole: Resolution
    """All topics that the expression matches."""
    revision: int
    """The revision of the rules when the first topic was judged."""
    seen: Resolution


class VisibleMatches:
    def __init__(self, loop: Loop, rights: TopicRights) -> None:
        self._loop = loop
        self._rights = rights
        self._kept: OrderedDict[Subscribed, _Narrowed] = OrderedDict()
        """The one used longest ago first."""
        self._waiting: dict[Subscribed, tuple[Resolution, list[Callable[[], None]]]] = {}
        """The matches that are still to be narrowed, and those that wait for it."""
        self._busy = False
        self.finished = 0
        """Counts the narrowed matches: those of a reader may have changed if this has."""

    def of(self, subscribed: Subscribed) -> Resolution | None:
        kept = self._kept.get(subscribed)
        return None if kept is None else kept.seen

    def when_judged(self, wholes: Mapping[Subscribed, Resolution], done: Callable[[], None]) -> None:
        """Calls back when these matches are narrowed by the rules of this call, or by later ones."""
        revision, left = self._rights.revision, 1

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for subscribed, whole in wholes.items():
            kept = self._kept.get(subscribed)
            if kept is not None and kept.whole is whole and kept.revision == revision:
                self._kept.move_to_end(subscribed)
            else:
                left += 1
                self._waiting.setdefault(subscribed, (whole, []))[1].append(one)
        if self._waiting and not self._busy:
            self._busy = True
            self._loop.in_turns.begin_steps(self._narrow())
        one()

    def _narrow(self) -> Iterator[None]:
        room = NAMES_PER_TURN
        while self._waiting:
            subscribed = next(iter(self._waiting))
            # A request that comes while these topics are judged waits for another round, by the rules of its arrival.
            whole, answered = self._waiting.pop(subscribed)
            assert subscribed.reader is not None
            revision, seen = self._rights.revision, set()
            for name in whole.topics:
                if not room:
                    room = NAMES_PER_TURN
                    yield
                room -= 1
                if self._rights.may_describe_topic(subscribed.reader, name):
                    seen.add(name)
            everything = len(seen) == len(whole.topics)
            narrowed = whole if everything else whole._replace(topics=frozenset(seen))
            self._kept[subscribed] = _Narrowed(whole, revision, narrowed)
            self._kept.move_to_end(subscribed)
            self.finished += 1
            for each in answered:
                each()
            while len(self._kept) > MAX_NARROWED:
                self._kept.popitem(last=False)
        self._busy = False
