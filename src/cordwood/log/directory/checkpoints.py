"""Checkpoints of the logs in one data directory: recovery points move up, and the offsets kept for all logs are saved.

A checkpoint begins and finishes in the loop, a few logs in each step, and is written in any thread in between. Logs
that are cut, deleted, or about to move to another directory are left out.
"""

from collections.abc import Callable, Iterable, Mapping

from cordwood.log.directory.in_steps import Steps, in_one_step
from cordwood.log.directory.offsets.cuts import Cuts
from cordwood.log.directory.offsets.durable_ends import DurableEnds, do_nothing
from cordwood.log.directory.offsets.kept_offsets import KeptOffsets
from cordwood.log.directory.partitions_on_disk import PartitionsOnDisk
from cordwood.log.directory.topic_descriptions import TopicDescriptions
from cordwood.log.log import Log
from cordwood.log.upkeep.checkpoint import Checkpoint, CheckpointTicket, cost_of
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.filesystem import Filesystem

COST_OF_A_STEP = 32
"""The most that one step of a checkpoint costs, in the unit of `cost_of`: 1 to 2 ms."""

NOTED_IN_A_STEP = 500
"""The most logs whose offsets are noted in one step, which takes less than a millisecond."""


class DirectoryCheckpoints:
    def __init__(
        self,
        filesystem: Filesystem,
        path: str,
        logs: Mapping[TopicPartition, Log],
        offsets: KeptOffsets,
        ends: DurableEnds,
        descriptions: TopicDescriptions,
        on_disk: PartitionsOnDisk,
        cuts: Cuts,
        *,
        sync_together: bool,
    ) -> None:
        """`logs` are the open logs of the directory. `sync_together`: False if a sync of the whole filesystem cannot be
        trusted."""
        self._filesystem = filesystem
        self._path = path
        self._logs = logs
        self._offsets = offsets
        self._ends = ends
        self._descriptions = descriptions
        self._on_disk = on_disk
        self._cuts = cuts
        self._sync_together = sync_together
        self.held: set[Log] = set()
        """Logs that are about to move to another directory: they are not checkpointed."""
        self.high_watermark_of: Callable[[TopicPartition], tuple[int, int] | None] = lambda partition: None
        """Returns the present high watermark of a replicated partition; None: none is kept."""

    def begin(self, logs: Iterable[Log] | None = None) -> Checkpoint:
        """Takes, in the loop, the checkpoint that moves the recovery points of these logs."""
        return in_one_step(self.begin_in_steps(logs))

    def begin_in_steps(self, logs: Iterable[Log] | None = None) -> Steps[Checkpoint]:
        """Takes the checkpoint of these logs, or of all, a few logs in each step. Logs that are deleted meanwhile are
        left out."""
        tickets: list[CheckpointTicket] = []
        # The ends are noted before the first ticket: each log's ticket then covers them.
        when_saved = self._ends.begin_checkpoint() if logs is None else do_nothing
        costs = 0
        for log in list(self._logs.values()) if logs is None else logs:
            if costs >= COST_OF_A_STEP:
                costs = 0
                yield
            if self._logs.get(log.partition) is log and log not in self._cuts.under_way and log not in self.held:
                costs += cost_of(log.segments, log.replayed)
                if (ticket := log.begin_checkpoint()) is not None:
                    tickets.append(ticket)
        return Checkpoint(self._filesystem, self._path, tickets, together=self._sync_together, when_saved=when_saved)

    def finish(self, checkpoint: Checkpoint) -> Callable[[], None]:
        """Moves the recovery points, in the loop. The returned function writes them, in any thread."""
        return in_one_step(self.finish_in_steps(checkpoint, lambda log: None))

    def finish_in_steps(self, checkpoint: Checkpoint, booked: Callable[[Log], None]) -> Steps[Callable[[], None]]:
        """Moves the recovery points, a few in each step, and calls `booked` for each. Returns the function that writes
        them, in any thread."""
        for start in range(0, len(checkpoint.tickets), COST_OF_A_STEP):
            tickets = checkpoint.tickets[start : start + COST_OF_A_STEP]
            self._ends.note([ticket.flush for ticket in tickets if ticket.flush is not None])
            for ticket in tickets:
                log = self._logs.get(ticket.directory.partition)
                if log is not None and log.offsets is ticket.offsets:
                    ticket.finish()
                    booked(log)
            yield
        for number, log in enumerate(list(self._logs.values()), 1):
            self._note(log)
            if number % NOTED_IN_A_STEP == 0:
                yield
        save_descriptions = yield from self._descriptions.begin_save_in_steps()
        save_offsets = self.save_offsets(())

        def save() -> None:
            save_offsets()
            checkpoint.when_saved()
            save_descriptions()

        return save

    def save_offsets(self, logs: Iterable[Log] | None = None) -> Callable[[], None]:
        """Copies the offsets, in the loop: the current ones of these logs, the last noted ones of all others. The
        returned function writes them, in any thread."""
        for log in self._logs.values() if logs is None else logs:
            self._note(log)
        return self._offsets.begin_save()

    def _note(self, log: Log) -> None:
        """Notes the current offsets of a log, unless it was deleted."""
        partition = log.partition
        if self._logs.get(partition) is not log or log in self._cuts.under_way:
            return
        if log.segments:
            self._on_disk.add(partition)
        self._offsets.note(partition, log.offsets, has_segments=bool(log.segments))
        known = self.high_watermark_of(partition)
        if known is not None:
            self._offsets.high_watermarks[partition], self._offsets.watermark_epochs[partition] = known
