"""Groups whose work the broker assigns (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cordwood.groups.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, ConsumerMember
from cordwood.groups.consumer.heartbeat import (
    JOINING,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from cordwood.groups.consumer.partition_sets import NOTHING, Share, by_topic_id, mask_of
from cordwood.groups.consumer.target import assignor_of
from cordwood.groups.shard import GroupShard
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import ZERO_TOPIC_ID
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.handlers.coordination.group_administration import describe_each
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.coordinators.group_coordinator import GroupCoordinator
    from cordwood.node.requests.access import Access, Judge
    from cordwood.wire.message_types.consumer_group_describe import ConsumerGroupDescribe
    from cordwood.wire.message_types.consumer_group_heartbeat import ConsumerGroupHeartbeat


CLASSIC_PROTOCOL_MEMBER, CONSUMER_PROTOCOL_MEMBER = 0, 1


class ConsumerGroupRooms(Protocol):
    """The rooms of a node that these handlers need."""

    access: Access
    groups: GroupCoordinator
    image: ClusterImage


def consumer_group_heartbeat(rooms: ConsumerGroupRooms, request: Request[ConsumerGroupHeartbeat]) -> Steps:
    body = yield from request.read()
    member_id, judge = body.member_id, request.judge

    def answer(outcome: HeartbeatAnswer | ProtocolError) -> None:
        # The rules may have changed while the heartbeat waited.
        outcome = judge.refusal(Operation.READ, ResourceKind.GROUP, body.group_id) or outcome
        if isinstance(outcome, ProtocolError):
            request.answer(error_code=outcome.code, error_message=outcome.message, member_epoch=0)
            return
        assignment: ConsumerGroupHeartbeat.AnswerAssignment | None = None
        if outcome.assignment is not None:
            assignment = {"topic_partitions": _partitions(_visible(rooms, judge, outcome.assignment))}
        request.answer(
            error_code=ErrorCode.NONE,
            member_id=member_id,
            member_epoch=outcome.epoch,
            heartbeat_interval_ms=rooms.image.group_settings(body.group_id).consumer_heartbeat_interval_ms,
            assignment=assignment,
        )

    if not member_id and request.version == 0 and body.member_epoch == JOINING:
        member_id = rooms.groups.members.new_member_id(request.header.client_id or "consumer")
    refusal = _refusal(judge, body, member_id)
    if refusal is not None:
        answer(refusal)
        return
    asked = HeartbeatRequest(
        member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        request.header.client_id or "",
        f"/{request.reply.session.host}",
        body.rebalance_timeout_ms,
        None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        body.server_assignor,
        _owned(rooms, body.topic_partitions),
        body.subscribed_topic_regex,
        reader=rooms.access.reader(request.header, request.reply.session),
    )
    rooms.groups.members.consumer_heartbeat(body.group_id, asked, answer)


def _refusal(judge: Judge, body: ConsumerGroupHeartbeat.Request, member_id: str) -> ProtocolError | None:
    if not body.group_id:
        return ProtocolError(ErrorCode.INVALID_REQUEST, "The group id is empty.")
    refusal = judge.refusal(Operation.READ, ResourceKind.GROUP, body.group_id)
    if refusal is None and judge.asks:
        refusals = (
            judge.refusal(Operation.DESCRIBE, ResourceKind.TOPIC, name) for name in body.subscribed_topic_names or ()
        )
        refusal = next((each for each in refusals if each is not None), None)
    if refusal is not None:
        return refusal
    if not member_id:
        return ProtocolError(ErrorCode.INVALID_REQUEST, "The member id is empty.")
    if "" in (body.instance_id, body.rack_id):
        return ProtocolError(ErrorCode.INVALID_REQUEST, "An instance id or rack id that is given cannot be empty.")
    if body.member_epoch == JOINING and any(topic.partitions for topic in body.topic_partitions or ()):
        return ProtocolError(ErrorCode.INVALID_REQUEST, "A member that joins cannot own partitions yet.")
    if body.member_epoch < LEFT_FOR_A_WHILE:
        return ProtocolError(ErrorCode.INVALID_REQUEST, f"{body.member_epoch} is not a member's epoch.")
    if body.member_epoch == LEFT_FOR_A_WHILE and body.instance_id is None:
        return ProtocolError(
            ErrorCode.INVALID_REQUEST, "Only a static member leaves for a while: it has an instance id."
        )
    return None


def _owned(
    rooms: ConsumerGroupRooms, topics: Sequence[ConsumerGroupHeartbeat.RequestTopicPartition] | None
) -> Share | None:
    """The partitions that the member owns. Partitions that no longer exist are dropped: they count as given back."""
    if topics is None:
        return None
    owned: dict[int, list[int]] = {}
    for topic in topics:
        there = rooms.image.topics_by_id.get(topic.topic_id or ZERO_TOPIC_ID)
        if there is not None:
            count = len(there.partitions)
            numbers = [number for number in topic.partitions if 0 <= number < count]
            owned.setdefault(there.topic_id.int, []).extend(numbers)
    return Share({topic: mask_of(numbers) for topic, numbers in owned.items() if numbers})


def _visible(rooms: ConsumerGroupRooms, judge: Judge, share: Share) -> Share:
    """The partitions of topics that the member may describe. A member without the others does not report them, and so
    gets them in the answer to a later heartbeat, once it may."""
    if not judge.asks:
        return share
    names = {topic_id.int: rooms.image.topic_name(topic_id) for topic_id, _ in by_topic_id(share)}
    return Share({number: mask for number, mask in share.masks.items() if judge.may_see_topic(names[number] or "")})


def _partitions(share: Share) -> list[ConsumerGroupHeartbeat.AnswerTopicPartition]:
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic_id(share)]


def consumer_group_describe(rooms: ConsumerGroupRooms, request: Request[ConsumerGroupDescribe]) -> Steps:
    body = yield from request.read()
    judge = request.judge

    def description(shard: GroupShard, group_id: str) -> ConsumerGroupDescribe.AnswerGroup:
        group = shard.consumer_groups.get(group_id)
        if group is None:
            return _nothing(ErrorCode.GROUP_ID_NOT_FOUND, "There is no group of the consumer protocol with this id.")
        if judge.asks and any(
            not judge.may(Operation.DESCRIBE, ResourceKind.TOPIC, name) for name in _named(rooms, group)
        ):
            return _nothing(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The group reads topics that the client may not describe."
            )
        return _description(rooms, group)

    yield from describe_each(
        rooms,
        judge,
        body.group_ids,
        description,
        _nothing,
        lambda groups: request.answer(groups=groups),
        with_operations=body.include_authorized_operations,
    )


def _named(rooms: ConsumerGroupRooms, group: ConsumerGroup) -> set[str]:
    """The topics that a description of the group names."""
    names: set[str] = set()
    for member_id, member in group.members.items():
        names |= set(member.profile.topics)
        for share in (group.current(member_id).assigned, group.targets.get(member_id, NOTHING)):
            names.update(rooms.image.topic_name(topic_id) or "" for topic_id, _ in by_topic_id(share))
    return names - {""}


def _nothing(error: ErrorCode, message: str | None = None) -> ConsumerGroupDescribe.AnswerGroup:
    return {
        "error_code": error,
        "error_message": message,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _description(rooms: ConsumerGroupRooms, group: ConsumerGroup) -> ConsumerGroupDescribe.AnswerGroup:
    def named(share: Share) -> ConsumerGroupDescribe.AnswerAssignment:
        return {
            "topic_partitions": [
                {"topic_id": topic_id, "topic_name": rooms.image.topic_name(topic_id) or "", "partitions": partitions}
                for topic_id, partitions in by_topic_id(share)
            ]
        }

    def member_of(item: tuple[str, ConsumerMember]) -> ConsumerGroupDescribe.AnswerMember:
        member_id, member = item
        profile = member.profile
        return {
            "member_id": member_id,
            "instance_id": profile.instance_id,
            "rack_id": profile.rack_id,
            "member_epoch": group.current(member_id).epoch,
            "client_id": profile.client_id,
            "client_host": profile.client_host,
            "subscribed_topic_names": sorted(profile.topics),
            "subscribed_topic_regex": profile.expression,
            "assignment": named(group.current(member_id).assigned),
            "target_assignment": named(group.targets.get(member_id, NOTHING)),
            "member_type": CONSUMER_PROTOCOL_MEMBER if profile.classic is None else CLASSIC_PROTOCOL_MEMBER,
        }

    return {
        "error_code": ErrorCode.NONE,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": assignor_of(group),
        "members": Made(sorted(group.members.items()), member_of),
    }


HANDLERS = (
    serves(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, consumer_group_heartbeat),
    serves(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, consumer_group_describe),
)
