"""The role of a hosted partition: one value, which holds what only that role has.

| role | begins with | ends with |
| --- | --- | --- |
| FOLLOWING | another broker leads, or none does | another leader, epoch or role |
| LEADING | the image names this process as the leader | another epoch, or another leader |
| BEING_CUT | a thread takes the log of a follower, to cut it or to set it aside | the thread is done |
| OFFLINE | the data directory of the log failed | the next start |

A thread that has the log is its only user: the partition leads, and goes offline, only after the thread is done.
"""

from typing import ClassVar

from cordwood.model.state_tables import Moves, State
from cordwood.replication.follower import FollowerReplica
from cordwood.replication.leader import LeaderReplica

NO_LEADER = -1


class RoleState(State):
    FOLLOWING = "another broker leads, or none does"
    LEADING = "this broker leads"
    BEING_CUT = "a thread has the log"
    OFFLINE = "the data directory of the log failed"


ROLE_MOVES = Moves(
    "role of a partition",
    {
        RoleState.FOLLOWING: {RoleState.FOLLOWING, RoleState.LEADING, RoleState.BEING_CUT},
        RoleState.LEADING: {RoleState.FOLLOWING, RoleState.LEADING},
        RoleState.BEING_CUT: {RoleState.FOLLOWING, RoleState.BEING_CUT},
        RoleState.OFFLINE: {RoleState.FOLLOWING, RoleState.LEADING, RoleState.OFFLINE},
    },
)


class Role:
    """One role in one leader epoch. `leading` and `following` are what the partition's replica does in it."""

    __slots__ = ("leader", "leader_epoch")

    state: ClassVar[RoleState]
    leads: ClassVar = False
    being_cut: ClassVar = False
    offline: ClassVar = False
    leading: LeaderReplica | None = None
    """The leader, once its log is open."""
    following: FollowerReplica | None = None
    """The follower, once `Partition.begin_following` has made it."""

    def __init__(self, leader: int, leader_epoch: int) -> None:
        self.leader = leader
        """The broker that leads; -1: this broker knows none."""
        self.leader_epoch = leader_epoch
        """The epoch in which the partition is led, here or elsewhere."""


class Following(Role):
    __slots__ = ("following",)

    state = RoleState.FOLLOWING

    def __init__(self, leader: int, leader_epoch: int, following: FollowerReplica | None = None) -> None:
        super().__init__(leader, leader_epoch)
        self.following = following


class Leading(Role):
    __slots__ = ("leading", "since_ms", "took_over_ms")

    state = RoleState.LEADING
    leads = True

    def __init__(self, leader: int, leader_epoch: int, since_ms: int, took_over_ms: int | None) -> None:
        super().__init__(leader, leader_epoch)
        self.leading = None
        self.since_ms = since_ms
        """The time at which this broker took the lead, or began this epoch as the leader."""
        self.took_over_ms = took_over_ms
        """The time at which this leader took over from another broker, with all acknowledged records, if it did."""


class BeingCut(Following):
    """A follower whose log belongs to a thread: no other work may use the log."""

    __slots__ = ()

    state = RoleState.BEING_CUT
    being_cut = True


class Offline(Role):
    """The partition leads and follows nobody until the next start."""

    __slots__ = ()

    state = RoleState.OFFLINE
    offline = True
