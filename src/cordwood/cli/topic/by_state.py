"""The partitions of all topics in some state, as `topic describe` lists them."""

from collections.abc import Sequence
from typing import Any

from cordwood.administration.cluster.view import PartitionState
from cordwood.administration.connection import Connection
from cordwood.administration.topic.by_state import Wanted, all_partitions
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


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
