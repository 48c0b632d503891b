"""Plans the tasks of a read: offset ranges, cut and packed into tasks of like size. Pure.

The ranges of all partitions are laid end to end and cut into equal pieces: a large partition becomes several tasks,
many small ones become one, and every task has about the same work. Order is kept within each partition's range: its
pieces are in offset order, and a task reads its ranges one after the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.security.connection_settings import PLAIN_TEXT, Security
from cordwood.spark.source.options import SourceOptions, TaskSizes

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS_PER_TASK: Final = 1_000_000
"""Above this a range is worth another task even if all cores have one: a failed task is repeated as a whole."""

RECORDS_WORTH_A_TASK: Final = 10_000
"""Below this a task costs more than it saves."""

RANGE_COST: Final = 500
"""The cost of beginning with another partition, as the number of records that are read in that time."""


class OffsetRange(NamedTuple):
    """The records of one partition with start <= offset < end."""

    partition: TopicPartition
    start: int
    end: int
    is_new: bool = False
    """True if the query had no position in this partition: it is read from the beginning of its log, which may be above
    0."""

    @property
    def size(self) -> int:
        return self.end - self.start


Task = tuple[OffsetRange, ...]


@dataclass
class ReadTask(InputPartition):
    """The work of one Spark task."""

    ranges: Task = ()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """Ids of the topics that the offsets belong to, if the planner knows them: a topic that was created again has
    another id."""
    box: str | None = None
    """The group for notes to the planner; None: no notes."""
    introduces: bool = False
    """True if this task tells the planner the query's name."""
    security: Security = PLAIN_TEXT
    """The log-in of a stream's task: the planner may replace it with each batch, and the reader has none."""

    @classmethod
    def of(
        cls, ranges: Task, topic_ids: Mapping[str, TopicId], box: str | None = None, *, introduces: bool = False
    ) -> "ReadTask":
        """A task with the ids of its topics, taken from all known ids."""
        topics = {wanted.partition.topic for wanted in ranges}
        return cls(ranges, {name: topic_ids[name] for name in sorted(topics & topic_ids.keys())}, box, introduces)


@dataclass(frozen=True)
class Reading:
    """Everything that the tasks of a read share. Travels pickled."""

    options: SourceOptions
    schema: "pa.Schema"
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges between two positions. A partition that only the end has is new and read from its beginning; one that
    only the start has is gone; one whose end lies before its start has nothing to read."""
    ranges = []
    for partition in sorted(end):
        known = partition in start
        found = OffsetRange(partition, start.get(partition, 0), end[partition], is_new=not known)
        if found.size > 0:
            ranges.append(found)
    return ranges


def plan_tasks(ranges: Iterable[OffsetRange], sizes: TaskSizes, cores: int) -> list[Task]:
    """Cuts ranges into tasks. The same ranges, sizes and cores always give the same tasks."""
    ranges = [found for found in ranges if found.size > 0]
    records = sum(found.size for found in ranges)
    if not records:
        return []
    work = records + RANGE_COST * len(ranges)
    count = max(1, min(max(cores, _pieces(work, RECORDS_PER_TASK)), _pieces(work, RECORDS_WORTH_A_TASK)))
    if sizes.whole_partitions:
        return _packed(ranges, count)
    wished = max(
        min(sizes.min_tasks or 0, records),
        _pieces(records, sizes.max_records) if sizes.max_records else 0,
    )
    if wished > count:
        # A wish counts records, and a limit on records is kept exactly.
        return _cut(ranges, wished, range_cost=0, smallest_piece=0)
    if sizes.max_records:
        return _cut(ranges, count, range_cost=0, smallest_piece=0)
    return _cut(ranges, count, range_cost=RANGE_COST, smallest_piece=work // count // 10)


def _packed(ranges: Sequence[OffsetRange], count: int) -> list[Task]:
    """At most `count` tasks of whole ranges: the largest range first, each to the task with the least so far."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(count, len(ranges)))]
    loads = [(0, index) for index in range(len(tasks))]
    for found in sorted(ranges, key=lambda found: (-found.size, found.partition)):
        load, index = heappop(loads)
        tasks[index].append(found)
        heappush(loads, (load + found.size + RANGE_COST, index))
    return [tuple(sorted(task, key=lambda found: found.partition)) for task in tasks]


def _pieces(amount: int, size: int) -> int:
    return -(-amount // size)


def _cut(ranges: Sequence[OffsetRange], count: int, *, range_cost: int, smallest_piece: int) -> list[Task]:
    """Cuts the line of ranges at `count - 1` places that are equally far from each other.

    A range begins with `range_cost` on the line, during which no record is read. A cut that would leave less than
    `smallest_piece` of a range is moved to the range's border."""
    total = sum(found.size + range_cost for found in ranges)
    tasks: list[Task] = []
    task: list[OffsetRange] = []
    line = 0
    next_cut = 1
    for found in ranges:
        start = found.start
        first_record = line + range_cost
        line = first_record + found.size
        while next_cut < count and (place := next_cut * total // count) <= line:
            cut = found.start + max(0, place - first_record)
            if cut - start < smallest_piece:
                cut = start
            elif found.end - cut < smallest_piece:
                cut = found.end
            if cut > start:
                task.append(found._replace(start=start, end=cut))
                start = cut
            if task:
                tasks.append(tuple(task))
                task = []
            next_cut += 1
        if start < found.end:
            task.append(found._replace(start=start))
    if task:
        tasks.append(tuple(task))
    return tasks
