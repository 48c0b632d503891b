"""The book of flushes: the open logs that the next flush round syncs, and the waits for the disk.

A log under ack.durability=disk is dirty from each append on. A log under ack.durability=os waits for its settings
(flush.messages, flush.ms), or until too many files would have unsynced writes. The driver takes tickets for a round,
syncs them in a thread, and brings them back (`flushed`).
"""

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.log import Log
from cordwood.log.parts.offsets import LogOffsets
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.moment import Moment
from cordwood.model.settings.topic_settings import NO_LIMIT
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.partition import Partition

FLUSHED_AT_ONCE = 1000
"""The most logs in one flush round: taking and booking their tickets holds the loop for some 10 ms."""


class FlushBook:
    def __init__(self, loop: Loop, image: ClusterImage, logs: DataDirectories) -> None:
        self._loop = loop
        self._image = image
        self._logs = logs
        self._open: dict[LogOffsets, Partition] = {}
        """Partitions with an open log, by the offsets of the log."""
        self.dirty: dict[Partition, None] = {}
        """Partitions that the next flush round syncs, the longest waiting first."""
        self._parts = 2 * len(logs.directories)
        """Each data directory has its part of the open files, and half of them may be unsynced."""
        self._unsynced: dict[Partition, None] = {}
        """Partitions with appends under ack.durability=os that are not synced yet."""
        self._timed: set[Partition] = set()
        """Partitions whose flush.ms runs."""

    def opened(self, partition: Partition, log: Log) -> None:
        self._open[log.offsets] = partition
        if log.offsets.end > log.offsets.durable_end:
            self.sync(partition)

    def forget(self, partition: Partition) -> None:
        """Drops a partition that is deleted, or no longer here."""
        if partition.opened is not None:
            self._open.pop(partition.opened.offsets, None)
        self.dirty.pop(partition, None)
        self._unsynced.pop(partition, None)

    def sync(self, partition: Partition) -> None:
        """Puts the partition's log into the next flush round."""
        self.dirty[partition] = None
        self._loop.effects.wake()

    def appended(self, partition: Partition, log: Log, now: Moment) -> None:
        """Books an append. Under ack.durability=os the records are visible at once."""
        settings = partition.settings
        if settings.ack_durability == "disk":
            self.dirty[partition] = None
            self._loop.effects.wake()
            return
        partition.moved(now)
        partition.unsynced_messages = log.offsets.end - log.offsets.durable_end
        self._unsynced[partition] = None
        if len(self._unsynced) > self._image.settings.open_files_max // self._parts:
            # Files with unsynced writes stay open. Before they use up the handles, one round syncs all of them.
            self.dirty.update(self._unsynced)
            self._unsynced.clear()
            self._loop.effects.wake()
        elif partition.unsynced_messages >= settings.flush_messages:
            self.sync(partition)
        elif settings.flush_ms != NO_LIMIT and partition not in self._timed:
            self._timed.add(partition)
            self._loop.after(settings.flush_ms, lambda _: self._flush_due(partition))

    def _flush_due(self, partition: Partition) -> None:
        self._timed.discard(partition)
        if partition.opened is not None and partition.opened.offsets in self._open:
            self.sync(partition)

    def take_tickets(self) -> list[FlushTicket]:
        """Takes the tickets of the logs that the next flush round makes durable."""
        tickets: list[FlushTicket] = []
        dirty = self.dirty
        while dirty and len(tickets) < FLUSHED_AT_ONCE:
            partition = next(iter(dirty))
            del dirty[partition]
            log = partition.opened
            ticket = None if log is None or partition.role.being_cut else log.begin_flush()
            if ticket is not None:
                tickets.append(ticket)
        return tickets

    def flushed(self, tickets: list[FlushTicket], now: Moment) -> None:
        """Notes that a flush round made these logs durable up to their tickets' ends."""
        self._logs.note_durable(tickets)
        for ticket in tickets:
            ticket.finish()
            self.became_durable(ticket.offsets, now)

    def became_durable(self, offsets: LogOffsets, now: Moment) -> None:
        """Wakes acks and readers that waited for the durable end of the log with these offsets."""
        partition = self._open.get(offsets)
        if partition is not None:
            partition.unsynced_messages = offsets.end - offsets.durable_end
            if not partition.unsynced_messages:
                self._unsynced.pop(partition, None)
            partition.waits.durable_up_to(offsets.durable_end)
            partition.moved(now)
