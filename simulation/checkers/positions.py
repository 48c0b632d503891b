"""Checks committed positions: a fetch finds the last acknowledged commit, or a later one.

Every commit of a group to a partition has another offset, so a fetched position identifies its commit. Topics are told
apart by their ids: a new topic of the same name has no positions.
"""

from cordwood.model.identifiers import TopicId
from simulation.world.broken import InvariantBroken

NO_POSITION = -1

Key = tuple[str, TopicId, int]
"""Group, topic, partition."""


class PositionsChecker:
    def __init__(self) -> None:
        self._commits: dict[Key, list[int]] = {}
        """Offsets of commits, in the order in which the broker got them."""
        self._settled: dict[Key, int] = {}
        """The place in that list of the last commit that is known to be in effect."""

    def committing(self, key: Key, offset: int) -> None:
        self._commits.setdefault(key, []).append(offset)

    def committed(self, key: Key, offset: int) -> None:
        """Notes an acknowledgement: this commit, or a later one, is in effect from now on."""
        self._settle(key, self._commits[key].index(offset))

    def settled(self, key: Key) -> int:
        """The place of the oldest commit that may be the answer to a fetch that arrives now."""
        return self._settled.get(key, -1)

    def fetched(self, key: Key, offset: int, settled: int) -> None:
        """Checks the answer to a fetch; `settled` is the value of `settled` at its arrival."""
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
