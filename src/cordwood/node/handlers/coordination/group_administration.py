"""Requests of operators of groups: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

from cordwood.groups.classic.group import Group, Member, State
from cordwood.groups.shard import GroupListing, GroupShard
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, in_order, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.metadata import OPERATIONS_NOT_ASKED_FOR

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.coordinators.group_coordinator import GroupCoordinator
    from cordwood.node.requests.access import Judge
    from cordwood.wire.message_types.delete_groups import DeleteGroups
    from cordwood.wire.message_types.describe_groups import DescribeGroups
    from cordwood.wire.message_types.list_groups import ListGroups
    from cordwood.wire.message_types.offset_delete import OffsetDelete


DELETION_REFUSALS = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.NON_EMPTY_GROUP: "The group has members.",
    ErrorCode.INVALID_GROUP_ID: "The group id is empty or too long.",
}


LOOKED_UP_PER_STEP = 200
LISTED_PER_STEP = 1_000
DELETED_PER_STEP = 100
POSITIONS_PER_STEP = 250


class DescribedGroup(TypedDict, total=False):
    """The fields that the descriptions of groups of both protocols have."""

    group_id: str
    error_code: int
    authorized_operations: int


Described = TypeVar("Described", bound=DescribedGroup)


class GroupAdministrationRooms(Protocol):
    """The rooms of a node that these handlers need."""

    groups: GroupCoordinator
    image: ClusterImage


def describe_each(
    rooms: GroupAdministrationRooms,
    judge: Judge,
    group_ids: Iterable[str],
    description: Callable[[GroupShard, str], Described],
    nothing: Callable[[ErrorCode], Described],
    answer: Callable[[Made[Described]], None],
    *,
    with_operations: bool,
) -> Steps:
    """Answers when all groups are found: each group once, in the order of the request. Groups are described while the
    answer is written."""
    wanted = list(dict.fromkeys(group_ids))

    def all_found(found: list[GroupShard | ErrorCode]) -> None:
        answer(Made(list(zip(wanted, found, strict=True)), described))

    def described(group: tuple[str, GroupShard | ErrorCode]) -> Described:
        group_id, found = group
        fields = nothing(found) if isinstance(found, ErrorCode) else description(found, group_id)
        fields["group_id"] = group_id
        told = with_operations and not fields["error_code"]
        fields["authorized_operations"] = (
            judge.operations(ResourceKind.GROUP, group_id) if told else OPERATIONS_NOT_ASKED_FOR
        )
        return fields

    one_found = in_order(len(wanted), all_found)
    for place, group_id in enumerate(wanted):
        if place and not place % LOOKED_UP_PER_STEP:
            yield
        refusal = judge.group_error(Operation.DESCRIBE, group_id)
        if refusal is ErrorCode.NONE:
            done = partial(one_found, place)
            rooms.groups.describe(group_id, done, done)
        else:
            one_found(place, refusal)


def describe_groups(rooms: GroupAdministrationRooms, request: Request[DescribeGroups]) -> Steps:
    body = yield from request.read()

    def description(shard: GroupShard, group_id: str) -> DescribeGroups.AnswerGroup:
        group = shard.describe(group_id)
        return _absent(request.version) if group is None else _description(group)

    yield from describe_each(
        rooms,
        request.judge,
        body.groups,
        description,
        _nothing,
        lambda groups: request.answer(groups=groups),
        with_operations=body.include_authorized_operations,
    )


def _absent(version: int) -> DescribeGroups.AnswerGroup:
    """Describes a group that does not exist: before version 6 as dead, from then on as not found."""
    error = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    message = "There is no such group." if version >= 6 else None
    return {**_nothing(error), "error_message": message, "group_state": State.DEAD.value}


def _nothing(error: ErrorCode) -> DescribeGroups.AnswerGroup:
    return {"error_code": error, "group_state": "", "protocol_type": "", "protocol_data": "", "members": []}


def _description(group: Group) -> DescribeGroups.AnswerGroup:
    """Describes a group. Metadata and assignments of members are shown in a stable group only: a round changes them."""
    stable, protocol = group.state is State.STABLE, group.protocol

    def member_of(member: Member) -> DescribeGroups.AnswerMember:
        return {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(protocol) if stable else b"",
            "member_assignment": member.assignment if stable else b"",
        }

    return {
        "error_code": ErrorCode.NONE,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol or "") if stable else "",
        "members": Made(list(group.members.values()), member_of),
    }


def _listed(listing: GroupListing) -> ListGroups.AnswerGroup:
    return {
        "group_id": listing.group_id,
        "protocol_type": listing.protocol_type,
        "group_state": listing.state,
        "group_type": listing.kind,
    }


LONGEST_FILTER = 100
"""Letters of a state or a kind: no group has a longer one, and to make 16 MB of them lower-case takes 50 ms."""


def list_groups(rooms: GroupAdministrationRooms, request: Request[ListGroups]) -> Steps:
    """Lists all groups of readable shards, with the error of the others."""
    body = yield from request.read()
    shards: list[GroupShard] = []
    states = {state.lower() for state in body.states_filter or () if len(state) <= LONGEST_FILTER}
    types = {kind.lower() for kind in body.types_filter or () if len(kind) <= LONGEST_FILTER}
    any_state, any_type = not body.states_filter, not body.types_filter
    judge = request.judge

    def wanted(listing: GroupListing) -> bool:
        if not judge.may(Operation.DESCRIBE, ResourceKind.GROUP, listing.group_id):
            return False
        return (any_state or listing.state.lower() in states) and (any_type or listing.kind.lower() in types)

    def listing(error: ErrorCode) -> Steps:
        found: list[GroupListing] = []
        for shard in shards:
            group_ids = shard.group_ids()
            for start in range(0, len(group_ids), LISTED_PER_STEP):
                found += filter(wanted, map(shard.listed, group_ids[start : start + LISTED_PER_STEP]))
                yield
        request.answer(error_code=error, groups=Made(found, _listed))

    rooms.groups.visit_shards(shards.append, lambda error: request.go_on(listing(error)))


def delete_groups(rooms: GroupAdministrationRooms, request: Request[DeleteGroups]) -> Steps:
    body = yield from request.read()
    group_ids = list(dict.fromkeys(body.groups_names))
    judge = request.judge

    def all_deleted(errors: list[ErrorCode]) -> None:
        request.answer(results=Made(list(zip(group_ids, errors, strict=True)), result))

    def result(group: tuple[str, ErrorCode]) -> DeleteGroups.AnswerResult:
        group_id, error = group
        return {"group_id": group_id, "error_code": error, "error_message": DELETION_REFUSALS.get(error)}

    deleted = in_order(len(group_ids), all_deleted)
    for place, group_id in enumerate(group_ids):
        if place and not place % DELETED_PER_STEP:
            yield
        refusal = judge.group_error(Operation.DELETE, group_id)
        if refusal is ErrorCode.NONE:
            rooms.groups.delete(group_id, partial(deleted, place))
        else:
            deleted(place, refusal)


def offset_delete(rooms: GroupAdministrationRooms, request: Request[OffsetDelete]) -> Steps:
    body = yield from request.read()
    asked = [
        TopicPartition(topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
    ]
    judge = request.judge
    refused = {
        name
        for name in dict.fromkeys(partition.topic for partition in asked)
        if not judge.may(Operation.READ, ResourceKind.TOPIC, name)
    }
    there = [
        partition
        for partition in asked
        if partition.topic not in refused and rooms.image.partition_of(*partition) is not None
    ]

    def deleted(outcomes: list[ErrorCode | list[ErrorCode]]) -> None:
        errors: dict[TopicPartition, ErrorCode] = {}
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, ErrorCode):
                request.answer(error_code=outcome, topics=[])
                return
            errors.update(zip(there[place * POSITIONS_PER_STEP :], outcome, strict=False))
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in asked:
            by_topic.setdefault(partition.topic, []).append(partition)

        def result(partition: TopicPartition) -> OffsetDelete.AnswerPartition:
            error = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition.topic in refused:
                error = ResourceKind.TOPIC.refusal
            return {"partition_index": partition.partition, "error_code": error}

        def topic(name: str) -> OffsetDelete.AnswerTopic:
            return {"name": name, "partitions": Made(by_topic[name], result)}

        request.answer(error_code=ErrorCode.NONE, topics=Made(by_topic, topic))

    refusal = judge.group_error(Operation.DELETE, body.group_id)
    if refusal is not ErrorCode.NONE:
        deleted([refusal])
        return
    starts = range(0, max(len(there), 1), POSITIONS_PER_STEP)
    one_deleted = in_order(len(starts), deleted)
    for place, start in enumerate(starts):
        if place:
            yield
        partitions = there[start : start + POSITIONS_PER_STEP]
        rooms.groups.positions.delete(body.group_id, partitions, partial(one_deleted, place))


HANDLERS = (
    serves(ApiKey.DESCRIBE_GROUPS, 0, 6, describe_groups),
    serves(ApiKey.LIST_GROUPS, 0, 5, list_groups),
    serves(ApiKey.DELETE_GROUPS, 0, 3, delete_groups),
    serves(ApiKey.OFFSET_DELETE, 0, 0, offset_delete),
)
