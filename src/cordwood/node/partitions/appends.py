"""Appends to the logs that this node leads: batches of clients, records of coordinators, markers."""

from functools import partial

from cordwood.log.log import Appended
from cordwood.model.errors import DiskFull, ErrorCode, ProtocolError
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.acks import ALL_REPLICAS
from cordwood.node.partitions.checkpoints import Checkpoints
from cordwood.node.partitions.early_batches import EarlyBatch, is_early
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.full_disk import FullDisk
from cordwood.node.partitions.partition import Partition
from cordwood.node.partitions.refused_batches import RefusedBatches
from cordwood.records.control import TransactionMarker


class Appends:
    def __init__(self, loop: Loop, flushes: FlushBook, checkpoints: Checkpoints, full_disk: FullDisk) -> None:
        self._loop = loop
        self._full_disk = full_disk
        self._flushes = flushes
        self._checkpoints = checkpoints
        self._grown: dict[Partition, None] = {}
        """Partitions with new records for which followers wait."""
        self._refused = RefusedBatches()

    def append(self, partition: Partition, batch: memoryview, acks: int, now: Moment) -> tuple[Appended, bool]:
        """Appends a client's batch. The bool is True if the batch is already as safe as its acks ask for."""
        replica = partition.replica
        if acks == ALL_REPLICAS and not replica.enough_in_sync:
            self._refused.note(partition, batch, partial(_too_few_in_sync, partition), now)
            raise _too_few_in_sync(partition)
        log = replica.log
        if self._refused:
            self._refused.check(partition, batch, now)
        if is_early(partition, log, batch, now):
            self._refused.note(partition, batch, partial(EarlyBatch, partition.name), now)
            raise EarlyBatch(partition.name)
        try:
            appended = log.append(batch, leader_epoch=replica.leader_epoch, now=now)
        except DiskFull as failure:
            self._refused.note(partition, batch, partial(DiskFull, str(failure)), now)
            self._full_disk.found(failure)
            raise
        if not appended.duplicate:
            partition.appended_bytes += len(batch)
        if log.segments.closing:
            # A segment was rolled: a checkpoint saves its indexes, and recovery after a crash skips the segment.
            self._checkpoints.soon()
        self._flushes.appended(partition, log, now)
        if partition.waits.followers:
            self._tell_followers(partition)
        last_offset = appended.last_offset
        safe = not partition.must_sync or log.offsets.durable_end > last_offset
        if acks == ALL_REPLICAS and replica.high_watermark <= last_offset:
            safe = False
        return appended, safe

    def append_internal(
        self, partition: Partition, batch: bytearray, now: Moment, marker: TransactionMarker | None = None
    ) -> Appended:
        """Appends records of a coordinator, or the marker of a transaction, which wait for all in-sync replicas."""
        replica = partition.replica
        if not replica.enough_in_sync:
            raise _too_few_in_sync(partition)
        log = replica.log
        try:
            appended = log.append_internal(batch, leader_epoch=replica.leader_epoch, now=now, marker=marker)
        except DiskFull as failure:
            self._full_disk.found(failure)
            raise
        partition.appended_bytes += len(batch)
        if log.segments.closing:
            self._checkpoints.soon()
        self._flushes.appended(partition, log, now)
        if partition.waits.followers:
            self._tell_followers(partition)
        return appended

    def _tell_followers(self, partition: Partition) -> None:
        """Answers fetches of followers in the next turn: one answer has the records of all partitions of a request."""
        if not self._grown:
            self._loop.timers.at(self._loop.now.boot_ms, self._wake_followers)
            self._loop.effects.wake()
        self._grown[partition] = None

    def _wake_followers(self, now: Moment) -> None:
        grown, self._grown = self._grown, {}
        for partition in grown:
            partition.waits.wake_followers(now)


def _too_few_in_sync(partition: Partition) -> ProtocolError:
    return ProtocolError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"{partition.name} has fewer in-sync replicas than min.insync.replicas="
        f"{partition.settings.min_insync_replicas}.",
    )
