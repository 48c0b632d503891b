"""The rooms that all fetchers of a node use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.node.replication.cuts import Cuts
from cordwood.node.replication.refills import Refills
from cordwood.node.replication.saved_starts import SavedStarts
from cordwood.node.replication.setting_aside import SettingAside
from cordwood.node.replication.suspects import Suspects
from cordwood.node.replication.withheld import Withheld
from cordwood.replication.throttle import Throttle

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.log.directory.data_directories import DataDirectories
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.peers import Peers
    from cordwood.node.loop.reports import Reports
    from cordwood.node.loop.serving import Serving
    from cordwood.node.partitions.checkpoints import Checkpoints
    from cordwood.node.partitions.flushes import FlushBook
    from cordwood.node.partitions.full_disk import FullDisk
    from cordwood.node.partitions.hosted import HostedReplicas


class FetcherRooms:
    """The rooms that all fetchers of a node use."""

    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        logs: DataDirectories,
        hosted: HostedReplicas,
        peers: Peers,
        flushes: FlushBook,
        checkpoints: Checkpoints,
        reports: Reports,
        serving: Serving,
        full_disk: FullDisk,
    ) -> None:
        self.loop = loop
        self.image = image
        self.hosted = hosted
        self.peers = peers
        self.flushes = flushes
        self.checkpoints = checkpoints
        self.reports = reports
        self.serving = serving
        self.full_disk = full_disk
        self.stopped = False
        """True if the broker stops: nothing is fetched any more, so that its logs come to rest."""
        self.suspects = Suspects(loop, image)
        self.throttle = Throttle()
        """The throttle of replicas outside of their in-sync sets, if the topic lists this follower."""
        self.starts = SavedStarts(loop, logs, hosted, reports)
        self.aside = SettingAside(loop, logs, hosted, flushes, checkpoints, reports)
        self.refills = Refills(loop, image, logs, hosted, self.aside, reports)
        self.cuts = Cuts(loop, image, logs, hosted, flushes, checkpoints, reports)
        self.withheld = Withheld(loop, hosted, self.aside, reports)
