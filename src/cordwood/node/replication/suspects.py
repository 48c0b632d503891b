"""Leaders whose connections broke, and that may be dead. Clients are not told such leaders.

A suspicion ends when the leader answers or registers anew, and after a lease: a follower that is cut off from a living
leader must not hide it from clients for longer.
"""

from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.peers import PeerFailed, PeerFailure

BROKEN = (PeerFailure.DISCONNECTED, PeerFailure.NO_CONNECTION)
NOBODY: frozenset[int] = frozenset()


class _Broken(NamedTuple):
    broker_epoch: int
    """The leader's registration when the connection broke."""
    at_ms: int


class Suspects:
    def __init__(self, loop: Loop, image: ClusterImage) -> None:
        self._loop = loop
        self._image = image
        self._broken: dict[int, _Broken] = {}

    def failed(self, leader: int, failure: PeerFailed, now: Moment) -> None:
        """Notes that a request to the leader failed. The first broken connection to a registration counts."""
        registered, broken = self._image.brokers.get(leader), self._broken.get(leader)
        if failure.reason not in BROKEN or registered is None:
            return
        if broken is None or broken.broker_epoch != registered.epoch:
            self._broken[leader] = _Broken(registered.epoch, now.boot_ms)

    def answered(self, leader: int) -> None:
        self._broken.pop(leader, None)

    def now(self) -> frozenset[int]:
        """The leaders that are suspected now."""
        if not self._broken:
            return NOBODY
        brokers, since_ms = self._image.brokers, self._loop.now.boot_ms - self._image.settings.broker_lease_ms
        return frozenset(
            leader
            for leader, broken in self._broken.items()
            if broken.at_ms > since_ms and leader in brokers and brokers[leader].epoch == broken.broker_epoch
        )
