"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. The clients compute the assignments.

A join, a sync or a heartbeat may wait for minutes. Its answer is judged by the rules of the moment when it leaves: it
would tell a member that lost its right of the subscriptions and the assignments of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.groups.classic.join import JoinRequest
from cordwood.groups.classic.outbox import JoinAnswer, SyncAnswer
from cordwood.groups.classic.sync import SyncRequest
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation
from cordwood.node.coordinators.group_shards import Author
from cordwood.node.loop.turns import Steps
from cordwood.node.requests.request import Made, Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.coordinators.group_coordinator import GroupCoordinator
    from cordwood.wire.message_types.heartbeat import Heartbeat
    from cordwood.wire.message_types.join_group import JoinGroup
    from cordwood.wire.message_types.leave_group import LeaveGroup
    from cordwood.wire.message_types.sync_group import SyncGroup


PROTOCOL_NAMED_FROM_VERSION = 5
"""From this version of SyncGroup on a member has to name the protocol that it expects the group to have."""


class MemberRooms(Protocol):
    """The rooms of a node that these handlers need."""

    groups: GroupCoordinator


def _member(member: tuple[str, str | None, bytes]) -> JoinGroup.AnswerMember:
    member_id, instance_id, metadata = member
    return {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}


def join_group(rooms: MemberRooms, request: Request[JoinGroup]) -> None:
    """Answers when the round is complete, which takes as long as the slowest member."""
    body = request.decode()
    request.let_go_of_frame()
    version = request.version

    def answer(joined: JoinAnswer) -> None:
        refusal = request.judge.group_error(Operation.READ, body.group_id)
        if refusal is not ErrorCode.NONE:
            joined = JoinAnswer(refusal, body.member_id)
        request.answer(
            error_code=joined.error,
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol if joined.protocol is not None or version >= 7 else "",
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=Made(joined.members, _member),
        )

    refusal = request.judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        answer(JoinAnswer(refusal, body.member_id))
        return
    instance_id = body.group_instance_id
    client_id = request.header.client_id or ""
    asked = JoinRequest(
        body.member_id,
        instance_id,
        client_id,
        f"/{request.reply.session.host}",
        body.session_timeout_ms,
        body.rebalance_timeout_ms if version >= 1 else body.session_timeout_ms,
        body.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        "" if body.member_id else rooms.groups.members.new_member_id(client_id if instance_id is None else instance_id),
        asks_for_id_first=version >= 4,
        can_skip_assignment=version >= 9,
    )
    rooms.groups.members.join(body.group_id, asked, answer)


def sync_group(rooms: MemberRooms, request: Request[SyncGroup]) -> Steps:
    """Answers when the leader has brought the assignments and they are committed."""
    body = yield from request.read()
    request.let_go_of_frame()

    def answer(share: SyncAnswer) -> None:
        refusal = request.judge.group_error(Operation.READ, body.group_id)
        if refusal is not ErrorCode.NONE:
            share = SyncAnswer(refusal)
        request.answer(
            error_code=share.error,
            protocol_type=share.protocol_type,
            protocol_name=share.protocol,
            assignment=share.assignment,
        )

    refusal = request.judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        answer(SyncAnswer(refusal))
        return
    if request.version >= PROTOCOL_NAMED_FROM_VERSION and None in (body.protocol_type, body.protocol_name):
        answer(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    asked = SyncRequest(
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.protocol_type,
        body.protocol_name,
        {share.member_id: bytes(share.assignment) for share in body.assignments},
    )
    rooms.groups.members.sync(body.group_id, asked, answer)


def heartbeat(rooms: MemberRooms, request: Request[Heartbeat]) -> None:
    """Answers when the member has news, or after a while (`HeldHeartbeats`)."""
    body = request.decode()

    def answer(error: ErrorCode) -> None:
        refusal = request.judge.group_error(Operation.READ, body.group_id)
        request.answer(error_code=error if refusal is ErrorCode.NONE else refusal)

    refusal = request.judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        answer(refusal)
        return
    author = Author(body.member_id, body.group_instance_id, body.generation_id)
    request.let_go_of_frame()
    rooms.groups.members.heartbeat(body.group_id, author, request.reply.connection_id, answer)


def _left(member: tuple[tuple[str, str | None], ErrorCode]) -> LeaveGroup.AnswerMember:
    (member_id, instance_id), error = member
    return {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}


def leave_group(rooms: MemberRooms, request: Request[LeaveGroup]) -> Steps:
    body = yield from request.read()
    batched = request.version >= 3
    leaving = [(member.member_id, member.group_instance_id) for member in body.members] if batched else []

    def answer(errors: list[ErrorCode]) -> None:
        if not batched:
            request.answer(error_code=errors[0])
            return
        request.answer(error_code=ErrorCode.NONE, members=Made(list(zip(leaving, errors, strict=True)), _left))

    def failed(error: ErrorCode) -> None:
        request.answer(error_code=error, members=[])

    refusal = request.judge.group_error(Operation.READ, body.group_id)
    if refusal is not ErrorCode.NONE:
        failed(refusal)
        return
    rooms.groups.members.leave(body.group_id, leaving if batched else [(body.member_id, None)], answer, failed)


HANDLERS = (
    serves(ApiKey.JOIN_GROUP, 0, 9, join_group),
    serves(ApiKey.SYNC_GROUP, 0, 5, sync_group),
    serves(ApiKey.HEARTBEAT, 0, 4, heartbeat),
    serves(ApiKey.LEAVE_GROUP, 0, 5, leave_group),
)
