"""Members of groups join, send heartbeats and leave, in the classic and the consumer protocol."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.groups.classic.join import JoinRequest
from cordwood.groups.classic.leave import Leaving
from cordwood.groups.classic.outbox import JoinAnswer, JoinTicket, Outbox, SyncAnswer, SyncTicket
from cordwood.groups.classic.sync import SyncRequest
from cordwood.groups.consumer.heartbeat import HeartbeatAnswer, HeartbeatRequest
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.coordinators.coordinator_log import Done
from cordwood.node.coordinators.group_shards import Author, GroupShards, LedGroups, nothing
from cordwood.node.coordinators.held_heartbeats import HeldHeartbeats
from cordwood.node.loop.loop import Loop

MAX_PREFIX_LENGTH = 200


class GroupMembership:
    def __init__(self, loop: Loop, image: ClusterImage, shards: GroupShards, held: HeldHeartbeats, seed: int) -> None:
        self._loop = loop
        self._image = image
        self._shards = shards
        self._log = shards.log
        self._held = held
        self._chance = random.Random(seed)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix[:MAX_PREFIX_LENGTH]}-{uuid.UUID(int=self._chance.getrandbits(128), version=4)}"

    def join(self, group_id: str, request: JoinRequest, ticket: JoinTicket) -> None:
        def failed(error: ErrorCode) -> None:
            ticket(JoinAnswer(error, request.member_id))

        def loaded(shard: LedGroups) -> None:
            machine = shard.machine
            if not machine.exists(group_id) and self._shards.is_full():
                failed(ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            if not request.member_id and (records := machine.to_classic(group_id)):
                # The group is converted before the member joins: a full disk must not leave members of both protocols.
                self._log.write(shard, records, nothing)
                if machine.to_classic(group_id):
                    failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    return
            out = Outbox()
            machine.join(group_id, request, ticket, out, self._loop.now, self._shards.limits(shard))
            self._shards.settle(shard, group_id, out)

        self._shards.with_shard(group_id, loaded, failed)

    def sync(self, group_id: str, request: SyncRequest, ticket: SyncTicket) -> None:
        def loaded(shard: LedGroups) -> None:
            out = Outbox()
            shard.machine.sync(group_id, request, ticket, out, self._loop.now, self._shards.limits(shard))
            self._shards.settle(shard, group_id, out)

        self._shards.with_shard(group_id, loaded, lambda error: ticket(SyncAnswer(error)))

    def heartbeat(self, group_id: str, author: Author, connection_id: int, done: Done) -> None:
        """Holds the heartbeat of a patient member without news, unless its shard has to be loaded first: by then the
        connection may have sent another request, which must not wait."""
        shard = self._shards.loaded(group_id)
        if shard is None:
            self._shards.with_shard(
                group_id, lambda shard: self._answer(shard, done, self._beat(shard, group_id, author)), done
            )
            return
        found, machine = self._beat(shard, group_id, author), shard.machine
        if found is ErrorCode.NONE and self._held.is_patient(connection_id):
            longest_ms = self._image.settings.group_heartbeat_hold_ms
            wait_ms = min(longest_ms, machine.may_wait_ms(group_id, author.member_id))
            if wait_ms:
                self._held.hold(
                    shard.held,
                    group_id,
                    connection_id,
                    self._loop.now.boot_ms + wait_ms,
                    lambda: machine.standing(group_id, *author) is not ErrorCode.NONE,
                    lambda: self._answer(shard, done, machine.standing(group_id, *author)),
                )
                return
        self._answer(shard, done, found)

    def _beat(self, shard: LedGroups, group_id: str, author: Author) -> ErrorCode:
        found = shard.machine.heartbeat(group_id, *author, self._loop.now)
        if found is ErrorCode.REBALANCE_IN_PROGRESS:
            # The member may now have a rebalance deadline, which may be the group's next deadline.
            self._shards.set_alarm(shard, group_id)
        return found

    def _answer(self, shard: LedGroups, done: Done, found: ErrorCode) -> None:
        """Answers when the state behind the answer is committed."""
        self._log.when_committed(shard, lambda error: done(error or found))

    def leave(
        self,
        group_id: str,
        leaving: list[Leaving],
        done: Callable[[list[ErrorCode]], None],
        failed: Done,
    ) -> None:
        def loaded(shard: LedGroups) -> None:
            out = Outbox()
            errors = shard.machine.leave(group_id, leaving, out, self._loop.now, self._shards.limits(shard))
            self._shards.settle(shard, group_id, out, lambda error: failed(error) if error else done(errors))

        self._shards.with_shard(group_id, loaded, failed)

    def consumer_heartbeat(
        self,
        group_id: str,
        request: HeartbeatRequest,
        done: Callable[[HeartbeatAnswer | ProtocolError], None],
    ) -> None:
        """Handles the consumer protocol's only request: members join, leave and rebalance by heartbeats."""

        def failed(error: ErrorCode) -> None:
            done(ProtocolError(error, "The coordinator is not available."))

        def loaded(shard: LedGroups) -> None:
            def matched(refused: dict[str, ProtocolError]) -> None:
                # A stored expression that no longer compiles matches no new topic; the request's own has to compile.
                refusal = refused.get(request.expression or "")
                if refusal is None:
                    beat(shard)
                else:
                    self._log.when_committed(shard, lambda error: failed(error) if error else done(refusal))

            subscriptions = shard.machine.subscriptions(group_id, request)
            if subscriptions:
                self._shards.topics.when_known(subscriptions, matched)
            else:
                beat(shard)

        def beat(shard: LedGroups) -> None:
            out, now = Outbox(), self._loop.now
            limits = self._shards.consumer_limits(group_id)
            answer: HeartbeatAnswer | ProtocolError
            try:
                if not shard.machine.exists(group_id) and self._shards.is_full():
                    raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, "This broker has groups.max groups already.")
                answer = shard.machine.consumer_heartbeat(group_id, request, out, limits, now)
            except ProtocolError as refusal:
                out, answer = Outbox(), refusal
            self._shards.settle(shard, group_id, out, lambda error: failed(error) if error else done(answer))
            if not isinstance(answer, ProtocolError):
                shard.machine.consumer_heard_of(group_id, request, now, limits)
                self._shards.set_alarm(shard, group_id)

        self._shards.with_shard(group_id, loaded, failed)
