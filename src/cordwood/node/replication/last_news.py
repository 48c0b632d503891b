"""The last news for a broker that stops: its followers learn which of their records are committed.

A follower hears of the high watermark in answers to its fetches, up to `replica.fetch.wait.max.ms` after the records. A
broker that stops in between would save the old watermark, and a follower defends only records below the high watermark
that it saved: later a leader without the acknowledged records could make it cut them off. So a broker that stops asks
once more, for the followers whose logs end above the high watermark that they know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cordwood.node.partitions.role import NO_LEADER

if TYPE_CHECKING:
    from cordwood.model.moment import Moment
    from cordwood.node.loop.loop import Loop
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.partitions.partition import Partition
    from cordwood.node.replication.fetchers import Fetchers

LAST_NEWS_MS = 500
"""The wait of a broker that stops for the news. Records that no leader commits now would keep it for ever."""


class LastNews:
    def __init__(self, loop: Loop, hosted: HostedReplicas, fetchers: Fetchers) -> None:
        self._loop = loop
        self._hosted = hosted
        self._fetchers = fetchers
        self._ends: dict[Partition, int] = {}
        """The partitions that wait for news, and the ends of their logs when the broker asked."""
        self._heard: Callable[[], None] = lambda: None

    def ask(self, heard: Callable[[], None]) -> None:
        """Asks leaders which records are committed. `heard` is called once, when all present records of the followers
        are committed, and never if a leader does not commit them."""
        self._heard = heard
        for partition in self._hosted:
            if partition.opened is not None and self._lacks_news(partition, partition.opened.offsets.end):
                self._ends[partition] = partition.opened.offsets.end
                partition.waits.readers[self] = partial(self._woken_by, partition)
                news_until_ms = self._loop.now.boot_ms + LAST_NEWS_MS
                partition.news_until_ms = max(partition.news_until_ms, news_until_ms)
                self._fetchers.tell_soon(partition)
        if not self._ends:
            heard()

    def _lacks_news(self, partition: Partition, end: int) -> bool:
        """True if a leader may still tell the follower that its records below this end are committed."""
        log, role = partition.opened, partition.role
        if log is None or role.leads or role.leader == NO_LEADER or partition in self._hosted.withheld:
            return False
        return self._hosted.hosts(partition) and partition.high_watermark < min(end, log.offsets.end)

    def _woken_by(self, partition: Partition, now: Moment) -> None:
        """Looks again: the high watermark moved, the partition has another leader, or it is gone."""
        if partition in self._ends and not self._lacks_news(partition, self._ends[partition]):
            self._leave(partition)
            if not self._ends:
                self._heard()

    def stop(self) -> None:
        """Stops waiting for news."""
        for partition in list(self._ends):
            self._leave(partition)

    def _leave(self, partition: Partition) -> None:
        del self._ends[partition]
        partition.waits.readers.pop(self, None)
