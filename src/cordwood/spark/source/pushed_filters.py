"""The bounds that filters set to a batch read. PySpark 4.0 reads without any, and has no classes for filters."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cordwood.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class PartitionCondition(Protocol):
    """A filter on topic and partition."""

    def holds(self, partition: TopicPartition) -> bool: ...


@dataclass(frozen=True)
class PushedFilters:
    """The bounds of a read by filters. Bounds are inclusive; None: no bound."""

    of_partitions: tuple[PartitionCondition, ...] = ()
    """Filters on topic and partition, which must all hold."""
    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None
    left_to_spark: tuple["Filter", ...] = field(default=(), compare=False)

    @property
    def min_timestamp_ms(self) -> int | None:
        """The first time in ms that can be late enough, since records have milliseconds. None also for times up to
        1970: brokers search only for later times, and would miss a record without a time (-1)."""
        if self.min_timestamp_us is None or self.min_timestamp_us <= 0:
            return None
        return -(-self.min_timestamp_us // 1000)

    def allows(self, partition: TopicPartition) -> bool:
        return all(condition.holds(partition) for condition in self.of_partitions)

    def clamp(self, start: int, end: int) -> tuple[int, int]:
        """The part of an offset range within the bounds."""
        if self.min_offset is not None:
            start = max(start, self.min_offset)
        if self.max_offset is not None:
            end = min(end, self.max_offset + 1)
        return start, max(start, end)
