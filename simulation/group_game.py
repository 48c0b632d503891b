"""A game about groups: members of both protocols join, stall, repeat requests and die, on a broker that dies, too.

Promises: no partition has two owners at a time, no position goes back unless a member asks for it, no fenced member
commits a position, positions outlive the broker, and once the faults stop every member gets and keeps its share. With
several nodes no group has two coordinators.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.cluster.stores.interface import StoreFailure
from cordwood.model.errors import StorageFailure
from cordwood.wire.apis import ApiKey
from simulation.checkers.groups import GroupsChecker
from simulation.checkers.rest import check_at_rest
from simulation.game import Game, Pace, play_out
from simulation.log_game import QUIET_MS
from simulation.workloads import classic_members, consumer_members
from simulation.workloads.classic_members import ClassicMember
from simulation.workloads.consumer_members import ConsumerMember
from simulation.workloads.group_members import TOPIC, GroupMember
from simulation.world.broken import InvariantBroken
from simulation.world.machine import Machine
from simulation.world.stage import Stage
from simulation.world.threads import Step
from simulation.world.world import World, replicated

CLASSIC, CONSUMER = "oaks", "elms"
PARTITIONS, MOST_PARTITIONS = 5, 8
MOST_MEMBERS = 4
INSTANCES = ("one", "two")
ROUNDS_TO_SETTLE = 400
LONGEST_SESSION_MS = max(classic_members.SESSION_MS, consumer_members.SESSION_MS)
PACE = Pace(waits=0.1, waits_ms=(1, 5, 20, 20, 100, 300), eagerness=0.75)
OFFSET_FETCH_VERSION = 7


class Cast(NamedTuple):
    """Members of one kind in one group."""

    group_id: str
    kind: Callable[[Stage, str, str, str | None], GroupMember]
    members: list[GroupMember]


def settings(chance: random.Random) -> dict[str, str]:
    return {
        "group.min.session.timeout.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(consumer_members.SESSION_MS // 3),
        "group.consumer.session.timeout.ms": str(consumer_members.SESSION_MS),
        "group.initial.rebalance.delay.ms": chance.choice(("0", "100")),
        "offsets.topic.segment.bytes": chance.choice(("2000", "100000")),
        "log.flush.offset.checkpoint.interval.ms": "3000",
        "log.cleaner.backoff.ms": chance.choice(("1000", "15000")),
    }


@dataclass
class GroupOutcome:
    """Counts of the events in a game."""

    rounds: int = 0
    taken: int = 0
    commits: int = 0
    fenced_commits: int = 0
    lives: int = 0
    moves: int = 0


def play(seed: int, steps: int = 3000, nodes: int = 1, replicas: int = 1) -> GroupOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks.

    With several `nodes` each group has its coordinator on one of them, and its topic on all. With several `replicas`
    coordinators move.
    """
    return play_out(GroupGame(seed, nodes, replicas), steps)


