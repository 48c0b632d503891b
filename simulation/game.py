"""The skeleton of a game: a seed picks every step, brokers die and start again, checkers watch.

First the safety phase: in each step a fault strikes, time passes, a pending step happens, or a client acts. No
invariant may ever break. Then the liveness phase (`_finish`): faults stop, and all pending work ends. A game adds its
clients, its faults and its checkers. The same seed gives the same game, step by step.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from cordwood.cluster.stores.interface import StoreFailure
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.wire.apis import ApiKey
from simulation.checkers.replicas import ReplicasChecker
from simulation.world import cluster_faults
from simulation.world.disk import ProcessDied
from simulation.world.ledger import Ledger
from simulation.world.machine import Machine
from simulation.world.slow_store import Fate
from simulation.world.stage import Stage
from simulation.world.threads import Step
from simulation.world.world import World

TRANSCRIPT_LINES = 80
STEPS_BETWEEN_CHECKS = 100
FENCES_LIFTED_MS = 3000
"""Time for the controller to be elected and to lift the fences of all brokers."""
REPLICA_FAULTS = (
    "power of several",
    "power of all",
    "clean stop",
    "replaced disk",
    "cut off from all brokers",
    "slow disk",
    "clock",
    "the store fails",
)
"""Faults that games with replicas have beside those of single machines and links. No record of a topic with
ack.durability=disk may get lost by them."""
STARTS_AGAIN = 0.08
"""The probability in a step that a broker that is down starts again while others run."""

T = TypeVar("T")


class SimulationFailed(AssertionError):
    """A game broke an invariant. The message has the last steps, and the seed that plays them again."""


class Pace(NamedTuple):
    """The mix of steps that are no faults."""

    waits: float
    """The share of steps in which time passes."""
    waits_ms: tuple[int, ...]
    eagerness: float
    """The probability that a pending step happens before a client acts."""


class Game(ABC, Generic[T]):
    """One game; `T` is the type of its outcome."""

    topic: ClassVar[str]
    partitions: ClassVar[int]

    def __init__(self, seed: int, chance: random.Random, world: World, pace: Pace, replicas: int = 1) -> None:
        """`replicas`: the replicas of each partition. With several, their rules are checked after every step."""
        self.seed = seed
        self.chance = chance
        self.world = world
        self.ledger = Ledger()
        self.stage = Stage(world, chance, self.ledger)
        self._pace = pace
        self._fault_rate = 0.0
        self._starts_again = STARTS_AGAIN
        self.several = len(world.machines) > 1
        self.replication_factor = replicas
        self.replicas = ReplicasChecker(world) if replicas > 1 else None
        if self.replicas is not None:
            for machine in world.machines:
                machine.on_step = partial(self.replicas.look, machine)
        self._transcript: deque[str] = deque(maxlen=TRANSCRIPT_LINES)

    @property
    def label(self) -> str:
        """The seed and the options that play this game again."""
        nodes = f", {len(self.world.machines)} nodes" if self.several else ""
        return f"seed {self.seed}{nodes}" + (f", {self.replication_factor} replicas" if self.replicas else "")

    def play(self, steps: int) -> T:
        self._begin()
        for number in range(1, steps + 1):
            self._take_step(number)
        self._finish()
        return self._outcome()

    # The parts that a game adds

    @abstractmethod
    def _somebody_acts(self) -> None: ...

    @abstractmethod
    def _finish(self) -> None:
        """The liveness phase, and the last checks."""

    @abstractmethod
    def _outcome(self) -> T: ...

    def _check(self) -> None:
        """Checks all invariants, now and then during the safety phase."""

    def _possible(self) -> list[Step]:
        """The steps that are under way and could happen next."""
        return self.world.steps()

    def _do(self, step: Step) -> None:
        self.world.do(step[1])

    # The safety phase

    def _begin(self) -> None:
        self.world.start()
        if self.several:
            self.world.settle()
        if self.replicas is not None:
            self.world.advance(FENCES_LIFTED_MS)
        topic = {
            "name": self.topic,
            "num_partitions": self.partitions,
            "replication_factor": self.replication_factor,
        }
        first = self.world.machines[0].broker_id
        created = self.world.ask_at(first, ApiKey.CREATE_TOPICS, 4, topics=[topic], timeout_ms=1000)
        assert created.topics[0].error_code == 0

    def _take_step(self, number: int) -> None:
        try:
            self._step()
            if number % STEPS_BETWEEN_CHECKS == 0 and not self._down():
                self._check()
        except ProcessDied as death:
            self._note(f"the process dies at: {death}")
            self._die(self.world.machine_of(death.broker_id))

    def _step(self) -> None:
        chance, world, pace = self.chance, self.world, self._pace
        down = self._down()
        if down and (not world.running or chance.random() < self._starts_again):
            self._start(self._one_of_machines(down))
            return
        dice = chance.random()
        if dice < self._fault_rate:
            self._strike()
        elif dice < pace.waits:
            world.clock.advance(chance.choice(pace.waits_ms))
        elif (steps := self._possible()) and chance.random() < pace.eagerness:
            self._do(chance.choice(steps))
        else:
            self._somebody_acts()

    def _strike(self) -> None:
        """Lets a fault strike one machine or, with several, perhaps a link. With replicas the fault may strike several
        machines, or be one that only replicas survive."""
        if self.replicas is not None and self.chance.random() < 0.4:
            self._strike_replicas(self.replicas)
        elif self.several and self.chance.random() < 0.5:
            self._note(cluster_faults.strike(self.world, self.chance, self._one_of_machines(self.world.machines)))
        elif running := [machine for machine in self.world.machines if machine.life is not None]:
            self._fault(self._one_of_machines(running))

    def _strike_replicas(self, replicas: ReplicasChecker) -> None:
        world, chance = self.world, self.chance
        machine, fault = chance.choice(world.machines), chance.choice(REPLICA_FAULTS)
        self._note(f"fault: {fault} of {machine}")
        match fault:
            case "power of several" | "power of all":
                many = len(world.machines) if fault == "power of all" else 2
                for each in chance.sample(world.machines, many):
                    if each.life is not None:
                        self._lose_power(each)
            case "replaced disk" if replicas.can_do_without(machine.broker_id):
                if machine.life is not None:
                    machine.kill()
                    self._gone(machine)
                machine.replace_disk()
                replicas.lost_disk(machine.broker_id)
            case "cut off from all brokers":
                for other in world.machines:
                    if other is not machine:
                        self._note(cluster_faults.cut(world, chance, machine, other.broker_id))
            case "clean stop" if machine.life is not None:
                try:
                    machine.stop()
                except (StorageFailure, StoreFailure) as failure:
                    self._note(f"the stop fails: {failure}")
                    machine.kill()
                self._gone(machine)
            case "slow disk":
                machine.slow_until_ms = machine.clock.boot_ms + chance.choice((100, 1000, 6000))
            case "clock":
                machine.clock.jump(chance.choice((-60_000, -2_000, 2_000, 60_000)))
            case "the store fails" if machine.life is not None:
                machine.life.store.next_fate = chance.choice((Fate.REFUSED, Fate.LOST))

    def _faults_stop(self) -> None:
        """Ends the faults of clients and links; each game ends those of its disks."""
        self._note("--- faults stop ---")
        self.stage.astray = 0
        cluster_faults.end_all(self.world)

    def _cannot_register(self, machine: Machine, failure: StoreFailure) -> None:
        """Gives up a start that the metadata store did not answer. Time passes before the next one."""
        self._cannot_start(machine, failure)

    def _cannot_start(self, machine: Machine, failure: EnvironmentFailure) -> None:
        self._note(f"{machine} cannot start: {failure}")
        machine.kill()
        self.world.clock.advance(self.chance.choice(self._pace.waits_ms))
        self.world.happen()

    def _fault(self, machine: Machine) -> None:
        if self.chance.random() < 0.6:
            machine.disk.die_within(self.chance.choice((3, 20, 60)))
        else:
            self._note("kill")
            self._die(machine)

    def _one_of_machines(self, machines: Sequence[Machine]) -> Machine:
        return self.chance.choice(machines) if self.several else machines[0]

    # Life and death

    def _down(self) -> list[Machine]:
        return [machine for machine in self.world.machines if machine.life is None]

    def _start(self, machine: Machine) -> None:
        self._note("--- the broker starts ---")
        machine.start()

    def _die(self, machine: Machine) -> None:
        if self.chance.random() < 0.5:
            machine.kill()
            self._gone(machine)
        else:
            self._lose_power(machine)

    def _lose_power(self, machine: Machine) -> None:
        self._note(f"the power of {machine} goes")
        machine.lose_power()
        if self.replicas is not None:
            self.replicas.lost_power(machine)
        self._gone(machine)

    def _gone(self, machine: Machine) -> None:
        """Notes that the life of a broker has ended."""

    def _stop_and_start(self) -> None:
        self._note("--- a clean stop ---")
        self.world.stop()
        self.world.start()
        self.world.settle()
        if self.replicas is not None:
            self.world.advance(FENCES_LIFTED_MS)

    # The transcript

    def _note(self, line: str) -> None:
        self._transcript.append(f"{self.world.clock.boot_ms:7} ms  {line}")

    def last_steps(self) -> str:
        return "\n".join(self._transcript)


def play_out(game: Game[T], steps: int) -> T:
    """Plays a game to its end. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    try:
        return game.play(steps)
    except Exception as reason:
        raise SimulationFailed(f"{reason}\n\n{game.last_steps()}\n{game.label}") from reason
    finally:
        game.world.kill()


class GameOfBrokers(Game[T]):
    def leaders_may_be_away(self) -> bool:
        """True if a reader may have to wait for a partition's leader."""
        if self.several and (self.world.links.cuts or any(machine.paused for machine in self.world.machines)):
            return True
        return self.replicas is not None and bool(self.replicas.unconverged())

    def _strike(self) -> None:
        if self.several and self.chance.random() < 0.25:
            one, other = self.chance.sample(self.world.machines, 2)
            self._note(cluster_faults.cut(self.world, self.chance, one, other.broker_id))
        else:
            super()._strike()

    def _start(self, machine: Machine) -> None:
        try:
            super()._start(machine)
        except StoreFailure as failure:
            self._cannot_register(machine, failure)
