"""One broker in the image of the cluster's metadata, and the controller."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.cluster.metadata.rows import (
    ALL_DAMAGED,
    Endpoint,
    LogEnd,
    MemberRow,
    damaged_name,
    decode_broker,
    decode_controller,
)
from cordwood.cluster.metadata.versions import ONLY_FIRST, VersionRange
from cordwood.model.identifiers import TopicId


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    metadata_versions: VersionRange = ONLY_FIRST
    """The versions of the metadata that the broker supports."""
    storage_id: str = ""
    """The id of the broker's data directory."""
    unclean: bool = False
    """The broker's machine was started again and the broker had not stopped cleanly."""
    fenced: bool = False
    """The controller has not taken note of the registration yet."""
    draining: bool = False
    """The broker stops: the controller moves its leaderships away."""
    starting: bool = False
    """The broker does not answer requests yet: its fence stays."""
    disk_full: bool = False
    """The broker found no space for records."""
    damaged: tuple[str, ...] = ()
    """Partitions with damage that is not repaired, as in the broker's row."""
    key: int = field(default=0, repr=False)
    """The secret that the requests of this registration carry; 0: the broker's release has none."""
    withheld: tuple[str, ...] = ()
    """Partitions with committed records that their leader lacks, as in the broker's row."""
    log_ends: tuple[LogEnd, ...] = field(default=(), repr=False)
    """The ends of logs that the controller asked for, as in the broker's row."""
    mod_revision: int = 0
    """The revision of the broker's key, for a compare-and-set."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The broker's endpoint for clients of a listener; None: the broker has no such listener."""
        return _endpoint(self.endpoints, listener)

    @property
    def electable(self) -> bool:
        """True if the broker may become the leader of a partition."""
        return not (self.fenced or self.draining)

    def is_damaged(self, topic_id: TopicId, partition: int) -> bool:
        """True if the broker's log of the partition has damage that is not repaired."""
        return _names(self.damaged, topic_id, partition)

    def withholds(self, topic_id: TopicId, partition: int) -> bool:
        """True if the broker's log of the partition has committed records that the leader lacks."""
        return _names(self.withheld, topic_id, partition)

    def log_end(self, topic_id: TopicId, partition: int, leader_epoch: int) -> LogEnd | None:
        """The end of the broker's log of the partition, as the broker reported it in this epoch of the partition's row;
        None: it did not."""
        name = damaged_name(topic_id, partition)
        place = bisect_left(self.log_ends, (name, leader_epoch))
        told = self.log_ends[place] if place < len(self.log_ends) else None
        if told is None or (told.partition, told.leader_epoch) != (name, leader_epoch):
            return None
        return told

    @property
    def takes_records(self) -> bool:
        """True if the broker may lead, or come into an in-sync set, with room for new records."""
        return self.electable and not self.disk_full


def _names(named: tuple[str, ...], topic_id: TopicId, partition: int) -> bool:
    return bool(named) and (named[0] == ALL_DAMAGED or damaged_name(topic_id, partition) in named)


class MemberImage(NamedTuple):
    """A broker that belongs to the cluster, also while it is away."""

    endpoints: tuple[Endpoint, ...]
    """Empty: not known."""
    rack: str | None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The broker's endpoint for clients of a listener; None: it had no such listener, or that is not known."""
        return _endpoint(self.endpoints, listener)


def member_image(registered: BrokerImage | None, last: MemberRow | None) -> MemberImage:
    """The member from its registration, or else from its last known address."""
    known = registered or last or MemberRow()
    return MemberImage(known.endpoints, known.rack)


def _endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)


class ControllerImage(NamedTuple):
    broker_id: int
    broker_epoch: int
    create_revision: int
    """The controller's epoch: the revision at which the broker became the controller."""


def broker_image(broker_id: int, key: str, value: bytes, mod_revision: int) -> BrokerImage:
    row = decode_broker(key, value)
    return BrokerImage(
        broker_id,
        row.epoch,
        row.incarnation,
        row.endpoints,
        row.rack,
        row.metadata_versions,
        row.storage_id,
        row.unclean,
        row.fenced,
        row.draining,
        row.starting,
        row.disk_full,
        row.damaged,
        row.key,
        row.withheld,
        row.log_ends,
        mod_revision,
    )


def controller_image(value: bytes, create_revision: int) -> ControllerImage:
    row = decode_controller(value)
    return ControllerImage(row.broker, row.epoch, create_revision)
