"""One partition in the image of the cluster's metadata, and its leadership."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.cluster.metadata.rows import PartitionRow, Unknown

NOBODY = -1


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. Equal partitions of a topic may share one object."""

    leader: int
    """The leader's broker id as stored; -1: no leader. `ClusterImage.leadership` gives the present leader."""
    leader_epoch: int
    """The epoch that holds while the leader's broker epoch is `leader_broker_epoch`."""
    leader_broker_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    mod_revision: int = 0
    """The revision of the partition's key, for a compare-and-set."""
    unknown: Unknown = ()
    """Fields of the row that this release does not know, for a row that is written again."""
    lossy_epoch: int = 0
    """See `PartitionRow`."""
    former_storage: tuple[tuple[int, str], ...] = ()
    """See `PartitionRow`."""
    accepted_epoch: int = 0
    """See `PartitionRow`."""

    def others_in_sync(self, broker_id: int) -> set[int]:
        """The replicas except this one that have every acknowledged record: in sync, or eligible to lead."""
        return {*self.isr, *self.elr} - {broker_id}

    @property
    def seeks_longest_log(self) -> bool:
        """True if all possible leaders may have lost acknowledged records: replicas are asked for their log ends."""
        return self.leader == NOBODY and self.lossy_epoch == self.leader_epoch


class Leadership(NamedTuple):
    """The present leader of a partition."""

    leader: int
    """The leader's broker id; -1: no leader."""
    epoch: int


def partition_image(row: PartitionRow, mod_revision: int) -> PartitionImage:
    return PartitionImage(
        row.leader,
        row.leader_epoch,
        row.leader_broker_epoch,
        row.replicas,
        row.isr,
        row.partition_epoch,
        row.elr,
        row.adding,
        row.removing,
        row.recovering,
        mod_revision,
        row.unknown,
        row.lossy_epoch,
        row.former_storage,
        row.accepted_epoch,
    )


def partition_row(image: PartitionImage) -> PartitionRow:
    """The row that the image was made of."""
    return PartitionRow(
        image.leader,
        image.leader_broker_epoch,
        image.leader_epoch,
        image.replicas,
        image.isr,
        image.elr,
        image.adding,
        image.removing,
        image.partition_epoch,
        image.recovering,
        image.lossy_epoch,
        image.former_storage,
        image.accepted_epoch,
        image.unknown,
    )


def partition_images(rows: Mapping[int, tuple[PartitionRow, int]], count: int) -> tuple[PartitionImage, ...]:
    """The images of the first `count` partitions, from rows with their mod_revision. Raises KeyError.

    Partitions with equal rows share one object: a topic of 10,000 partitions has about 80 objects.
    """
    shared: dict[tuple[int, int], PartitionImage] = {}
    images = []
    for partition in range(count):
        row, mod_revision = rows[partition]
        image = shared.get((id(row), mod_revision))
        if image is None:
            image = shared[id(row), mod_revision] = partition_image(row, mod_revision)
        images.append(image)
    return tuple(images)
