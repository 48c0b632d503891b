"""Groups as their operators see them: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cordwood.groups.classic.group import Group, State
from cordwood.groups.shard import GroupListing, GroupShard
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.request import Request, by_topic, in_order, serves
from cordwood.wire.apis import ApiKey
from cordwood.wire.metadata import OPERATIONS_NOT_ASKED_FOR

if TYPE_CHECKING:
    from cordwood.node.node import Node

ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, describe configs, alter configs, as Kafka numbers them."""

DELETION_REFUSALS = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.NON_EMPTY_GROUP: "The group has members.",
    ErrorCode.INVALID_GROUP_ID: "The group id is empty or too long.",
}


Answer = dict[str, Any]


def describe_each(
    node: Node,
    request: Request,
    group_ids: list[str],
    description: Callable[[GroupShard, str], Answer],
    nothing: Callable[[ErrorCode], Answer],
    *,
    with_operations: bool,
) -> None:
    """Answers when all groups are described, each once, in the order in which they were asked for."""
    operations = ALL_GROUP_OPERATIONS if with_operations else OPERATIONS_NOT_ASKED_FOR
    group_ids = list(dict.fromkeys(group_ids))
    answered = in_order(len(group_ids), lambda answers: request.answer(groups=answers))

    def described(place: int, answer: Answer) -> None:
        answered(place, {"group_id": group_ids[place], "authorized_operations": operations, **answer})

    def describe(place: int, group_id: str) -> None:
        node.groups.describe(
            group_id,
            lambda shard: described(place, description(shard, group_id)),
            lambda error: described(place, nothing(error)),
        )

    for place, group_id in enumerate(group_ids):
        if group_id:
            describe(place, group_id)
        else:
            described(place, nothing(ErrorCode.INVALID_GROUP_ID))


def describe_groups(node: Node, request: Request) -> None:
    body = request.decode()

    def description(shard: GroupShard, group_id: str) -> Answer:
        group = shard.describe(group_id)
        return _absent(request.version) if group is None else _description(group)

    describe_each(
        node, request, list(body.groups), description, _nothing, with_operations=body.include_authorized_operations
    )


def _absent(version: int) -> Answer:
    """Before version 6 a group that is not there is described as dead."""
    error = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    message = "There is no such group." if version >= 6 else None
    return {**_nothing(error), "error_message": message, "group_state": State.DEAD.value}


def _nothing(error: ErrorCode) -> Answer:
    return {"error_code": error, "group_state": "", "protocol_type": "", "protocol_data": "", "members": []}


def _description(group: Group) -> Answer:
    """What members said and got is shown in a stable group only: in a round it is about to change."""
    stable = group.state is State.STABLE
    return {
        "error_code": ErrorCode.NONE,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }


def list_groups(node: Node, request: Request) -> None:
    body = request.decode()
    states = {state.lower() for state in body.states_filter or ()}
    types = {kind.lower() for kind in body.types_filter or ()}

    def wanted(listing: GroupListing) -> bool:
        return (not states or listing.state.lower() in states) and (not types or listing.kind.lower() in types)

    def listed(found: list[GroupListing], error: ErrorCode) -> None:
        request.answer(
            error_code=error,
            groups=[
                {
                    "group_id": listing.group_id,
                    "protocol_type": listing.protocol_type,
                    "group_state": listing.state,
                    "group_type": listing.kind,
                }
                for listing in found
                if wanted(listing)
            ],
        )

    node.groups.list_groups(listed)


def delete_groups(node: Node, request: Request) -> None:
    group_ids = list(dict.fromkeys(request.decode().groups_names))
    errors: dict[str, ErrorCode] = {}

    def deleted(group_id: str, error: ErrorCode) -> None:
        errors[group_id] = error
        if len(errors) == len(group_ids):
            request.answer(
                results=[
                    {"group_id": each, "error_code": errors[each], "error_message": DELETION_REFUSALS.get(errors[each])}
                    for each in group_ids
                ]
            )

    if not group_ids:
        request.answer(results=[])
    for group_id in group_ids:
        if group_id:
            node.groups.delete(group_id, partial(deleted, group_id))
        else:
            deleted(group_id, ErrorCode.INVALID_GROUP_ID)


def offset_delete(node: Node, request: Request) -> None:
    body = request.decode()
    asked = [
        TopicPartition(topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
    ]
    there = [partition for partition in asked if node.has_partition(*partition)]

    def deleted(outcome: ErrorCode | list[ErrorCode]) -> None:
        if isinstance(outcome, ErrorCode):
            request.answer(error_code=outcome, topics=[])
            return
        errors = dict(zip(there, outcome, strict=True))
        request.answer(
            error_code=ErrorCode.NONE,
            topics=by_topic(
                (
                    partition.topic,
                    {
                        "partition_index": partition.partition,
                        "error_code": errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    },
                )
                for partition in asked
            ),
        )

    if not body.group_id:
        deleted(ErrorCode.INVALID_GROUP_ID)
        return
    node.groups.positions.delete(body.group_id, there, deleted)


HANDLERS = (
    serves(ApiKey.DESCRIBE_GROUPS, 0, 6, describe_groups),
    serves(ApiKey.LIST_GROUPS, 0, 5, list_groups),
    serves(ApiKey.DELETE_GROUPS, 0, 3, delete_groups),
    serves(ApiKey.OFFSET_DELETE, 0, 0, offset_delete),
)
