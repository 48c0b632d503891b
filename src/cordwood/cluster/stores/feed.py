"""The latest commits of a store: one copy for all watchers, however slow they are.

The feed belongs to one event loop. A watcher holds a position and takes the commits from there on; the feed has no
queue per watcher. Commits beyond `max_events` are dropped from the front, and a watcher that still needs them reads the
store's history.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from cordwood.cluster.stores.interface import FIRST_REVISION, Event, WatchStep


class Commit(NamedTuple):
    """All events of one revision, sorted by key."""

    revision: int
    events: tuple[Event, ...]


class CommitFeed:
    """Commits of consecutive revisions, up to the store's current revision."""

    def __init__(self, revision: int, max_events: int) -> None:
        self.revision = revision
        self._max_events = max_events
        self._commits: deque[Commit] = deque()
        self._event_count = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._closed: Exception | None = None

    def publish(self, commits: Iterable[Commit]) -> None:
        for commit in commits:
            assert commit.revision == self.revision + 1, "a revision is missing"
            self.revision = commit.revision
            self._commits.append(commit)
            self._event_count += len(commit.events)
        while self._event_count > self._max_events:
            self._drop_first()
        self._wake()

    def forget(self, revision: int) -> None:
        """Drops the commits up to this revision, which is compacted."""
        while self._commits and self._commits[0].revision <= revision:
            self._drop_first()

    def _drop_first(self) -> None:
        self._event_count -= len(self._commits.popleft().events)

    def since(self, revision: int) -> list[Commit] | None:
        """The commits from this revision on; None if the feed has dropped some of them."""
        behind = self.revision - revision + 1
        if behind > len(self._commits):
            return None
        return [self._commits[index] for index in range(len(self._commits) - behind, len(self._commits))]

    async def reach(self, revision: int) -> None:
        """Waits until the store is at this revision or beyond. Raises the reason of `close`."""
        while True:
            if self._closed is not None:
                raise self._closed
            if self.revision >= revision:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    def close(self, reason: Exception) -> None:
        self._closed = reason
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


async def follow(
    feed: CommitFeed,
    prefix: str,
    from_revision: int,
    read_history: Callable[[int], Awaitable[Sequence[Commit]]],
) -> AsyncIterator[WatchStep]:
    """Implements `MetadataStore.watch`. `read_history` gives all commits from a revision on, or raises Compacted."""
    position = max(from_revision, FIRST_REVISION + 1)
    while True:
        await feed.reach(position)
        commits: Sequence[Commit] | None = feed.since(position)
        if commits is None:
            commits = await read_history(position)
        position = commits[-1].revision + 1
        events = [event for commit in commits for event in commit.events if event.key.startswith(prefix)]
        if events:
            yield WatchStep(position - 1, events)
