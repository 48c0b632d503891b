"""Partitions of all topics by their state: without replicas, without a leader, or led by a given broker."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cordwood.cli.cluster.view import PartitionState, partitions_of
from cordwood.cli.connection import Connection
from cordwood.cli.raw_request import brokers, first_answer
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


class Wanted(NamedTuple):
    """The requested states. A partition in any of them is meant."""

    under_replicated: bool = False
    without_leader: bool = False
    led_by: int | None = None

    @property
    def any(self) -> bool:
        return self.under_replicated or self.without_leader or self.led_by is not None

    def has(self, partition: PartitionState) -> bool:
        return (
            (self.under_replicated and bool(partition.missing))
            or (self.without_leader and partition.leader < 0)
            or (self.led_by is not None and partition.leader == self.led_by)
        )


def all_partitions(connection: Connection, topics: Sequence[str] = ()) -> list[PartitionState]:
    """The partitions of these topics, or of all. Raises Failure for a topic that does not exist."""
    _, found = first_answer(brokers(connection), lambda asked: partitions_of(asked, list(topics), connection.timeout_s))
    for topic in topics:
        if not any(each.topic == topic for each in found):
            raise connection.unknown_topic(topic)
    return sorted(found)


def show_by_state(connection: Connection, topics: Sequence[str], wanted: Wanted, *, quiet: bool, as_json: bool) -> None:
    """Shows the partitions, also of internal topics: a group cannot commit if its partition of __consumer_offsets has
    no leader."""
    found = [each for each in all_partitions(connection, topics) if wanted.has(each)]
    if as_json:
        print_json([_as_json(each) for each in found])
    elif quiet:
        print_names(f"{each.topic}-{each.partition}" for each in found)
    elif found:
        print_table(
            ["topic", "partition", "leader", "replicas", "in sync", "not in sync"],
            [
                (
                    each.topic,
                    each.partition,
                    None if each.leader < 0 else each.leader,
                    _ids(each.replicas),
                    _ids(each.isr),
                    _ids(each.missing),
                )
                for each in found
            ],
        )
    else:
        remark("No partition is in this state.")


def _as_json(partition: PartitionState) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if partition.leader < 0 else partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "missing": list(partition.missing),
    }


def _ids(ids: tuple[int, ...]) -> str | None:
    return ",".join(map(str, ids)) or None
