"""A member of a group of the consumer protocol: its statements about itself, its assignment, and its states."""

from enum import IntEnum
from typing import NamedTuple

from cordwood.groups.consumer.partition_sets import Share
from cordwood.groups.consumer.since import Since
from cordwood.model.state_tables import Moves


class MemberState(IntEnum):
    """States of a member, as Kafka numbers them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A later version wrote a state that this one does not know."""

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


MEMBER_MOVES = Moves(
    "member",
    {
        MemberState.STABLE: list(MemberState),
        # A target may take partitions from a member that has all of its own, that waits for more, or that has just
        # given others back.
        MemberState.UNREVOKED_PARTITIONS: list(MemberState),
        MemberState.UNRELEASED_PARTITIONS: list(MemberState),
        MemberState.UNKNOWN: (),
    },
)


class ClassicPart(NamedTuple):
    """The statements of a member that speaks the classic protocol to a group of the consumer protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and subscriptions, the preferred one first."""


class Profile(NamedTuple):
    """A member's statements about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]
    rebalance_timeout_ms: int
    assignor: str | None
    expression: str | None = None
    """A regular expression of further topics that the member reads."""
    classic: ClassicPart | None = None
    """None: the member speaks the consumer protocol."""


class Current(NamedTuple):
    """A member's current assignment, and its progress towards the target."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Share
    revoking: Share
    since: Since
    """The epochs in which the member got the partitions that it holds."""

    @property
    def held(self) -> Share:
        """The partitions that no other member can have yet."""
        return self.assigned | self.revoking
