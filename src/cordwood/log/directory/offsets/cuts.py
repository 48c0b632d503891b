"""Cuts of followers' logs in one data directory. Before a log loses records, the saved offsets that point above its new
end are lowered, durably.

A cut begins and ends in the loop, and runs in any thread. A cut that fails halfway leaves files as a crash does: the
log is forgotten, and the next use of the partition recovers it as a start would.
"""

import threading
from collections.abc import Callable, MutableMapping

from cordwood.log.directory.offsets.durable_ends import DurableEnds
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.log import Log
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.segments.end_witness import end_key


class Cuts:
    def __init__(
        self,
        logs: MutableMapping[TopicPartition, Log],
        offsets: KeptOffsets,
        ends: DurableEnds,
        renaming: threading.Lock,
    ) -> None:
        """`logs` are the open logs of the directory; a log whose cut fails halfway is taken out. `renaming` is held
        while a directory gets another name."""
        self._logs = logs
        self._offsets = offsets
        self._ends = ends
        self._renaming = renaming
        self.under_way: set[Log] = set()
        """Logs that a thread cuts: their offsets are neither noted nor checkpointed."""
        self._halfway: set[Log] = set()
        """Logs whose files a cut has begun to change."""
        self.to_recover: dict[TopicPartition, int] = {}
        """Partitions whose cut failed halfway, with the number of cuts of the log: their files are as after a crash."""

    def about_to_be_cut(self, partition: TopicPartition, recovery_point: int) -> None:
        """Lowers the saved offsets of a log that cuts itself, waiting for the disk."""
        log = self._logs.get(partition)
        if log not in self.under_way:
            start = 0 if log is None else log.offsets.start
            topic_id = None if log is None else log.directory.topic_id
            self._lower(partition, topic_id, recovery_point, recovery_point, start)()

    def _lower(
        self, partition: TopicPartition, topic_id: TopicId | None, recovery_point: int, end: int, start: int
    ) -> Callable[[], None]:
        # The cut may remove the first file: until the log has another one, no other note says that there was one.
        gone = () if topic_id is None else (end_key(topic_id, partition.partition),)
        sync_ends = self._ends.begin_forget(gone)
        save_offsets = self._offsets.begin_cut(partition, recovery_point, end, start)

        def save() -> None:
            sync_ends()
            save_offsets()

        return save

    def begin(self, log: Log, offset: int, *, anew: bool) -> Callable[[], None]:
        """Prepares, in the loop, a cut of a follower's log at this offset; `anew`: the log is emptied and goes on at
        the offset. No checkpoint may be under way. The returned function cuts, in any thread, while the log is not
        used. `end` follows, in the loop."""
        segments, offsets = log.segments, log.offsets
        if not log.replayed.ready:
            log.replayed.make_ready()
        if segments.all and offset < segments[0].base_offset:
            # A log that was filled from a compacted leader begins behind its start: no batch is left of it.
            anew = True
        # The base of the segment is known without a look at the disk. The next checkpoint moves the point up again.
        base = offset
        if segments.all:
            base = segments[0 if anew else segments.place_of(max(offset, segments[0].base_offset))].base_offset
        offsets.recovery_point = min(offsets.recovery_point, base, offset)
        offsets.truncations += 1
        self.under_way.add(log)
        start = max(offsets.start, offset) if anew else offsets.start
        save = self._lower(log.partition, log.directory.topic_id, offsets.recovery_point, offset, start)

        def cut() -> None:
            with self._renaming:
                if self._logs.get(log.partition) is not log:
                    return
                save()
                self._halfway.add(log)
                if anew:
                    log.restart_at(offset)
                else:
                    log.truncate_to(offset)
                self._halfway.discard(log)

        return cut

    def end(self, log: Log) -> bool:
        """The cut is over. False if it failed halfway: the log's state is unclear, so the log is forgotten. Its files
        are as a crash in the middle of the cut leaves them, and the next `open_log` recovers them as a start does."""
        self.under_way.discard(log)
        if log not in self._halfway:
            if log.segments:
                log.offsets.on_begin(log.segments[0].base_offset)
            return True
        self._halfway.discard(log)
        partition = log.partition
        if self._logs.get(partition) is log:
            del self._logs[partition]
            self.to_recover[partition] = log.offsets.truncations + 1
            for file in log.segments.files():
                file.close()
        return False
