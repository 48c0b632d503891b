"""A game about the log: producers, readers, administrators and visitors on a broker whose machine fails in every way.

Promises: acknowledged records are never lost, changed or reordered, and no reader sees a record that is not durable.
Once faults stop, every request is answered, every producer that insists gets its acknowledgement, every reader reads to
the end, and no request is left waiting. Last, the broker is stopped, the power goes, and all records are there
afterwards. With several nodes all promises hold while single machines fail, and a broker serves only partitions that it
leads.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.cluster.follower import BACK_OFF
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.model.errors import StorageFailure
from cordwood.model.identifiers import TopicId
from simulation.checkers.answers import Answers, Key
from simulation.checkers.bounds import Bounds
from simulation.checkers.content import check_content
from simulation.checkers.fetched_positions import PositionsChecker
from simulation.checkers.leaders import LeadersChecker
from simulation.checkers.rest import check_at_rest
from simulation.checkers.waiting import check_waiting
from simulation.game import Game, Pace, play_out
from simulation.workloads.administrators import NAMES, Administrator
from simulation.workloads.position_keepers import PositionKeeper
from simulation.workloads.producers import IdempotentProducer, PlainProducer
from simulation.workloads.readers import Reader
from simulation.workloads.visitors import DirectoryMover, Vandal, Visitor
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Connection, Exchange
from simulation.world.links import CLIENTS
from simulation.world.machine import BrokerFailed, Machine
from simulation.world.profile import Fault, Profile
from simulation.world.slow_store import Fate
from simulation.world.stage import Client
from simulation.world.threads import Step
from simulation.world.world import World

QUIET_MS = 40_000
"""Longer than any request waits: acks at most 30 s, polls 3 s."""
ROUNDS_TO_FINISH = 400
CATCH_UP_MS = 2 * BACK_OFF.longest_ms
"""Longer than a watch of the metadata store that broke is left alone."""
WAITS_MS = (1, 1, 1, 5, 5, 20, 200, 1500)
_ZEAL: dict[type[Client], float] = {
    IdempotentProducer: 3,
    PlainProducer: 2,
    Reader: 2,
    Administrator: 0.7,
    Visitor: 0.5,
}
"""The relative frequency with which each kind of client acts."""


@dataclass
class Outcome:
    """Counts of the events in a game."""

    seed: int
    steps: int = 0
    requests: int = 0
    promises: int = 0
    records_read: int = 0
    lives: int = 0
    events: Counter[str] = field(default_factory=Counter)
    digest: int = 0
    """A digest of the transcript: the same for the same seed."""


class Judges(NamedTuple):
    """The checkers of one broker."""

    answers: Answers
    bounds: Bounds


def play(
    seed: int, steps: int = 600, profile: Profile | None = None, nodes: int = 1, *, directories: int = 1
) -> Outcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks.

    Without a `profile` the seed picks one. With several `nodes` the partitions are led by all of them.
    """
    return play_out(LogGame(seed, profile, nodes, directories), steps)


