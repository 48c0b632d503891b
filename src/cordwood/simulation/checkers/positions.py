"""Committed positions: what was acknowledged is what is fetched, until somebody commits something later.

Every commit of a group to a partition has another offset, so that a fetched position says which commit it is. Topics
are told apart by their ids: a new one of the same name has no positions, whatever happened when the old one went.
"""

from cordwood.model.identifiers import TopicId
from cordwood.simulation.broken import InvariantBroken

NO_POSITION = -1

Key = tuple[str, TopicId, int]
"""Group, topic, partition."""


class PositionsChecker:
    def __init__(self) -> None:
        self._commits: dict[Key, list[int]] = {}
        """In the order in which the broker got them."""
        self._settled: dict[Key, int] = {}
        """The place in that list of the last one that is known to hold."""

    def committing(self, key: Key, offset: int) -> None:
        self._commits.setdefault(key, []).append(offset)

    def committed(self, key: Key, offset: int) -> None:
        """The broker acknowledged this commit: it, or a later one, holds from now on."""
        self._settle(key, self._commits[key].index(offset))

    def settled(self, key: Key) -> int:
        """To be asked when a fetch arrives: nothing before this may be its answer."""
        return self._settled.get(key, -1)

    def fetched(self, key: Key, offset: int, settled: int) -> None:
        """A fetch was answered; `settled` is what held when it arrived."""
        commits = self._commits.get(key, [])
        if offset == NO_POSITION:
            if settled >= 0:
                raise InvariantBroken(f"{key}: position {commits[settled]} was acknowledged, and there is none")
            return
        if offset not in commits:
            raise InvariantBroken(f"{key}: position {offset} was committed by nobody; those were {commits[-5:]}")
        place = commits.index(offset)
        if place < settled:
            raise InvariantBroken(f"{key}: the position went back from {commits[settled]} to {offset}")
        self._settle(key, place)

    def _settle(self, key: Key, place: int) -> None:
        self._settled[key] = max(place, self._settled.get(key, -1))
