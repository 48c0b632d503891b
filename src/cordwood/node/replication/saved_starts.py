"""Log starts that followers took over from their leaders, saved at once: DeleteRecords at a leader waits for them.

One save is under way at a time, for all partitions whose starts moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports
from cordwood.node.partitions.hosted import HostedReplicas
from cordwood.node.partitions.partition import Partition

PAUSE_MS = 1_000
"""The pause after a save that failed."""


class SavedStarts:
    def __init__(self, loop: Loop, logs: DataDirectories, hosted: HostedReplicas, reports: Reports) -> None:
        self._loop = loop
        self._logs = logs
        self._hosted = hosted
        self._reports = reports
        self._due: dict[Partition, Callable[[Partition], None]] = {}
        """The partitions whose starts have to be saved, and who is told then: their leaders do not know yet."""
        self._under_way = False

    def save(self, partition: Partition, saved: Callable[[Partition], None]) -> None:
        """Saves the present start of the partition's log soon, then calls `saved`."""
        self._due[partition] = saved
        if not self._under_way:
            self._under_way = True
            self._loop.after(0, self._begin)

    def _begin(self, now: Moment) -> None:
        due, self._due = self._due, {}
        roles = ((each, each.role) for each in due if self._hosted.hosts(each))
        saving = [each for each, role in roles if not role.offline and not role.being_cut]
        logs = [log for each in saving if (log := each.opened) is not None]
        if not logs:
            self._under_way = False
            return

        def saved(outcome: Exception | None) -> None:
            if isinstance(outcome, Exception):
                self._reports.failed_write(outcome)
                self._loop.after(PAUSE_MS, self._begin)
                return
            for each in saving:
                due[each](each)
            self._begin(self._loop.now)

        self._loop.effects.blocking(self._logs.save_offsets(logs), saved)
