"""The lag of all groups, with a few requests to each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.model.failure import ExitCode, Failure, near_names

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection

GROUPS_AT_ONCE = 100
PARTITIONS_AT_ONCE = 5_000

Place = tuple[str, int]


class GroupLag(NamedTuple):
    """A group in one topic."""

    group: str
    state: str
    topic: str
    partitions: int
    """The partitions in which the group has a position."""
    lag: int
    """Offsets between positions and ends, in the partitions whose ends are known."""
    largest: int
    """The largest lag of a partition."""
    unknown: int
    """Partitions whose end is unknown: the topic is gone, or has no leader."""


def lags(connection: Connection, names: set[str]) -> list[GroupLag]:
    """The lag of these groups, or of all, by topic. Raises Failure for a group that does not exist."""
    positions: dict[tuple[str, str, str], dict[int, int]] = {}
    known: set[str] = set()
    for states, committed in _told_by_coordinators(connection, names):
        known |= states.keys()
        for (group, topic, partition), offset in committed.items():
            positions.setdefault((group, states[group], topic), {})[partition] = offset
    if missing := sorted(names - known):
        raise Failure(
            "GROUP_ID_NOT_FOUND",
            f"there is no group {missing[0]!r} at {connection.bootstrap_servers}",
            near_names(missing[0], known) or "`cordwood group list` lists the groups",
            ExitCode.NOT_FOUND,
        )
    ends = _ends(connection, {(topic, index) for (_, _, topic), by in positions.items() for index in by})
    found = []
    for (group, state, topic), by_partition in positions.items():
        behind = [
            max(ends[topic, index] - offset, 0) for index, offset in by_partition.items() if (topic, index) in ends
        ]
        found.append(
            GroupLag(
                group,
                state,
                topic,
                len(by_partition),
                sum(behind),
                max(behind, default=0),
                len(by_partition) - len(behind),
            )
        )
    return sorted(found, key=lambda each: (-each.lag, each))


def _told_by_coordinators(
    connection: Connection, names: set[str]
) -> list[tuple[dict[str, str], dict[tuple[str, str, int], int]]]:
    """The states and positions of groups, from the brokers that coordinate them."""
    from cordwood.administration.asking import ask
    from cordwood.administration.brokers import from_every_broker
    from cordwood.administration.group.view import groups_of
    from cordwood.client.settings import Address
    from cordwood.wire.apis import ApiKey

    def told_by(address: Address) -> tuple[dict[str, str], dict[tuple[str, str, int], int]]:
        groups = groups_of(address, connection.timeout_s)
        wanted = [group.name for group in groups if not names or group.name in names]
        committed = {}
        for first in range(0, len(wanted), GROUPS_AT_ONCE):
            asked = [{"group_id": name, "topics": None} for name in wanted[first : first + GROUPS_AT_ONCE]]
            answer = ask(address, ApiKey.OFFSET_FETCH, 8, {"groups": asked}, connection.timeout_s)
            for group in answer.groups:
                for topic in group.topics:
                    for each in topic.partitions:
                        if each.committed_offset >= 0 and not each.error_code:
                            committed[group.group_id, topic.name, each.partition_index] = each.committed_offset
        return {group.name: group.state for group in groups}, committed

    return from_every_broker(connection, told_by)


def _ends(connection: Connection, places: set[Place]) -> dict[Place, int]:
    """The ends of these partitions, from their leaders. Unknown ends are left out."""
    from cordwood.administration.asking import ask
    from cordwood.administration.brokers import brokers_that_take_part
    from cordwood.administration.topic.by_state import all_partitions
    from cordwood.wire.apis import ApiKey

    if not places:
        return {}
    led: dict[int, list[Place]] = {}
    for each in all_partitions(connection):
        if (each.topic, each.partition) in places:
            led.setdefault(each.leader, []).append((each.topic, each.partition))
    ends: dict[Place, int] = {}
    for node, address in brokers_that_take_part(connection).items():
        mine = led.get(node, [])
        for first in range(0, len(mine), PARTITIONS_AT_ONCE):
            topics: dict[str, list[dict[str, Any]]] = {}
            for topic, index in mine[first : first + PARTITIONS_AT_ONCE]:
                topics.setdefault(topic, []).append({"partition_index": index, "timestamp": -1})
            values = {
                "replica_id": -1,
                "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
            }
            try:
                answer = ask(address, ApiKey.LIST_OFFSETS, 4, values, connection.timeout_s)
            except Failure:
                break  # a broker that ended a moment ago: its ends are unknown
            for told in answer.topics:
                ends.update(
                    {(told.name, each.partition_index): each.offset for each in told.partitions if not each.error_code}
                )
    return ends
