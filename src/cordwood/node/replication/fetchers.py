"""The fetchers of this broker's followers: assigns each partition to a fetcher of its leader."""

from __future__ import annotations

from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.role import NO_LEADER
from cordwood.node.replication.fetcher import Fetcher
from cordwood.node.replication.fetcher_rooms import FetcherRooms


class Fetchers:
    def __init__(self, rooms: FetcherRooms) -> None:
        self._rooms = rooms
        self._stopped = False
        self._by_leader: dict[int, Fetcher] = {}
        self._of: dict[Partition, Fetcher] = {}

    def role_changed(self, partition: Partition) -> None:
        """Fetches the partition from its present leader, if it follows one."""
        role = partition.role
        if role.leads:
            self._rooms.withheld.let_go(partition)
        leader = role.leader if not role.leads and self._rooms.hosted.hosts(partition) else NO_LEADER
        before = self._of.get(partition)
        if before is not None and before.leader != leader:
            self.forget(partition)
            before = None
        if leader != NO_LEADER:
            fetcher = self._of[partition] = before or self._fetcher(leader)
            fetcher.add(partition)

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = Fetcher(self._rooms, leader, self._of)
            fetcher.at_rest = Fetcher(self._rooms, leader, self._of, busy=fetcher)
            if self._stopped:
                fetcher.stop()
        return fetcher

    def tell_soon(self, partition: Partition) -> None:
        """Makes the leader answer the request that it holds, so that the next one asks for news of the high watermark:
        clients read at this follower, or the broker stops."""
        fetcher = self._of.get(partition)
        if fetcher is not None:
            fetcher.hurry_soon()

    def stop(self) -> None:
        """Fetches nothing more, and takes no answer."""
        self._stopped = True
        for fetcher in self._by_leader.values():
            fetcher.stop()

    def forget(self, partition: Partition) -> None:
        """Stops fetching the partition: it is led here, or gone."""
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
        if not self._rooms.hosted.hosts(partition):
            self._rooms.withheld.let_go(partition)
