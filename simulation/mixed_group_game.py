"""A game about one group whose members speak both protocols: the group is converted from one to the other, and back.

The promises are those of the game of groups.
"""

from simulation.checkers.groups import GroupsChecker
from simulation.checkers.mixed_groups import MixedGroupsChecker
from simulation.game import play_out
from simulation.group_game import LONGEST_SESSION_MS, Cast, GroupGame, GroupOutcome
from simulation.workloads.classic_members import ClassicMember, CooperativeMember
from simulation.workloads.consumer_members import ConsumerMember
from simulation.workloads.group_members import GroupMember

MIXED = "ashes"
CLASSIC_ONLY, BOTH, CONSUMER_ONLY = (0,), (0, 1), (1,)


def play(seed: int, steps: int = 3000, nodes: int = 1, replicas: int = 1) -> GroupOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(MixedGroupGame(seed, nodes, replicas), steps)


class MixedGroupGame(GroupGame):
    def __init__(self, seed: int, nodes: int = 1, replicas: int = 1) -> None:
        super().__init__(seed, nodes, replicas)
        self._wanted: tuple[int, ...] = BOTH
        """The kinds of members that come: members of other kinds leave, sooner or later."""
        self._one_life_each = False

    def new_checker(self) -> GroupsChecker:
        return MixedGroupsChecker()

    def new_casts(self) -> tuple[Cast, Cast]:
        kind = self.chance.choice((ClassicMember, CooperativeMember))
        return Cast(MIXED, kind, []), Cast(MIXED, ConsumerMember, [])

    def _somebody_acts(self) -> None:
        if self.chance.random() < 0.02:
            self._wanted = self.chance.choice((CLASSIC_ONLY, BOTH, CONSUMER_ONLY))
            self._note(f"from now on members of kinds {self._wanted} come")
        super()._somebody_acts()

    def _one_of(self, cast: Cast) -> GroupMember:
        if self._is_wanted(cast):
            return super()._one_of(cast)
        cast.members[:] = [member for member in cast.members if not member.over]
        if not cast.members:
            return super()._one_of(self.casts[self._wanted[0]])
        member = self.chance.choice(cast.members)
        if self.chance.random() < 0.3:
            self._note(f"{member.name} ends")
            member.end()
        return member

    def _instance(self) -> str | None:
        return None if self._one_life_each else super()._instance()

    def _end_double_lives(self) -> None:
        """Ends all but the latest process of each instance id: processes of different protocols would replace each
        other for ever."""
        self._one_life_each = True
        self._only_the_latest(sorted(self._members, key=lambda member: int(member.name.removeprefix(f"{MIXED}-"))))

    def _somebody_is_there(self, cast: Cast) -> None:
        if self._is_wanted(cast):
            super()._somebody_is_there(cast)

    def _settle(self) -> None:
        """Settles twice: a dead member without partitions is noticed only when its session ends."""
        super()._settle()
        for _ in range(2 * LONGEST_SESSION_MS // 500):
            self.world.advance(500)
            self._everybody_goes_on()
        super()._settle()

    def _shares(self) -> dict[str, tuple[int, list[int]]]:
        """The shares, without epochs."""
        return {name: (0, share) for name, (_, share) in super()._shares().items()}

    def _is_wanted(self, cast: Cast) -> bool:
        return any(self.casts[place] is cast for place in self._wanted)
