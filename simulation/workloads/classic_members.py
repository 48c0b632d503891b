"""Members of the classic protocol: members join, the leader assigns the partitions, members sync, send heartbeats and
commit.

Members give up their partitions before they join again. Cooperative members keep their partitions, give back those that
are no longer assigned to them, and join again. Some members are static, and some introduce themselves as clients whose
heartbeats may be held: these read on meanwhile.
"""

import struct
from enum import Enum
from typing import Any

from cordwood.groups.classic.subscription import read_assignment, read_subscription, write_assignment
from cordwood.model.errors import ErrorCode
from cordwood.node.coordinators.held_heartbeats import PATIENT_SOFTWARE
from cordwood.wire.apis import ApiKey
from simulation.workloads.group_members import NO_EPOCH, TOPIC, GroupMember
from simulation.world.exchange import Connection
from simulation.world.stage import Stage

SESSION_MS = 2000
STATIC_FROM = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 3, ApiKey.LEAVE_GROUP: 3}
"""The versions from which a request names the instance."""
TOLD_TO_LEAD_FROM = 9
"""The version of JoinGroup from which an answer can say that the member leads and that its old assignment stands."""

_NAME = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
_FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
_NOT_THIS_ROUND = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class Place(Enum):
    """The progress of a member in a round."""

    OUT = "has to join"
    JOINED = "has to sync"
    IN = "has its share"


def subscription(owned: list[int]) -> bytes:
    """A subscription to the topic, with the member's partitions."""
    has = struct.pack(f">i{len(owned)}i", len(owned), *owned)
    return struct.pack(">hi", 1, 1) + _NAME + struct.pack(">ii", -1, bool(owned)) + (_NAME + has if owned else b"")


def owned_in(metadata: bytes) -> list[int]:
    return [number for _, numbers in read_subscription(metadata).owned for number in numbers]


def share_in(assignment: bytes) -> list[int]:
    return [number for _, numbers in read_assignment(assignment).partitions for number in numbers]


