"""Opens the logs of hosted partitions, and tells the books of flushes and damage about them."""

import logging
from collections.abc import Callable
from functools import partial

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.set_aside import read_note
from cordwood.log.log import Log
from cordwood.node.loop.loop import Loop
from cordwood.node.partitions.damage_book import DamageBook
from cordwood.node.partitions.flushes import FlushBook
from cordwood.node.partitions.partition import Partition

logger = logging.getLogger("cordwood")

ALONE = "`cordwood recover put-back` puts it back"
ELSEWHERE = (
    "`cordwood recover put-back` refuses the directory of %s: to read what is set aside, copy it into the directory of "
    "a broker without a cluster, and put it back there (docs/operations/lost-metadata.md)"
)


class LogOpening:
    def __init__(
        self,
        loop: Loop,
        logs: DataDirectories,
        damage: DamageBook,
        flushes: FlushBook,
        on_doubt: Callable[[Partition, Log], None],
        *,
        in_cluster: bool,
    ) -> None:
        """`on_doubt` is called with a partition whose log may lack records at its beginning or at its end.
        `in_cluster`: brokers share the metadata store, and `cordwood recover` does not write to it."""
        self._put_back = ALONE
        if in_cluster:
            self._put_back = ELSEWHERE % "a node of a cluster"
        elif len(logs.directories) > 1:
            self._put_back = ELSEWHERE % "a broker with several of them"
        self._loop = loop
        self._logs = logs
        self._damage = damage
        self._flushes = flushes
        self._reported_set_aside: set[str] = set()
        self._on_doubt = on_doubt

    def open(self, partition: Partition) -> Log:
        """The log of the partition, recovered if need be. Raises StorageFailure."""
        log = self._logs.open_log(partition.name, partition.topic_id, partition.settings, self._loop.now)
        _report_recovery(log)
        self.report_set_aside()
        self._damage.log_opened(log)
        log.reports.on_late_report = partial(self._report_late, partition, log)
        self._flushes.opened(partition, log)
        self._look_for_doubt(partition, log)
        return log

    def _report_late(self, partition: Partition, log: Log) -> None:
        _report_recovery(log)
        self._damage.look_at(log)
        self._look_for_doubt(partition, log)

    def _look_for_doubt(self, partition: Partition, log: Log) -> None:
        if log.in_doubt:
            self._on_doubt(partition, log)

    def report_set_aside(self) -> None:
        """Logs the directories that were set aside since the last call; at the start, all such directories."""
        for directory in self._logs.directories:
            for path in directory.on_disk.set_aside_directories:
                if path in self._reported_set_aside:
                    continue
                self._reported_set_aside.add(path)
                note = read_note(directory.filesystem, path)
                if note is not None and note.until_in_sync:
                    continue  # removed once the partition is in sync
                logger.error(
                    "%s is set aside: %s. All of it is kept, none of it is served. `cordwood recover list %s` shows "
                    "what is set aside, %s",
                    path,
                    "there is no note of why" if note is None else note.reason,
                    directory.path,
                    self._put_back,
                )


def _report_recovery(log: Log) -> None:
    """Logs the cuts and rebuilt files of opening a log. The book of damage reports damage."""
    recovery = log.reports.recovery
    for cut in recovery.cuts:
        logger.warning("%s", cut)
    for path in recovery.rebuilt:
        logger.info("%s: rebuilt %s from the log", log.partition, path)
