"""Checks a group whose members speak both protocols, as the wire shows it.

The group may have either protocol at any moment, so one rule holds for all members: no member is assigned a partition
that another member has not given back, unless that member was out. A member of the classic protocol lists its
partitions when it joins, and gets its share when it syncs.
"""

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.checkers.groups import GroupsChecker, Key, Named
from simulation.workloads import classic_members, consumer_members
from simulation.workloads.classic_members import owned_in, share_in
from simulation.workloads.consumer_members import JOINING
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange

MEMBERSHIP = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
TOLD_TO_BE_OUT = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
)

TIMEOUT_NAMED_FROM = 1
"""From this version of JoinGroup on a member names its rebalance timeout; before, the session timeout counts."""


class MixedGroupsChecker(GroupsChecker):
    """The checker for games in which all groups have members of both protocols."""

    def __init__(self) -> None:
        super().__init__()
        self._kind = ""
        self._classic: set[Named] = set()
        self._places: dict[Named, tuple[Named, int]] = {}
        """Group and instance of each static member, and the number of the request by which it got the place."""
        self._claims: dict[Named, int] = {}
        """The last request for a place. Its sender may have got the place without knowing it."""
        self._on_request |= {
            ApiKey.JOIN_GROUP: self._join_came,
            ApiKey.SYNC_GROUP: self._number,
            ApiKey.HEARTBEAT: self._number,
            ApiKey.LEAVE_GROUP: self._leave_came,
        }
        self._on_sent[ApiKey.HEARTBEAT] = self._beat_answered

    def sent(self, exchange: Exchange) -> None:
        super().sent(exchange)
        if exchange.key in MEMBERSHIP and exchange.answer.error_code in TOLD_TO_BE_OUT:
            self._give_back(exchange.values["group_id"], exchange.values["member_id"], [])

    def _lost(self, groups: set[str]) -> None:
        """Forgets members that left: the log of a classic group does not have them."""
        super()._lost(groups)
        self._left = {named for named in self._left if named in self._places or named[0] not in groups}

    def _session_ms(self, named: Named) -> int:
        return classic_members.SESSION_MS if named in self._classic else consumer_members.SESSION_MS

    def _number(self, exchange: Exchange) -> None:
        self._requests += 1
        self._numbers[exchange] = self._requests

    def _join_came(self, exchange: Exchange) -> None:
        values = exchange.values
        (protocol,) = values["protocols"]
        owned = owned_in(protocol["metadata"])
        self._give_back(values["group_id"], values["member_id"], owned)
        self._number(exchange)
        if values["group_instance_id"] is not None and not values["member_id"]:
            self._claims[values["group_id"], values["group_instance_id"]] = self._requests

    def _heartbeat_came(self, exchange: Exchange) -> None:
        super()._heartbeat_came(exchange)
        values = exchange.values
        if values["instance_id"] is not None and values["member_epoch"] == JOINING:
            self._claims[values["group_id"], values["instance_id"]] = self._requests
            # The member may get its place back, even by a request that was stuck.
            self._dispossessed.pop((values["group_id"], values["member_id"]), None)

    def _is_fenced(self, key: Key, author: tuple[str, int]) -> bool:
        """True if the author is fenced. Only the broker knows the owner among processes with one instance id."""
        return (key[0], author[0]) not in self._places and super()._is_fenced(key, author)

    def _may_be_out(self, named: Named) -> bool:
        place, number = self._places.get(named, (named, 0))
        return self._claims.get(place, 0) > number or super()._may_be_out(named)

    def _joined(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        if answer.error_code:
            return
        named = values["group_id"], answer.member_id
        self._classic.add(named)
        self._comes(named, values["group_instance_id"], self._numbers.pop(exchange))
        timeout_ms = values["rebalance_timeout_ms"]
        self._rebalance_ms[named] = timeout_ms if exchange.version >= TIMEOUT_NAMED_FROM else classic_members.SESSION_MS
        self._hear_of(named, answer.generation_id, exchange.handled_ms)
        self._is_of("classic" if answer.leader else "consumer")

    def _is_of(self, kind: str) -> None:
        """Notes the protocol of the group. A JoinGroup answer without a leader shows the consumer protocol."""
        self.moves += kind != self._kind
        self._kind = kind

    def _comes(self, named: Named, instance_id: str | None, number: int) -> None:
        """Notes a new member, perhaps in the place of another process."""
        self._dispossessed.pop(named, None)
        self._left.discard(named)
        if instance_id is not None:
            place = named[0], instance_id
            self._places[named] = place, number
            replaced = self._instances.get(place, named[1])
            if replaced != named[1]:
                self._left.add((named[0], replaced))
            self._instances[place] = named[1]

    def _synced(self, exchange: Exchange) -> None:
        values, answer, number = exchange.values, exchange.answer, self._numbers.pop(exchange)
        if answer.error_code:
            return
        named = group, member_id = values["group_id"], values["member_id"]
        self._hear_of(named, values["generation_id"], exchange.handled_ms)
        self.rounds.add((group, values["generation_id"]))
        self._gets([(group, partition) for partition in share_in(answer.assignment)], member_id, exchange, number)

    def _beat_answered(self, exchange: Exchange) -> None:
        values, number = exchange.values, self._numbers.pop(exchange)
        if exchange.answer.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            return
        named = values["group_id"], values["member_id"]
        if number > self._dispossessed.get(named, number):
            raise InvariantBroken(f"{named}: what it had was given to others, and it is still a member")
        self._hear_of(named, values["generation_id"], exchange.handled_ms)

    def _left_classic_group(self, exchange: Exchange) -> None:
        answer, values = exchange.answer, exchange.values
        errors = [each.error_code for each in answer.members] if exchange.version >= 3 else []
        if not any([answer.error_code, *errors]):
            self._left.add((values["group_id"], values["member_id"]))

    def _leave_came(self, exchange: Exchange) -> None:
        self._give_back(exchange.values["group_id"], exchange.values["member_id"], [])

    def _heartbeat_answered(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        if not answer.error_code and values["member_epoch"] == JOINING:
            named = values["group_id"], values["member_id"]
            self._classic.discard(named)
            self._comes(named, values["instance_id"], self._numbers[exchange])
        if not answer.error_code:
            self._is_of("consumer")
        super()._heartbeat_answered(exchange)
