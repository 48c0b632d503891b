"""The rooms that all fetchers of a node use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.loop import Loop
    from cordwood.node.loop.peers import Peers
    from cordwood.node.loop.reports import Reports
    from cordwood.node.loop.serving import Serving
    from cordwood.node.partitions.checkpoints import Checkpoints
    from cordwood.node.partitions.flushes import FlushBook
    from cordwood.node.partitions.full_disk import FullDisk
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.replication.cuts import Cuts
    from cordwood.node.replication.refills import Refills
    from cordwood.node.replication.saved_starts import SavedStarts
    from cordwood.node.replication.suspects import Suspects
    from cordwood.node.replication.withheld import Withheld
    from cordwood.replication.throttle import Throttle


class FetcherRooms(NamedTuple):
    loop: Loop
    image: ClusterImage
    hosted: HostedReplicas
    serving: Serving
    peers: Peers
    suspects: Suspects
    throttle: Throttle
    """The throttle of replicas outside of their in-sync sets, if the topic lists this follower."""
    flushes: FlushBook
    checkpoints: Checkpoints
    full_disk: FullDisk
    starts: SavedStarts
    cuts: Cuts
    refills: Refills
    withheld: Withheld
    reports: Reports
