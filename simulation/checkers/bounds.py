"""Checks after every step that each partition's ends are in order, and that no end moves the wrong way.

Log start <= last stable offset <= high watermark <= log end; recovery point <= durable end <= log end; the high
watermark never falls within an epoch, and under ack.durability=disk never passes the durable end.
"""

from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.node.node import Node
from cordwood.node.partitions.partition import Partition
from cordwood.replication.leader import LeaderReplica
from simulation.world.broken import InvariantBroken
from simulation.world.ledger import Ledger

RETENTION_OF_A_RUN_MS = 86_400_000
"""A retention beyond this drops nothing during a run."""


class Watched:
    """The state of a partition at the last step, within one life of the broker."""

    __slots__ = ("high_watermark", "log_start", "partition", "undurable")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.high_watermark = 0
        self.log_start = 0
        self.undurable = 0
        """The high watermark under ack.durability=os, which stays after a change to disk."""


class Bounds:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._watched: dict[tuple[TopicId, int], Watched] = {}
        self._epochs: dict[tuple[TopicId, int], tuple[int, int]] = {}
        """The life in which a partition was last led, and its leader epoch in that life."""

    def new_life(self) -> None:
        self._watched.clear()

    def check(self, node: Node, life: int) -> None:
        for partition in node.hosted:
            key = (partition.topic_id, partition.name.partition)
            self._check_epoch(key, partition, life)
            replica = partition.role.leading
            if replica is not None:
                watched = self._watched.get(key)
                if watched is None or watched.partition is not partition:
                    watched = self._watched[key] = Watched(partition)
                self._check(watched, partition, replica)

    def _check_epoch(self, key: tuple[TopicId, int], partition: Partition, life: int) -> None:
        if not partition.role.leads:
            return
        now_in = partition.role.leader_epoch
        seen_in, epoch = self._epochs.get(key, (life, now_in))
        # A broker of a cluster whose lease ended leads in a new epoch, in the same life.
        if seen_in == life and epoch > now_in:
            raise InvariantBroken(f"{partition.name} went from leader epoch {epoch} to {now_in}")
        if seen_in < life and epoch >= now_in:
            raise InvariantBroken(f"{partition.name} was restarted in leader epoch {now_in} <= {epoch}")
        self._epochs[key] = (life, now_in)

    def _check(self, watched: Watched, partition: Partition, replica: LeaderReplica) -> None:
        log = replica.log
        name, start, end = partition.name, log.offsets.start, log.offsets.end
        high_watermark, durable_end = replica.high_watermark, log.offsets.durable_end
        if not start <= replica.last_stable_offset <= high_watermark <= end:
            raise InvariantBroken(
                f"{name}: log start {start} <= stable {replica.last_stable_offset} <= high watermark {high_watermark} "
                f"<= log end {end} does not hold"
            )
        recovery_point = log.offsets.recovery_point
        if not recovery_point <= durable_end <= end:
            raise InvariantBroken(
                f"{name}: recovery point {recovery_point} <= durable {durable_end} <= log end {end} does not hold"
            )
        if high_watermark < watched.high_watermark:
            raise InvariantBroken(f"{name}: the high watermark fell from {watched.high_watermark} to {high_watermark}")
        if not log.settings.acks_mean_disk:
            watched.undurable = high_watermark
        elif high_watermark > max(durable_end, watched.undurable):
            raise InvariantBroken(f"{name}: high watermark {high_watermark} is beyond what is durable, {durable_end}")
        watched.high_watermark = high_watermark
        self._check_start(watched, partition, name, start)
        self._ledger.partition(partition.topic_id, name.topic, name.partition).durable_end = durable_end

    def _check_start(self, watched: Watched, partition: Partition, name: TopicPartition, start: int) -> None:
        """Checks that the log's start moves only for deletions that a client or a setting asked for."""
        settings = partition.settings
        ledger = self._ledger.partition(partition.topic_id, name.topic, name.partition)
        if settings.compacted:
            ledger.may_be_compacted = True
        if settings.deletes and (settings.retention_bytes >= 0 or 0 <= settings.retention_ms < RETENTION_OF_A_RUN_MS):
            ledger.may_expire = True
        if start < watched.log_start:
            raise InvariantBroken(f"{name}: the log's start went back from {watched.log_start} to {start}")
        # Compaction may leave a segment without records: under `compact,delete` it is removed, and check_content looks
        # at it.
        if start > ledger.deletable_before and not ledger.may_expire and not ledger.may_be_compacted:
            raise InvariantBroken(f"{name} begins at {start}, and nobody asked to delete anything before that")
        if start < ledger.deleted_before:
            raise InvariantBroken(f"{name}: records before {ledger.deleted_before} were deleted, it begins at {start}")
        watched.log_start = start
