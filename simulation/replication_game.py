"""A game about replication: brokers that fail one by one or together, and partitions that outlive them.

Promises: the twelve rules of replication hold after every step (`checkers/replica_history.py`). A record that was
acknowledged for all replicas, or read by any client, stays at its offset. Once faults stop, every partition has a
leader, all replicas are in sync and equal, every producer that insists gets its acknowledgement, and every reader reads
to the end.

Records of topics with ack.durability=os may be lost if all replicas that could lead lose their power; no other record
may.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.stores.interface import StoreFailure
from cordwood.cluster.stores.memory import MemoryStore
from cordwood.model.errors import DiskFull, ProtocolError, StorageFailure
from cordwood.model.settings.replication_settings import RACK_AWARE_SELECTOR
from simulation.checkers.replicas import ReplicasChecker
from simulation.checkers.replicated_answers import ReplicatedAnswers
from simulation.game import Game, Pace, play_out
from simulation.rot import Rot
from simulation.weather import Weather
from simulation.workloads.administrators import NAMES, ReplicaAdministrator
from simulation.workloads.producers import IdempotentProducer, PlainProducer
from simulation.workloads.readers import Reader
from simulation.workloads.visitors import DirectoryMover, EndWatcher
from simulation.world import cluster_faults
from simulation.world.broken import InvariantBroken
from simulation.world.links import CLIENTS, STORE
from simulation.world.machine import BrokerFailed, Machine
from simulation.world.slow_store import Fate
from simulation.world.stage import Client
from simulation.world.threads import Step
from simulation.world.world import World, rack_of

WAITS_MS = (1, 1, 1, 5, 5, 20, 100, 500)
STEPS_BETWEEN_BACKUPS = 200
REFUSALS = ("went back", "cannot be reached", "does not answer")
"""Words in the failure of a broker that does not start on an older copy of the store."""
SETTLE_MS = 300
ROUNDS_TO_FINISH = 400
ROUNDS_TO_REPAIR = 1000
SCRUB_INTERVAL_MS = "2000"
CLOSED_SOON = {"segment.bytes": "300", "ack.durability": "disk"}
"""Settings of topics that rot: only closed segments rot, with records that cannot be lost otherwise."""
SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "auto.create.topics.enable": "false",
}
_ZEAL: dict[type[Client], float] = {
    IdempotentProducer: 3,
    PlainProducer: 2,
    Reader: 1.5,
    ReplicaAdministrator: 0.3,
    EndWatcher: 0.3,
}
"""The relative frequency with which each kind of client acts."""


@dataclass
class ReplicationOutcome:
    """Counts of the events in a game."""

    steps: int = 0
    looks: int = 0
    acks: int = 0
    promises: int = 0
    committed: int = 0
    records_read: int = 0
    sent_near: int = 0
    lives: int = 0
    elections: int = 0
    losses: int = 0
    replaced_disks: int = 0
    accepted_losses: int = 0
    evidence: int = 0
    rotten: int = 0
    events: Counter[str] = field(default_factory=Counter)


def play(
    seed: int, steps: int = 2500, nodes: int = 3, weather: Weather | None = None, *, directories: int = 1
) -> ReplicationOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(ReplicationGame(seed, nodes, weather, directories), steps)


async def _accept_loss(writer: MetadataWriter, topic: str, index: int) -> None:
    with suppress(ProtocolError, StoreFailure):
        await writer.accept_loss(topic, index)


class ReplicationGame(Game[ReplicationOutcome]):
    def __init__(self, seed: int, nodes: int = 3, weather: Weather | None = None, directories: int = 1) -> None:
        chance = random.Random(seed)
        # Racks and rot have separate dice: the other dice fall as they did before there were racks and rot.
        near = random.Random(f"racks {seed}").random() < 0.5
        # A log that moves to another directory takes its flipped bytes along, which the game does not follow.
        rots = random.Random(f"rot {seed}").random() < 0.3 and directories == 1
        self.weather = Weather.chosen_by(chance, near=near, rots=rots) if weather is None else weather
        settings = {**SETTINGS, "replica.selector.class": RACK_AWARE_SELECTOR} if self.weather.near else SETTINGS
        if self.weather.rots:
            settings = {**settings, "log.scrub.interval.ms": SCRUB_INTERVAL_MS}
        world = World(
            seed,
            settings,
            machines=nodes,
            scrubbed=self.weather.rots,
            clustered=True,
            racks=self.weather.near,
            directories=directories,
        )
        super().__init__(seed, chance, world, Pace(0.08, WAITS_MS, self.weather.eagerness))
        self._report = ReplicationOutcome()
        self._fault_rate = self.weather.rate
        self._starts_again = self.weather.starts_again
        self.clients = self._cast(nodes)
        self._zeal = [_ZEAL.get(type(client), 1.0) for client in self.clients]
        self.checker = ReplicasChecker(world)
        self.rot = Rot(world, self.checker)
        if self.weather.rots:
            self.checker.rotten_until = self.rot.rotten_until
        self._answers = {machine.broker_id: self._judge(machine) for machine in world.machines}
        self._copies: deque[MemoryStore] = deque(maxlen=3)
        """Backups of the store."""
        self._power_next = False
        """True if the next death at a disk operation is a power cut."""

    def _judge(self, machine: Machine) -> ReplicatedAnswers:
        answers = ReplicatedAnswers(machine, self.ledger, self.checker)
        machine.network.on_request = answers.requested
        machine.network.on_sent = answers.sent
        machine.on_step = lambda: self.checker.look(machine)
        return answers

    def _cast(self, nodes: int) -> list[Client]:
        stage, chance = self.stage, self.chance
        self._administrator = ReplicaAdministrator(
            stage,
            "administrator",
            replicas=tuple(range(2, min(nodes, 3) + 1)),
            deletes=self.weather.deletes,
            movers=tuple(machine.broker_id for machine in self.world.machines) if self.weather.moves else (),
            fixed=CLOSED_SOON if self.weather.rots else None,
        )
        clients: list[Client] = [self._administrator]
        clients += [IdempotentProducer(stage, f"idempotent-{number}") for number in range(chance.randint(1, 2))]
        clients += [PlainProducer(stage, f"plain-{acks}", acks, retries=chance.random() < 0.5) for acks in (-1, 1)]
        clients += [
            Reader(stage, f"reader-{number}", isolation_level=number % 2, sessions=chance.random() < 0.7)
            for number in range(2)
        ]
        clients.append(EndWatcher(stage, "end-watcher"))
        if len(self.world.machines[0].setup.data_directories) > 1:
            clients.append(DirectoryMover(stage, "mover"))
        if self.weather.near:
            clients += [
                Reader(
                    stage,
                    f"near-reader-{number}",
                    isolation_level=number % 2,
                    sessions=number > 1,
                    rack=rack_of(number),
                )
                for number in range(1, min(nodes, 3) + 1)
            ]
        return clients

    @property
    def label(self) -> str:
        return f"{super().label}: {self.weather}"

    # The phases

    def _begin(self) -> None:
        for machine in self.world.machines:
            self._start(machine)
        self.world.advance(3000)
        for name in NAMES[:2]:
            self._note(self._administrator.create_topic(name))
        self.world.advance(1000)
        if len(self.stage.topics()) < 2:
            raise InvariantBroken("the topics of the game were not created")

    def _take_step(self, number: int) -> None:
        self._report.steps = number
        if number % STEPS_BETWEEN_BACKUPS == 0 and "restored store" in self.weather.faults:
            self._copies.append(self.world.copy_of_store())
        try:
            super()._take_step(number)
        except BrokerFailed as failure:
            self._note(f"broker {failure.broker_id} gives up: {failure}")
            self._die(self.world.machine_of(failure.broker_id))

    def _do(self, step: Step) -> None:
        name, do = step
        self._note(name)
        if name.endswith("the store answers") and self.chance.random() < self.weather.store_fails:
            fate = self.chance.choice((Fate.REFUSED, Fate.LOST))
            life = self.world.whose(do).life
            assert life is not None
            self._note(f"  not: {fate.value}")
            life.store.next_fate = fate
        self.world.do(do)

    def _possible(self) -> list[Step]:
        """The steps that could happen next. A request that was sent before a hang-up may arrive long after it."""
        for machine in self.world.machines:
            for connection in machine.network.connections:
                if not connection.open and connection.travelling and connection.stuck_until_ms is None:
                    connection.stuck_until_ms = machine.clock.boot_ms + self.chance.choice((0, 50, 300, 2000))
        return self.world.steps()

    def _somebody_acts(self) -> None:
        client = self.chance.choices(self.clients, self._zeal)[0]
        if client.unanswered >= 10 or self.chance.random() < 0.01:
            client.hang_up()
            self._note(f"{client.name} hangs up")
        elif (what := client.act()) is not None:
            self._note(f"{client.name} {what}")

    # Faults

    def _strike(self) -> None:
        world, chance = self.world, self.chance
        fault = chance.choice(self.weather.faults)
        self._report.events[fault] += 1
        machine = chance.choice(world.machines)
        match fault:
            case "pause":
                self._note(cluster_faults.pause(world, chance, machine))
            case "cut between brokers":
                other = chance.choice([each for each in world.machines if each is not machine])
                self._note(cluster_faults.cut(world, chance, machine, other.broker_id))
            case "cut off from all brokers":
                for other in world.machines:
                    if other is not machine:
                        self._note(cluster_faults.cut(world, chance, machine, other.broker_id))
            case "cut from the store":
                self._note(cluster_faults.cut(world, chance, machine, STORE))
            case "cut from clients":
                self._note(cluster_faults.cut(world, chance, machine, CLIENTS))
            case "broken connection":
                self._note(cluster_faults.break_connection(chance, machine))
            case "restored store":
                self._note(cluster_faults.restore(world, chance, self._copies))
            case "bit rot":
                self._note(self.rot.strike(chance))
            case "full disk":
                self._note(cluster_faults.fill_disk(world, chance, machine))
            case "replaced disk" if machine.setup.directories > 1 and chance.random() < 0.5:
                self._fail_directory(machine)
            case "replaced disk":
                self._replace_disk(machine)
            case "disk of one and power of all":
                self._replace_disk(machine)
                for each in world.machines:
                    if each.life is not None:
                        self._lose_power(each)
            case "power of several" | "power of all":
                many = len(world.machines) if fault == "power of all" else 2
                self._note(f"fault: {fault}")
                for each in chance.sample(world.machines, many):
                    if each.life is not None:
                        self._lose_power(each)
            case _ if machine.life is not None:
                self._note(f"fault: {fault} of {machine}")
                self._fault_of(fault, machine)

    def _fault_of(self, fault: str, machine: Machine) -> None:
        chance = self.chance
        match fault:
            case "kill":
                self._kill(machine)
            case "die within":
                self._power_next = chance.random() < 0.5
                machine.disk.die_within(chance.choice((3, 20, 60)))
            case "power":
                self._lose_power(machine)
            case "clean stop":
                self._stop(machine)
            case "slow disk":
                machine.slow_until_ms = machine.clock.boot_ms + chance.choice((100, 1000, 6000))
            case "clock":
                machine.clock.jump(chance.choice((-60_000, -2_000, 2_000, 60_000, 600_000)))

    def _replace_disk(self, machine: Machine) -> None:
        """Puts an empty disk into a machine, unless the only copy of a committed record is on the old one."""
        if not self.checker.can_do_without(machine.broker_id):
            return
        _, *others = machine.setup.data_directories
        lost = self.chance.choice(others) if others and self.chance.random() < 0.7 else None
        self._note(f"fault: {machine} gets an empty disk{'' if lost is None else f' at {lost}'}")
        if machine.life is not None:
            self._kill(machine)
        if lost is None:
            machine.replace_disk()
        else:
            machine.lose_directory(lost)
        self._report.replaced_disks += 1
        self.checker.lost_disk(machine.broker_id)

    def _fail_directory(self, machine: Machine) -> None:
        """Lets a data directory fail while the broker runs. The operator restarts the broker after a while."""
        _, *others = machine.setup.data_directories
        if not others or machine.life is None or machine.disk.failing:
            return
        machine.disk.failing = self.chance.choice(others)
        self._note(f"fault: {machine.disk.failing} of {machine} fails")
        life = machine.life

        def restart() -> None:
            if machine.life is life:
                self._kill(machine)

        self.world.later(self.chance.choice((500, 5_000, 30_000)), restart)

    # Life and death

    def _start(self, machine: Machine) -> None:
        self._note(f"--- {machine} starts ---")
        restored = self.world.restored is not None
        if restored and machine.disk.platter_witness is None:
            self._note(f"{machine} has an empty disk, and waits for the right store")
            self.world.clock.advance(self.chance.choice(self._pace.waits_ms))
            self.world.happen()
            return
        try:
            machine.start()
        except StoreFailure as failure:
            if restored and not any(words in str(failure) for words in REFUSALS):
                raise InvariantBroken(f"{machine} does not say that the store went back: {failure}") from failure
            self._cannot_register(machine, failure)
            return
        except DiskFull as failure:
            # A new directory needs space for the file that names its owner.
            self._cannot_start(machine, failure)
            return
        if restored:
            raise InvariantBroken(f"{machine} starts on a store that went back")
        self._answers[machine.broker_id].new_life()
        self.checker.look(machine)

    def _stop(self, machine: Machine) -> None:
        try:
            machine.stop()
        except (StorageFailure, StoreFailure) as failure:
            self._note(f"the stop fails: {failure}")
            self._kill(machine)

    def _die(self, machine: Machine) -> None:
        if self._power_next:
            self._lose_power(machine)
        else:
            self._kill(machine)

    def _kill(self, machine: Machine) -> None:
        self._note(f"{machine} is killed")
        machine.kill()

    def _lose_power(self, machine: Machine) -> None:
        self._note(f"{machine} loses power")
        machine.lose_power()
        for topic_id, index in self.checker.lost_power(machine):
            history = self.checker.histories[topic_id, index]
            self._note(f"{history.name} is left with {history.committed_end}")
            self._report.losses += 1
            topic, _, _ = history.name.rpartition("-")
            known = self.ledger.partition(topic_id, topic, index)
            known.durable_end = history.committed_end
            known.forget_volatile()

    # The end

    def _finish(self) -> None:
        self._faults_stop()
        world = self.world
        for machine in world.machines:
            machine.disk.die_at = None
            machine.slow_until_ms = 0
            for connection in machine.network.connections:
                connection.stuck_until_ms = 0
            if machine.life is not None and machine.disk.failing:
                self._kill(machine)
        for machine in self._down():
            self._start(machine)
        # Repairs that failed under faults are tried again after pauses of minutes.
        if self.weather.rots:
            self._go_on(self.rot.left, ROUNDS_TO_REPAIR)
        self._go_on(self._busy)
        self._note("--- all clients have come to their end ---")
        for client in self.clients:
            client.hang_up()
        self._go_on(self.checker.unconverged)
        self._check_promises()
        for machine in world.machines:
            self._stop(machine)

    def _go_on(self, unfinished: Callable[[], str], rounds: int = ROUNDS_TO_FINISH) -> None:
        reason = ""
        for _ in range(rounds):
            self.world.advance(SETTLE_MS)
            self._accept_losses()
            self._delete_damage()
            if not (reason := unfinished()):
                return
        raise InvariantBroken(f"after {rounds * SETTLE_MS} ms without faults: {reason}")

    def _accept_losses(self) -> None:
        """Lets any replica lead, as an operator, if all possible leaders have lost their records."""
        for (topic_id, index), history in self.checker.histories.items():
            topic, _, _ = history.name.rpartition("-")
            if not history.without_candidates:
                continue
            if not (history.lost or self._report.replaced_disks):
                raise InvariantBroken(f"nobody is left to lead, and no fault explains it: {history!r}")
            self._note(f"the operator accepts the loss of {history.name}")
            self._report.accepted_losses += 1
            history.accept_loss()
            known = self.ledger.partition(topic_id, topic, index)
            known.durable_end = 0
            known.promises.clear()
            known.forget_volatile()
            life = self.world.running[0].life
            assert life is not None
            life.loop.create_task(_accept_loss(life.metadata_writer, topic, index))

    def _delete_damage(self) -> None:
        """Deletes, as an operator, damaged records that the other replicas have deleted: no replica can repair them."""
        for flipped in self.rot.deleted_elsewhere() if self.weather.deletes else ():
            topic, _, index = self.checker.histories[flipped.place.key].name.rpartition("-")
            self._note(f"the operator {self._administrator.delete_records(topic, int(index), flipped.end_offset)}")

    def _busy(self) -> str:
        busy = [client.name for client in self.clients if client.finish()]
        return f"these never come to an end: {busy}" if busy else ""

    def _check_promises(self) -> None:
        """Checks that every acknowledged record is committed, at its offset, in each topic that still exists."""
        for (topic_id, index), known in self.ledger.partitions.items():
            history = self.checker.histories.get((topic_id, index))
            if history is None:
                continue
            for promise in known.promises.values():
                if promise.last_offset >= history.committed_end:
                    raise InvariantBroken(f"rule 3: {known.name} lost {promise}: {history!r}")

    def _outcome(self) -> ReplicationOutcome:
        report = self._report
        report.looks = self.checker.looks
        report.acks = sum(each.acks for each in self._answers.values())
        report.promises = self.ledger.promise_count
        report.committed = self.checker.committed_batches
        report.records_read = sum(client.records_read for client in self.clients if isinstance(client, Reader))
        report.sent_near = sum(client.sent_near for client in self.clients if isinstance(client, Reader))
        report.lives = self.world.lives
        report.evidence = self.checker.evidence
        report.rotten = len(self.rot.flipped)
        report.elections = sum(history.leadership.epoch for history in self.checker.histories.values())
        return report