class LogGame(Game[Outcome]):
    def __init__(self, seed: int, profile: Profile | None = None, nodes: int = 1, directories: int = 1) -> None:
        chance = random.Random(seed)
        self.profile = Profile.chosen_by(chance) if profile is None else profile
        world = World(
            seed,
            self.profile.settings,
            machines=nodes,
            loaded_indexes_bytes=self.profile.loaded_indexes_bytes,
            patience=self._patience if self.profile.threads else None,
            directories=directories,
        )
        super().__init__(seed, chance, world, Pace(0.15, WAITS_MS, self.profile.eagerness))
        self._report = Outcome(seed)
        self._fault_rate = self.profile.fault_rate
        self.clients = self._cast()
        self._zeal = [_ZEAL.get(type(client), 1.0) for client in self.clients]
        self._positions = PositionsChecker[Key]()
        self._leaders = LeadersChecker()
        self._judges = {machine.broker_id: self._judge(machine) for machine in world.machines}
        self._death = Fault.KILL

    def _judge(self, machine: Machine) -> "Judges":
        """Lets checkers watch one machine."""
        answers, bounds = Answers(self.ledger, self._positions), Bounds(self.ledger)
        answers.cold_reads = Fault.COLD in self.profile.faults or self.profile.loaded_indexes_bytes == 1

        def sent(exchange: Exchange) -> None:
            self._leaders.check(machine, exchange)
            answers.sent(exchange)

        machine.network.on_sent = sent
        machine.network.on_request = answers.requested
        machine.on_step = lambda: bounds.check(machine.node, machine.lives)
        return Judges(answers, bounds)

    @property
    def label(self) -> str:
        return f"{super().label}: {self.profile}"

    def _cast(self) -> list[Client]:
        stage, profile, chance = self.stage, self.profile, self.chance
        self._administrator = Administrator(
            stage,
            "administrator",
            deletes=profile.deletes_topics,
            retention=profile.retention,
            compaction=profile.compaction,
            durability=profile.durability,
        )
        clients: list[Client] = [self._administrator, Visitor(stage, "visitor")]
        clients += [IdempotentProducer(stage, f"idempotent-{number}") for number in range(profile.idempotent_producers)]
        clients += [
            PlainProducer(stage, f"plain-{number}", chance.choice((0, 1, -1)), retries=chance.random() < 0.5)
            for number in range(profile.plain_producers)
        ]
        clients += [
            Reader(stage, f"reader-{number}", isolation_level=number % 2, sessions=chance.random() < 0.7)
            for number in range(2)
        ]
        clients += [PositionKeeper(stage, f"group-{number}") for number in range(2)]
        if len(self.world.machines[0].setup.data_directories) > 1:
            clients.append(DirectoryMover(stage, "mover"))
        if profile.vandals:
            clients.append(Vandal(stage, "vandal"))
        return clients

    def _patience(self) -> int:
        return self.chance.choice((1, 1, 2, 5, 20))

    # The phases

    def _begin(self) -> None:
        for machine in self.world.machines:
            self._start(machine)
        if self.several:
            self.world.settle()
        for name in NAMES[:2]:
            self._note(self._administrator.create_topic(name))
        self.world.settle()

    def _take_step(self, number: int) -> None:
        self._report.steps = number
        try:
            super()._take_step(number)
        except BrokerFailed as failure:
            self._note(f"the broker gives up: {failure}")
            how = self.chance.choice((Fault.KILL, Fault.POWER_CUT))
            self._end_life(self.world.machine_of(failure.broker_id), how)

    def _do(self, step: Step) -> None:
        name, do = step
        self._note(name)
        if name.endswith("the store answers") and Fault.STORE in self.profile.faults and self.chance.random() < 0.1:
            fate = self.chance.choice((Fate.REFUSED, Fate.LOST))
            self._note(f"  not: {fate.value}")
            life = self.world.whose(do).life
            assert life is not None
            life.store.next_fate = fate
        self.world.do(do)

    def _somebody_acts(self) -> None:
        chance = self.chance
        client = chance.choices(self.clients, self._zeal)[0]
        if client.unanswered >= 10 or chance.random() < 0.01:
            client.hang_up()
            self._note(f"{client.name} hangs up")
        elif (what := client.act()) is not None:
            self._note(f"{client.name} {what}")

    def _fault(self, machine: Machine) -> None:
        disk, chance = machine.disk, self.chance
        fault = chance.choice(self.profile.faults)
        self._note(f"fault: {fault.value}")
        match fault:
            case Fault.KILL | Fault.POWER_CUT:
                self._death = fault
                if chance.random() < 0.7:
                    disk.die_within(chance.choice((5, 30, 100)))
                else:
                    self._end_life(machine, fault)
            case Fault.CLEAN_STOP:
                self._stop(machine)
            case Fault.DISK_FULL:
                disk.platter.free_for_appends = chance.choice((0, 100, 1000))
            case Fault.DISK_FREE:
                disk.platter.free_for_appends = None
            case Fault.SYNC_FAILS:
                disk.syncs_fail = True
            case Fault.UNREADABLE:
                disk.unreadable = not disk.unreadable
            case Fault.COLD:
                disk.platter.nothing_cached = not disk.platter.nothing_cached
            case Fault.HANDLES:
                disk.give_up_handles()
            case Fault.CLOCK:
                machine.clock.jump(chance.choice((-60_000, -2_000, 2_000, 60_000, 600_000)))
            case Fault.STORE:
                pass

    # Life and death

    def _start(self, machine: Machine) -> None:
        try:
            machine.start()
        except StoreFailure as failure:
            self._cannot_register(machine, failure)
            return
        except StorageFailure as failure:
            self._note(f"the broker cannot start: {failure}")
            self._end_life(machine, Fault.KILL)
            machine.disk.platter.free_for_appends = None
            machine.start()
        node, judges = machine.node, self._judges[machine.broker_id]
        self._note(f"--- life {self.world.lives} ---")
        judges.bounds.new_life()
        judges.answers.attach(node)
        judges.bounds.check(node, machine.lives)
        check_content(node, self.ledger)

    def _stop(self, machine: Machine) -> None:
        """Stops cleanly, if the disk allows it: without a checkpoint the next start recovers."""
        answers = self._judges[machine.broker_id].answers
        answers.stopping = True
        try:
            machine.stop()
        except StorageFailure as failure:
            self._note(f"the stop fails: {failure}")
            self._end_life(machine, Fault.KILL)
        answers.attach(None)

    def _die(self, machine: Machine) -> None:
        self._end_life(machine, self._death)

    def _end_life(self, machine: Machine, how: Fault) -> None:
        self._report.events[f"died: {how.value}"] += 1
        self._judges[machine.broker_id].answers.attach(None)
        if how is Fault.POWER_CUT:
            machine.lose_power()
            self._power_lost(machine)
        else:
            machine.kill()

    def _power_lost(self, machine: Machine) -> None:
        topics = self.stage.image.topics_by_id if self.several else {}

        def hosted(topic_id: TopicId, index: int) -> bool:
            topic = topics.get(topic_id)
            if topic is None or index >= len(topic.partitions):
                return True  # no broker has a deleted partition
            return machine.broker_id in topic.partitions[index].replicas

        self.ledger.power_lost(hosted)

    # The end

    def _finish(self) -> None:
        self._faults_stop()
        self._everybody_finishes()
        check_waiting(self.stage)
        self._check_the_end()

    def _outcome(self) -> Outcome:
        report = self._report
        report.requests = sum(machine.network.requests_handled for machine in self.world.machines)
        report.promises = self.ledger.promise_count
        report.records_read = sum(client.records_read for client in self.clients if isinstance(client, Reader))
        report.lives = self.world.lives
        return report

    def _everybody_finishes(self) -> None:
        world = self.world
        for disk in (machine.disk for machine in world.machines):
            disk.die_at = None
            disk.unreadable = disk.syncs_fail = False
            disk.platter.free_for_appends = None
        try:
            for machine in self._down():
                self._start(machine)
            if self.several:
                world.advance(CATCH_UP_MS)
            for _ in range(ROUNDS_TO_FINISH):
                world.settle()
                busy = [client.name for client in self.clients if client.finish()]
                if not busy:
                    break
                world.advance(self.chance.choice((0, 10, 600)))
            else:
                raise InvariantBroken(f"these never come to an end: {busy}")
        except BrokerFailed as failure:
            # A sync that failed before the faults stopped is noticed only now.
            self._end_life(world.machine_of(failure.broker_id), Fault.POWER_CUT)
            self._everybody_finishes()

    def _check_the_end(self) -> None:
        world = self.world
        world.advance(QUIET_MS)
        waiting = [repr(each) for connection in self._connections() for each in connection.under_way.values()]
        if waiting:
            raise InvariantBroken(f"these were never answered: {waiting}")
        check_at_rest(world)
        for client in self.clients:
            client.hang_up()
        world.advance(1000)
        check_at_rest(world)
        if connections := self._connections():
            raise InvariantBroken(f"the broker keeps connections that are closed: {connections}")
        for machine in world.machines:
            check_content(machine.node, self.ledger)
            if machine.node.image.revision != max(each.node.image.revision for each in world.machines):
                raise InvariantBroken(f"{machine} has heard of nothing since revision {machine.node.image.revision}")
            if set_aside := machine.node.logs.home.on_disk.set_aside_directories:
                raise InvariantBroken(f"{machine} set directories aside that no operator put there: {set_aside}")
        self._note("--- a clean stop, and the power goes ---")
        for machine in world.machines:
            self._stop(machine)
        world.lose_power()
        self.ledger.power_lost()
        for machine in world.machines:
            self._start(machine)

    def _connections(self) -> list[Connection]:
        """The connections of clients. Brokers keep theirs to each other."""
        found = [connection for machine in self.world.machines for connection in machine.network.connections]
        return [connection for connection in found if connection.source == CLIENTS]

    def _note(self, line: str) -> None:
        report = self._report
        report.events[line.split(" ")[0] if line.startswith("fault") else line.split(" ", 1)[0]] += 1
        report.digest = hash_line(report.digest, line)
        self._transcript.append(f"{report.steps:5} {self.world.clock.boot_ms:7} ms  {line}")


def hash_line(digest: int, line: str) -> int:
    """Adds a line to a digest that is the same in every process, unlike `hash`."""
    for byte in line.encode():
        digest = (digest * 1_000_003 ^ byte) & 0xFFFFFFFFFFFFFFFF
    return digest
