"""Committed positions: what was acknowledged is what is fetched, until somebody commits something later.

Every commit of a group to a partition has another offset, so that a fetched position says which commit it is.
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
        self._trouble = False

    def trouble(self) -> None:
        """The broker died, or its disk failed it: then tombstones for the positions in a deleted topic may be missing.

        A record of a position names its topic, not the topic's id, so they come back for a new topic of that name.
        """
        self._trouble = True

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
            if settled < 0 and self._trouble and self._was_committed_elsewhere(key, offset):
                return
            raise InvariantBroken(f"{key}: position {offset} was committed by nobody; those were {commits[-5:]}")
        place = commits.index(offset)
        if place < settled:
            raise InvariantBroken(f"{key}: the position went back from {commits[settled]} to {offset}")
        self._settle(key, place)

    def _was_committed_elsewhere(self, key: Key, offset: int) -> bool:
        """To an earlier topic, that is."""
        group, topic_id, index = key
        return any(
            offset in commits
            for (other_group, other_topic, other_index), commits in self._commits.items()
            if other_group == group and other_index == index and other_topic != topic_id
        )

    def _settle(self, key: Key, place: int) -> None:
        self._settled[key] = max(place, self._settled.get(key, -1))
