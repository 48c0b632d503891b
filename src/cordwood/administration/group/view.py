"""A group as the broker shows it: its members, and in each partition its position and the log's end."""

from typing import TYPE_CHECKING, NamedTuple

from cordwood.model.failure import ExitCode, Failure, near_names

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.client.settings import Address


_CONSUMERS = ("consumer", "")
"""The protocol types of consumer groups: with members, and with positions alone."""
_STATES = {"PreparingRebalance": "preparing_rebalancing", "CompletingRebalance": "completing_rebalancing"}
"""States with other names in confluent-kafka."""
_MEMBER_TYPES = {0: "classic", 1: "consumer"}


class MemberView(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[tuple[str, int]]
    protocol: str | None
    """`classic` or `consumer`; None if the broker does not say. Members of one group may use different protocols."""


class GroupView(NamedTuple):
    name: str
    state: str
    protocol: str
    assignor: str
    members: list[MemberView]


class PositionView(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the log's end; None without a committed position."""
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)


class ListedGroup(NamedTuple):
    name: str
    state: str
    protocol: str
    """`classic` or `consumer`."""


def listed(connection: "Connection") -> list[ListedGroup]:
    """The consumer groups of the cluster, by name. librdkafka would wait for brokers that ended a moment ago."""
    from cordwood.administration.brokers import from_every_broker

    told = from_every_broker(connection, lambda address: groups_of(address, connection.timeout_s))
    return sorted(group for groups in told for group in groups)


def groups_of(address: "Address", timeout_s: float) -> list[ListedGroup]:
    """The consumer groups that one broker coordinates. Raises Failure."""
    from cordwood.administration.asking import ask
    from cordwood.model.errors import code_name
    from cordwood.wire.apis import ApiKey

    answer = ask(address, ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}, timeout_s)
    if answer.error_code:
        raise Failure(code_name(answer.error_code), f"{address[0]}:{address[1]} cannot list its groups")
    return [
        ListedGroup(each.group_id, _STATES.get(each.group_state, each.group_state.lower()), each.group_type.lower())
        for each in answer.groups
        if each.protocol_type in _CONSUMERS
    ]


def group_names(connection: "Connection") -> list[str]:
    return [group.name for group in listed(connection)]


def describe(connection: "Connection", name: str) -> GroupView:
    """The group of this name. Raises Failure if there is none."""
    from confluent_kafka import ConsumerGroupState

    names = group_names(connection)
    answer = None
    if name in names:
        answer = connection.ask_all(lambda admin: admin.describe_consumer_groups([name]))[name]
    # Brokers call a group that they do not have dead. The group may have been listed a moment before.
    if answer is None or answer.state is ConsumerGroupState.DEAD:
        raise Failure(
            "GROUP_ID_NOT_FOUND",
            f"there is no group {name!r} at {connection.bootstrap_servers}",
            near_names(name, [each for each in names if each != name]) or "`cordwood group list` lists the groups",
            ExitCode.NOT_FOUND,
        )
    protocol = answer.type.name.lower()
    spoken = _spoken_protocols(connection, name) if protocol == "consumer" else {}
    members = [
        MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.host.removeprefix("/"),
            sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)
            if member.assignment is not None
            else [],
            "classic" if protocol == "classic" else spoken.get(member.member_id),
        )
        for member in answer.members
    ]
    return GroupView(name, answer.state.name.lower(), protocol, answer.partition_assignor or "", members)


def _spoken_protocols(connection: "Connection", name: str) -> dict[str, str]:
    """The protocol of each member, by member id. The broker reports it, but librdkafka does not pass it on."""
    from cordwood.administration.asking import ask
    from cordwood.administration.brokers import group_coordinator
    from cordwood.wire.apis import ApiKey

    try:
        coordinator = group_coordinator(connection, name)
        answer = ask(coordinator, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [name]}, connection.timeout_s)
    except Failure:
        return {}  # an older broker, or one that wants authentication
    return {
        member.member_id: _MEMBER_TYPES[member.member_type]
        for group in answer.groups
        for member in group.members
        if member.member_type in _MEMBER_TYPES
    }


def positions(connection: "Connection", group: GroupView) -> list[PositionView]:
    """All partitions, also those without a position, of every topic in which the group has a position or a member."""
    from confluent_kafka.admin import OffsetSpec

    committed = committed_offsets(connection, group.name)
    owners = {partition: member.member_id for member in group.members for partition in member.partitions}
    known = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s)).topics
    found = []
    every = committed.keys() | owners.keys()
    for topic in sorted({topic for topic, _ in every}):
        there = known[topic].partitions if topic in known else {}
        partitions = sorted({*there, *(partition for name, partition in every if name == topic)})
        ends = connection.known_offsets(topic, partitions, OffsetSpec.latest()) if topic in known else {}
        found += [
            PositionView(
                topic, partition, committed.get((topic, partition)), ends.get(partition), owners.get((topic, partition))
            )
            for partition in partitions
        ]
    return found


def committed_offsets(connection: "Connection", name: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    answer = connection.ask_all(lambda admin: admin.list_consumer_group_offsets(asked))[name]
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions if each.offset >= 0}