class ClassicMember(GroupMember):
    commit_versions = range(7, 10)
    fetch_version = 7
    protocol = "range"

    def __init__(self, stage: Stage, name: str, group_id: str, instance_id: str | None) -> None:
        super().__init__(stage, name, group_id, instance_id)
        self.place = Place.OUT
        self._versions = {
            key: stage.version(key, 0 if instance_id is None else lowest) for key, lowest in STATIC_FROM.items()
        }
        self._software = self.chance.choice(("impatient", *PATIENT_SOFTWARE))
        self._introduced_on: Connection | None = None
        self._beating = False
        """True if a heartbeat is under way."""
        self._leads = False
        self._others: dict[str, list[int]] = {}
        """The members that a leader assigns to, itself included, with their partitions."""
        self._shared_count: int | None = None
        """The number of partitions at the leader's assignment. None: the leader's old assignment stands."""

    @property
    def settled(self) -> bool:
        return self.place is Place.IN and self._busy is self._beating and not self._is_outdated

    @property
    def may_lead_unknowingly(self) -> bool:
        """True if the member may lead without knowing it. A static member that comes back may have led. Before version
        9 of JoinGroup the broker cannot tell the member so without asking for an assignment: the broker names another
        leader, and no member notices that a topic grew."""
        return self.instance_id is not None and self._versions[ApiKey.JOIN_GROUP] < TOLD_TO_LEAD_FROM

    @property
    def _is_outdated(self) -> bool:
        return self._leads and self._shared_count != self.partition_count

    def _next(self, *, leaves: bool) -> str | None:
        if self._busy:
            return self._read() if self._beating and self.chance.random() < 0.3 else None
        if self.place is Place.OUT:
            return self._join()
        if self.place is Place.JOINED:
            return self._sync()
        if self._is_outdated and (self._shared_count is not None or not leaves):
            return self._join()
        dice = self.chance.random()
        if not leaves:
            self._read()
            return self._heartbeat()
        if dice < 0.03:
            return self._leave()
        return self._heartbeat() if dice < 0.5 else self._read()

    # Rounds

    def _join(self) -> str:
        self._prepare()
        self.place, self._leads = Place.OUT, False
        version = self._versions[ApiKey.JOIN_GROUP]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": self.protocol, "metadata": subscription(sorted(self.positions))}],
        }
        self._ask(ApiKey.JOIN_GROUP, version, values, self._joined, lambda: None)
        return f"joins as {self.member_id or 'nobody'}"

    def _joined(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if error is ErrorCode.NONE:
            self.epoch = answer.generation_id
            self.place = Place.JOINED
            self._leads = answer.leader == self.member_id
            self._others = {each.member_id: owned_in(each.metadata) for each in answer.members}
            if answer.skip_assignment:
                self._others = {}
        else:
            self._refused(error)

    def _prepare(self) -> None:
        """Prepares for a round: gives up all partitions."""
        self._lose_everything()

    def _shares(self, count: int) -> dict[str, list[int]]:
        """The share of each member. Shares rotate with the generation, so that partitions move."""
        shares: dict[str, list[int]] = {member_id: [] for member_id in self._others}
        for partition in range(count):
            shares[list(shares)[(partition + self.epoch) % len(shares)]].append(partition)
        return shares

    def _sync(self) -> str:
        self._shared_count = self.partition_count if self._others else None
        shares = self._shares(self._shared_count) if self._shared_count is not None else {}
        values = self._me() | {
            "protocol_type": "consumer",
            "protocol_name": self.protocol,
            "assignments": [
                {"member_id": member_id, "assignment": write_assignment([(TOPIC, share)])}
                for member_id, share in shares.items()
            ],
        }
        self._ask(ApiKey.SYNC_GROUP, self._versions[ApiKey.SYNC_GROUP], values, self._synced, lambda: None)
        return f"syncs in generation {self.epoch}" + (f" and brings {shares}" if shares else "")

    def _synced(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self._refused(error)
            return
        self.place = Place.IN
        self._assigned(share_in(answer.assignment))

    def _assigned(self, share: list[int]) -> None:
        for partition in share:
            self._gain(partition)

    # In the group

    def _heartbeat(self) -> str:
        def done(answer: Any) -> None:
            self._beating = False
            if answer.error_code:
                self._refused(ErrorCode(answer.error_code))

        def lost() -> None:
            self._beating = False

        if self._introduced_on is not self.connection:
            self._introduced_on = self.connection
            said = {"client_software_name": self._software, "client_software_version": "1"}
            self.connection.request(ApiKey.API_VERSIONS, 3, said)
        self._beating = True
        self._ask(ApiKey.HEARTBEAT, self._versions[ApiKey.HEARTBEAT], self._me(), done, lost)
        return f"sends a heartbeat in generation {self.epoch}"

    def _committed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._refused(error)

    def _leave(self) -> str:
        leaving = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        values = {"group_id": self.group_id, "member_id": self.member_id, "members": [leaving]}
        gone = self.member_id
        self._forget()
        self._ask(ApiKey.LEAVE_GROUP, self._versions[ApiKey.LEAVE_GROUP], values, lambda _: None, lambda: None)
        return f"leaves as {gone}"

    def _refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
        elif error in _FORGOTTEN:
            self._forget()
        elif error in _NOT_THIS_ROUND:
            if self.place is Place.IN and self.chance.random() < 0.2:
                # The last commit is still on its way when the member goes on with another connection.
                self._read()
                self.hang_up()
            self._not_in_this_round(error)
            self.place = Place.OUT

    def _not_in_this_round(self, error: ErrorCode) -> None:
        self._lose_everything()

    def _forget(self) -> None:
        self._lose_everything()
        self.member_id, self.epoch, self.place, self._leads = "", NO_EPOCH, Place.OUT, False

    def _me(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }


class CooperativeMember(ClassicMember):
    """A member that keeps its partitions while a round is under way."""

    protocol = "cooperative"

    def _next(self, *, leaves: bool) -> str | None:
        if self.place is not Place.IN and self.chance.random() < 0.1 and self.positions:
            return self._read()
        return super()._next(leaves=leaves)

    def _prepare(self) -> None:
        pass

    def _shares(self, count: int) -> dict[str, list[int]]:
        """The same shares for the same members. Partitions of other members are left out until given back."""
        owners = {partition: member_id for member_id, owned in self._others.items() for partition in owned}
        shares: dict[str, list[int]] = {member_id: [] for member_id in self._others}
        for partition in range(count):
            wanted = sorted(shares)[partition % len(shares)]
            if owners.get(partition, wanted) == wanted:
                shares[wanted].append(partition)
        return shares

    def _assigned(self, share: list[int]) -> None:
        given_up = self.positions.keys() - set(share)
        for partition in given_up:
            del self.positions[partition]
        for partition in set(share) - self.positions.keys():
            self._gain(partition)
        if given_up:
            self.place = Place.OUT

    def _committed(self, error: ErrorCode) -> None:
        if self.place is Place.IN:
            super()._committed(error)

    def _not_in_this_round(self, error: ErrorCode) -> None:
        if error is ErrorCode.ILLEGAL_GENERATION:
            self._lose_everything()
