"""Log lines about losses of groups: a few a second, however many groups and partitions lose records.

Retention may remove unread records of all partitions of all groups at once. A line for each loss would mean thousands
of lines a second, which hide all other lines and fill the disk.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from cordwood.model.identifiers import TopicPartition

logger = logging.getLogger("cordwood.lag")

GROUPS_NAMED: Final = 10
"""Groups with a line of their own at a time."""
PARTITIONS_NAMED: Final = 3
"""Partitions that a line names beside the one that it describes."""
SAID_EVERY_MS: Final = 1000


@dataclass(slots=True)
class _Losses:
    """Losses of one group."""

    worst: TopicPartition
    badness: float
    line: str
    """Describes the loss in the partition `worst`."""
    count: int = 1
    named: list[TopicPartition] = field(default_factory=list)


class LossLines:
    """Collects losses of one kind, and logs them by group."""

    def __init__(self) -> None:
        self._by_group: dict[str, _Losses] = {}
        self._say_from_ms = 0

    def add(self, group_id: str, partition: TopicPartition, badness: float, line: str) -> None:
        """Adds a loss, which `line` describes. Only the group's worst loss is described, the others are counted."""
        losses = self._by_group.get(group_id)
        if losses is None:
            losses = self._by_group[group_id] = _Losses(partition, badness, line)
        else:
            losses.count += 1
            if badness > losses.badness:
                losses.worst, losses.badness, losses.line = partition, badness, line
        if len(losses.named) <= PARTITIONS_NAMED:
            losses.named.append(partition)

    def say(self, now_ms: int) -> None:
        """Logs the losses since the last lines, unless those are less than SAID_EVERY_MS old."""
        if not self._by_group or now_ms < self._say_from_ms:
            return
        self._say_from_ms = now_ms + SAID_EVERY_MS
        groups = list(self._by_group.values())
        self._by_group = {}
        for losses in groups[:GROUPS_NAMED]:
            logger.warning("%s%s", losses.line, _others(losses))
        if len(groups) > GROUPS_NAMED:
            logger.warning(
                "the same holds for %d more groups, in %d partitions: see the metrics of groups",
                len(groups) - GROUPS_NAMED,
                sum(losses.count for losses in groups[GROUPS_NAMED:]),
            )


def _others(losses: _Losses) -> str:
    if losses.count == 1:
        return ""
    named = [str(each) for each in losses.named if each != losses.worst][:PARTITIONS_NAMED]
    if losses.count - 1 > len(named):
        named.append("...")
    return f". The same holds for {losses.count - 1} more partitions of this group: {', '.join(named)}"