class GroupGame(Game[GroupOutcome]):
    topic, partitions = TOPIC, PARTITIONS

    def __init__(self, seed: int, nodes: int = 1, replicas: int = 1) -> None:
        chance = random.Random(seed)
        world = World(seed, settings(chance) | replicated(replicas), machines=nodes, clustered=replicas > 1)
        super().__init__(seed, chance, world, PACE, replicas)
        self.checker = self.new_checker()
        for machine in self.world.machines:
            machine.network.on_request = self.checker.requested
            machine.network.on_sent = self.checker.sent
        self.casts = self.new_casts()
        self._people = 0
        self._fault_rate = self.chance.choice((0.0, 0.004, 0.012))

    def new_checker(self) -> GroupsChecker:
        return GroupsChecker()

    def new_casts(self) -> tuple[Cast, Cast]:
        return Cast(CLASSIC, ClassicMember, []), Cast(CONSUMER, ConsumerMember, [])

    @property
    def _now_ms(self) -> int:
        return self.world.clock.boot_ms

    @property
    def _members(self) -> list[GroupMember]:
        return [member for cast in self.casts for member in cast.members]

    def _finish(self) -> None:
        self._settle_and_stay()
        self._note("--- a clean stop, and the power goes ---")
        for machine in self.world.machines:
            machine.stop()
            self.checker.broker_died(machine.network)
        self.world.lose_power()
        for machine in self.world.machines:
            self._start(machine)

    def _outcome(self) -> GroupOutcome:
        checker = self.checker
        return GroupOutcome(
            len(checker.rounds),
            checker.taken,
            checker.positions.accepted,
            checker.positions.fenced_commits,
            self.world.lives,
            checker.moves,
        )

    # Steps

    def _possible(self) -> list[Step]:
        """The steps that could happen next, without delayed ones."""
        for machine in self.world.machines:
            for connection in machine.network.connections:
                # A request sent before a hang-up may arrive when the client has long gone on with another connection.
                if not connection.open and connection.travelling and connection.stuck_until_ms is None:
                    connection.stuck_until_ms = machine.clock.boot_ms + self.chance.choice((0, 50, 300, 2000))
        return self.world.steps()

    def _somebody_acts(self) -> None:
        chance = self.chance
        member = self._one_of(self.casts[chance.random() >= 0.5])
        dice = chance.random()
        if dice < 0.01:
            member.die()
            self._note(f"{member.name} dies")
        elif dice < 0.025:
            member.silent_until_ms = self._now_ms + chance.choice((100, 700, 3000))
            self._note(f"{member.name} falls silent until {member.silent_until_ms}")
        elif member.unanswered and dice < 0.09:
            member.hang_up()
            self._note(f"{member.name} hangs up")
        elif member.unanswered < 8 and (what := member.act()) is not None:
            self._note(f"{member.name} {what}")

    def _one_of(self, cast: Cast) -> GroupMember:
        """A living member, now and then a new one. A static member may come while its predecessor still lives."""
        members = cast.members
        self._somebody_is_there(cast)
        if len(members) < MOST_MEMBERS and self.chance.random() < 0.06:
            members.append(self._new_member(cast))
            return members[-1]
        return self.chance.choice(members)

    def _somebody_is_there(self, cast: Cast) -> None:
        cast.members[:] = [member for member in cast.members if not member.over]
        if not cast.members:
            cast.members.append(self._new_member(cast))

    def _new_member(self, cast: Cast) -> GroupMember:
        self._people += 1
        return cast.kind(self.stage, f"{cast.group_id}-{self._people}", cast.group_id, self._instance())

    def _instance(self) -> str | None:
        """The instance id of a new member."""
        return self.chance.choice((None, None, *INSTANCES))

    # Faults

    def _fault(self, machine: Machine) -> None:
        chance = self.chance
        match chance.randrange(7):
            case 0:
                machine.disk.die_within(chance.choice((3, 20, 60)))
            case 1:
                self._note("kill")
                self._die(machine)
            case 2:
                self._note("a clean stop")
                self._stop(machine)
            case 3:
                free = chance.choice((0, 200, 1000))
                self._note(f"the disk has {free} bytes left")
                machine.disk.platter.free_for_appends = free
            case 4:
                machine.disk.platter.free_for_appends = None
            case 5:
                machine.slow_until_ms = machine.clock.boot_ms + chance.choice((100, 1000, 6000))
                self._note(f"the disk is slow until {machine.slow_until_ms}")
            case _:
                if chance.random() < 0.5:
                    machine.clock.jump(chance.choice((-60_000, -2000, 2000, 60_000)))
                    self._note("the wall clock is set")
                else:
                    self._grow(machine)

    def _grow(self, machine: Machine) -> None:
        count = len(self.stage.image.topics[TOPIC].partitions) + 1
        if count <= MOST_PARTITIONS:
            entry = {"name": TOPIC, "count": count, "assignments": None}
            values = {"topics": [entry], "timeout_ms": 1000}
            machine.network.connect().request(ApiKey.CREATE_PARTITIONS, 1, values)
            self._note(f"{TOPIC} is to have {count} partitions")

    def _start(self, machine: Machine) -> None:
        self._note("--- the broker starts ---")
        try:
            machine.start()
        except StoreFailure as failure:
            self._cannot_register(machine, failure)
            return
        except StorageFailure as failure:
            self._note(f"it cannot: {failure}")
            machine.kill()
            machine.disk.platter.free_for_appends = None
            machine.start()
        self._audit(machine)

    def _stop(self, machine: Machine) -> None:
        try:
            machine.stop()
        except StorageFailure as failure:
            self._note(f"the stop fails: {failure}")
            machine.kill()
        self.checker.broker_died(machine.network)

    def _gone(self, machine: Machine) -> None:
        self.checker.broker_died(machine.network)

    def _audit(self, machine: Machine) -> None:
        """Fetches all positions; the checker looks at the answers. Groups of other brokers are refused."""
        partitions = list(range(len(machine.node.image.topics[TOPIC].partitions)))
        for group_id in dict.fromkeys(cast.group_id for cast in self.casts):
            values = {"group_id": group_id, "topics": [{"name": TOPIC, "partition_indexes": partitions}]}
            machine.network.connect().request(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, values)

    # The end

    def _settle_and_stay(self) -> None:
        """Stops the faults: every member gets its share, every partition has an owner, and then no share changes."""
        self._faults_stop()
        world = self.world
        for machine in world.machines:
            machine.disk.die_at = None
            machine.disk.platter.free_for_appends = None
            machine.slow_until_ms = 0
            for connection in machine.network.connections:
                connection.stuck_until_ms = 0
        for member in self._members:
            member.silent_until_ms = 0
        for machine in self._down():
            self._start(machine)
        self._end_double_lives()
        self._settle()
        self._note("--- one of each group dies ---")
        for cast in self.casts:
            if cast.members:
                cast.members[0].die()
        self._settle()
        shares = self._shares()
        for _ in range(4 * LONGEST_SESSION_MS // 500):
            world.advance(500)
            self._everybody_goes_on()
        world.settle()
        if self._unsettled() or self._shares() != shares:
            raise InvariantBroken(f"nothing happened, and shares went from {shares} to {self._shares()}")
        for machine in world.machines:
            self._audit(machine)
        world.advance(1000)
        for member in self._members:
            member.hang_up()
        world.advance(QUIET_MS)
        check_at_rest(world)

    def _end_double_lives(self) -> None:
        """Ends all but the latest process of each instance id: the consumer protocol lets a second process wait as long
        as the first sends heartbeats."""
        self._only_the_latest(self.casts[1].members)

    @staticmethod
    def _only_the_latest(members: list[GroupMember]) -> None:
        latest = {member.instance_id: member for member in members}
        for member in members:
            if member.instance_id is not None and member is not latest[member.instance_id]:
                member.die()

    def _settle(self) -> None:
        for _ in range(ROUNDS_TO_SETTLE):
            # A stuck request of its own can fence a static member; its process is started again.
            for cast in self.casts:
                self._somebody_is_there(cast)
            self._everybody_goes_on()
            self.world.settle()
            if not self._unsettled():
                return
            self.world.advance(self.chance.choice((0, 50, 300)))
        raise InvariantBroken(f"after {ROUNDS_TO_SETTLE} rounds: {self._unsettled()}")

    def _everybody_goes_on(self) -> None:
        for member in self._members:
            member.finish()

    def _unsettled(self) -> str:
        """Names a fault of the final state of the groups; empty if there is none."""
        groups: dict[str, list[GroupMember]] = {}
        for cast in self.casts:
            groups.setdefault(cast.group_id, []).extend(cast.members)
        for members in groups.values():
            alive = [member for member in members if not member.over]
            waiting = [member.name for member in alive if not member.settled]
            if waiting:
                return f"{waiting} have not got their share"
            if len({member.epoch for member in alive}) != 1:
                return f"they are in different epochs: {[(member.name, member.epoch) for member in alive]}"
            owned = sorted(partition for member in alive for partition in member.positions)
            count = alive[0].partition_count
            classic = [member for member in alive if isinstance(member, ClassicMember)]
            if len(classic) == len(alive) and any(member.may_lead_unknowingly for member in classic):
                count = min(count, max(len(owned), PARTITIONS))
            if owned != list(range(count)):
                return f"these are owned: {[(member.name, sorted(member.positions)) for member in alive]}"
        return ""

    def _shares(self) -> dict[str, tuple[int, list[int]]]:
        alive = [member for member in self._members if not member.over]
        return {member.name: (member.epoch, sorted(member.positions)) for member in alive}
