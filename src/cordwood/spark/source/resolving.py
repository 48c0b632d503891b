"""Resolves the beginning and the end of a read to offsets of the cluster.

Positions that do not exist are found here, before anything is read: an offset before the log is a loss, an offset
beyond its end is a mistake.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.client.answers import EARLIEST, LATEST, FoundOffset
from cordwood.client.cluster import Cluster
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.options import names as names
from cordwood.spark.source.boundaries import AtGroup, AtOffsets, AtTime, AtTimes, Boundary, Edge, NoLaterRecord
from cordwood.spark.source.offsets import Positions
from cordwood.spark.source.options import SourceOptions
from cordwood.spark.source.survey import NothingToRead, Survey, names_of


@dataclass(frozen=True)
class Resolver:
    """Resolves boundaries against one survey, so that the beginning and the end fit together."""

    cluster: Cluster
    options: SourceOptions
    survey: Survey

    def start(self) -> Positions:
        """The positions as asked for: one may be gone, or lie beyond the end."""
        boundary = self.options.starting
        if isinstance(boundary, AtGroup):
            return self._at_group(boundary)
        if isinstance(boundary, AtTime | AtTimes):
            return self._at_times(boundary, is_start=True)
        return self._at_offsets(boundary, names.STARTING_OFFSETS)

    def end(self) -> Positions:
        boundary = self.options.ending
        if isinstance(boundary, AtTime | AtTimes):
            return self._at_times(boundary, is_start=False)
        return self._at_offsets(boundary, names.ENDING_OFFSETS)

    def _at_offsets(self, boundary: Boundary, option: str) -> Positions:
        edges = {EARLIEST: self.survey.earliest, LATEST: self.survey.readable}
        if boundary is Edge.EARLIEST:
            return dict(edges[EARLIEST])
        if boundary is Edge.LATEST:
            return dict(edges[LATEST])
        assert isinstance(boundary, AtOffsets)
        self._check_covers(boundary.positions, option)
        return {
            partition: edges[offset][partition] if offset in edges else offset
            for partition, offset in boundary.positions.items()
        }

    def _at_group(self, boundary: AtGroup) -> Positions:
        committed = self.cluster.committed(boundary.group, list(self.survey.partitions))
        return {partition: committed.get(partition, earliest) for partition, earliest in self.survey.earliest.items()}

    def _at_times(self, boundary: AtTime | AtTimes, *, is_start: bool) -> Positions:
        if isinstance(boundary, AtTimes):
            option = names.STARTING_OFFSETS_BY_TIMESTAMP if is_start else names.ENDING_OFFSETS_BY_TIMESTAMP
            times: Mapping[TopicPartition, int] = boundary.timestamps_ms
            self._check_covers(times, option)
        else:
            option = names.STARTING_TIMESTAMP if is_start else names.ENDING_TIMESTAMP
            times = dict.fromkeys(self.survey.partitions, boundary.timestamp_ms)
        found = self.cluster.list_offsets(times, self.options.isolation)
        late = sorted(partition for partition in times if _offset(found, partition) is None)
        if late and is_start and self.options.no_later_record is NoLaterRecord.ERROR:
            raise NothingToRead(
                f"{option}: no record is as late as that in {names_of(late)}. Choose an earlier time, or set"
                f" {names.STARTING_STRATEGY}=latest to begin such partitions at their end."
            )
        positions = {}
        for partition in times:
            offset = _offset(found, partition)
            positions[partition] = self.survey.readable[partition] if offset is None else offset
        return positions

    def _check_covers(self, given: Mapping[TopicPartition, int], option: str) -> None:
        missing = set(self.survey.partitions) - set(given)
        unknown = set(given) - set(self.survey.partitions)
        if missing or unknown:
            problems = []
            if missing:
                problems.append(f"it says nothing about {names_of(missing)}")
            if unknown:
                problems.append(f"it names {names_of(unknown)}, which the query does not read")
            raise NothingToRead(
                f"{option} must name each partition that is read: {', and '.join(problems)}."
                " Use -2 for the earliest and -1 for the latest offset."
            )


def _offset(found: Mapping[TopicPartition, FoundOffset], partition: TopicPartition) -> int | None:
    answer = found.get(partition)
    return None if answer is None or answer.offset < 0 else answer.offset
