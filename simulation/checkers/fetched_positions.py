"""Checks positions of groups: a position comes from the last accepted commit, or from a later commit.

A token identifies a commit. Commits stand in the order in which the broker got them.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cordwood.model.errors import ErrorCode
from simulation.workloads.group_members import AGAIN, NO_POSITION
from simulation.world.broken import InvariantBroken

Key = TypeVar("Key", bound=Hashable)
"""Names a group and a partition. A topic that is created again under an old name has no positions of the old one."""

Author = tuple[str, int]
"""Member, epoch or generation."""


@dataclass(slots=True)
class Commit:
    token: str
    offset: int
    author: Author
    fenced: bool = False
    """True if the author had lost the right to commit, and had been told so, before it sent this commit."""
    accepted: bool | None = None
    """True if the broker accepted the commit; None: unknown."""


class PositionsChecker(Generic[Key]):
    def __init__(self) -> None:
        self._commits: dict[Key, list[Commit]] = {}
        self._settled: dict[Key, int] = {}
        """The place of the last commit that is known to be in effect."""
        self.accepted = self.fenced_commits = 0

    def committing(self, key: Key, commit: Commit) -> None:
        self._commits.setdefault(key, []).append(commit)
        self.fenced_commits += commit.fenced

    def answered(self, key: Key, token: str, error: ErrorCode) -> None:
        place, commit = self._find(key, token)
        if error is ErrorCode.NONE:
            self.accepted += 1
            self._holds(key, place)
        elif error not in AGAIN:
            commit.accepted = False

    def settled(self, key: Key) -> int:
        """The place of the oldest commit that may be the answer to a fetch that arrives now."""
        return self._settled.get(key, -1)

    def fetched(self, key: Key, token: str, offset: int, settled: int) -> None:
        """Checks the answer to a fetch; `settled` is the value of `settled` at its arrival."""
        commits = self._commits.get(key, [])
        if offset == NO_POSITION:
            if settled >= 0:
                raise InvariantBroken(f"{key}: {commits[settled]} was accepted, and there is no position")
            return
        place, commit = self._find(key, token)
        if commit.offset != offset:
            raise InvariantBroken(f"{key}: {commit} is there with position {offset}")
        if commit.accepted is False:
            raise InvariantBroken(f"{key}: {commit} was refused, and took effect")
        if place < settled:
            raise InvariantBroken(f"{key}: the position went back from {commits[settled]} to {commit}")
        self._holds(key, place)

    def _find(self, key: Key, token: str) -> tuple[int, Commit]:
        for place, commit in enumerate(self._commits.get(key, [])):
            if commit.token == token:
                return place, commit
        raise InvariantBroken(f"{key}: nobody committed {token!r}")

    def _holds(self, key: Key, place: int) -> None:
        """Notes that this commit took effect."""
        commits = self._commits[key]
        commit = commits[place]
        if commit.fenced:
            raise InvariantBroken(f"{key}: {commit} is of a fenced member, and took effect")
        commit.accepted = True
        before = next((each for each in reversed(commits[:place]) if each.accepted), None)
        # Commits of one member on two connections may arrive in any order, so the member asked for a step back. In the
        # consumer protocol commits of different epochs may do so, too.
        if before is not None and commit.offset < before.offset and commit.author[0] != before.author[0]:
            raise InvariantBroken(f"{key}: the position went back from {before} to {commit}")
        self._settled[key] = max(place, self.settled(key))
