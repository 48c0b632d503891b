"""The book of damage: the known damage in this broker's logs, across restarts (`log/directory/findings.py`).

A finding is logged once and kept; its offsets are refused to readers. Recovery, readers and the scrub find damage.
"""

import logging
from collections.abc import Callable, Iterable

from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.directory.findings import FILE_NAME, Finding, Findings
from cordwood.log.log import Log
from cordwood.model.errors import DiskFull, StorageFailure
from cordwood.node.loop.loop import Loop
from cordwood.segments.damaged import DamagedCheckpoint

logger = logging.getLogger("cordwood.scrub")


class DamageBook:
    def __init__(self, loop: Loop, logs: DataDirectories, on_found: Callable[[], None]) -> None:
        """`on_found` is called when there is damage that may be repaired from another replica."""
        self._loop = loop
        self._logs = logs
        self._path = f"{logs.path}/{FILE_NAME}"
        self.findings = self._load()
        self._said: set[Finding] = set()
        self._on_found = on_found
        self.repaired_offsets = 0
        """Offsets that were repaired since the broker started."""

    def _load(self) -> Findings:
        try:
            return Findings.from_bytes(self._logs.home.filesystem.read_bytes(self._path))
        except FileNotFoundError:
            return Findings()
        except (DamagedCheckpoint, StorageFailure) as failure:
            logger.warning("%s: the scrub forgets its findings and begins anew", failure)
            return Findings()

    def log_opened(self, log: Log) -> None:
        """Marks segments with findings from before a restart: they are checked before their next use."""
        self.look_at(log)
        known = {finding.segment_base_offset for finding in self.findings.of(log.partition)}
        if not known:
            return
        there = {None, *(segment.base_offset for segment in log.segments)}
        self.repaired(each for each in self.findings.of(log.partition) if each.segment_base_offset not in there)
        for segment in log.segments:
            if segment.base_offset in known and not segment.holes:
                segment.suspect = True

    def look_at(self, log: Log) -> None:
        """Takes in the damage that a log knows of: logs new findings, and keeps them."""
        if not log.reports.damage and not len(self.findings):
            return
        self.findings.add(log.reports.damage, self._loop.now.wall_ms)
        gone = [each for each in self.findings.of(log.partition) if each.end_offset <= log.offsets.start]
        self.findings.remove(gone)
        for finding in self.findings.of(log.partition):
            if finding not in self._said:
                self._said.add(finding)
                logger.error(
                    "%s: offsets %d to %d are damaged (%s at byte %d: %s): readers are refused there with "
                    "CORRUPT_MESSAGE, all others are served",
                    finding.partition,
                    finding.first_offset,
                    finding.end_offset - 1,
                    finding.file,
                    finding.position,
                    finding.reason,
                )
                self._on_found()

    def repaired(self, findings: Iterable[Finding]) -> None:
        """Forgets findings that a check did not confirm."""
        gone = list(findings)
        for finding in gone:
            first, last = finding.first_offset, finding.end_offset - 1
            logger.info("%s: offsets %d to %d are sound again", finding.partition, first, last)
        self.findings.remove(gone)
        self._said.difference_update(gone)

    def repaired_from(self, findings: Iterable[Finding], broker_ids: Iterable[int]) -> None:
        """Replaces findings by a note: batches of these brokers are in the place of the damaged ones."""
        gone, brokers = list(findings), sorted(broker_ids)
        for finding in gone:
            first, last = finding.first_offset, finding.end_offset - 1
            named = ", ".join(str(broker_id) for broker_id in brokers)
            logger.info("%s: offsets %d to %d are repaired from broker %s", finding.partition, first, last, named)
            self.repaired_offsets += finding.end_offset - finding.first_offset
        self.findings.repaired(gone, brokers, self._loop.now.wall_ms)
        self._said.difference_update(gone)

    def emptied(self, log: Log, leader: int) -> None:
        """Forgets the damage of a log that was emptied, and is filled anew from its leader."""
        log.reports.damage.clear()
        if known := self.findings.of(log.partition):
            self.repaired_from(known, [leader])

    def topic_deleted(self, topic: str) -> None:
        self.findings.forget_topic(topic)

    def known(self) -> list[Finding]:
        """The findings in records that the logs still have, by partition and offset."""
        starts = {log.partition: log.offsets.start for log in self._logs.logs} if len(self.findings) else {}
        return [each for each in self.findings.all() if each.end_offset > starts.get(each.partition, 0)]

    # On disk

    def gather(self) -> None:
        """Takes in damage that logs met at the first use of a segment, which the next start would not see."""
        for log in self._logs.logs:
            if log.reports.damage:
                self.look_at(log)

    def write(self, findings: bytes) -> None:
        """Replaces the findings on disk. May block."""
        self._logs.home.filesystem.replace(self._path, findings)

    def finish(self) -> None:
        """Saves all findings at a clean stop, when nothing runs in the background any more. May block."""
        self.gather()
        if self.findings.changed:
            try:
                self.write(self.findings.to_bytes())
            except DiskFull as failure:
                logger.error("%s: findings are not saved, the next start has to find the damage again", failure)
