"""The coordinator of a transaction dies after each step of it: one transaction for each step.

A step is the delivery of a request or an answer, or a piece of work of a thread, a sync for example, on any of three
brokers. So the steps inside EndTxn are among them: the decision is written, synced, replicated; each marker is sent,
written, replicated; the completion is written. The client goes on with the next coordinator.
"""

import os
import random
from collections.abc import Callable
from functools import partial

import pytest
from simulation.checkers.committed_reads import check_transactions
from simulation.checkers.replicas import ReplicasChecker
from simulation.game import FENCES_LIFTED_MS
from simulation.transaction_game import LONGEST_TRANSACTION_MS, SETTINGS
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC, TransactionalWriter, Writers
from simulation.world.broken import InvariantBroken
from simulation.world.ledger import Ledger
from simulation.world.machine import Machine
from simulation.world.stage import Stage
from simulation.world.world import World, replicated

from cordwood.history.events import TransactionAborted, TransactionCommitted
from cordwood.model.coordination import transaction_partition
from cordwood.model.identifiers import TRANSACTION_STATE_TOPIC
from cordwood.node.coordinators.transaction_completion import Completions
from cordwood.wire.apis import ApiKey

BROKERS = 3
NAME = "writer"
WAIT_MS = 50
"""The longest time that passes at once while nothing else happens."""
MOST_STEPS = 5_000
APART = max(1, 320 // int(os.environ.get("CORDWOOD_SIM_SEEDS", "8")))
"""The number of steps between two deaths: with 320 seeds and more, coordinators die after every step."""

DECIDED = 221
"""A step at about which the end of a transaction is decided."""

Death = Callable[["Deaths", Machine], None]


class OneTransaction(TransactionalWriter):
    """A program that writes to all partitions in one transaction, moves a position with it, and ends it."""

    def __init__(self, stage: Stage, name: str, writers: Writers, version: int, *, commit: bool) -> None:
        super().__init__(stage, name, writers, NAME, version)
        self.timeout_ms = LONGEST_TRANSACTION_MS
        self._commits = commit
        self._unwritten = list(range(PARTITIONS))
        self._asked_to_end = False

    @property
    def ended(self) -> bool:
        return self.over or (self._asked_to_end and self._attempt is None)

    @property
    def tries_again(self) -> bool:
        """Whether the next request is one that failed before: a client waits a while before it."""
        return self._again is not None

    def _next(self) -> str | None:
        if self.ended:
            return None
        if self._producer_id < 0:
            return self._init()
        if self._attempt is None:
            self._attempt = self._new_attempt()
        if self._unwritten:
            partition = self._unwritten[0]
            if self.bumps or partition in self._added:
                self._unwritten.pop(0)
            return self._write(partition)
        if not self._attempt.moved_position:
            return self._move_position()
        self._asked_to_end = True
        return self._end(commit=self._commits)


class Deaths:
    """Transactions one after the other, whose coordinators die after ever later steps."""

    def __init__(self, version: int, death: Death, *, commit: bool) -> None:
        self._version = version
        self._death = death
        self._commit = commit
        self.world = World(version, SETTINGS | replicated(BROKERS), machines=BROKERS, clustered=True)
        self.replicas = ReplicasChecker(self.world)
        for machine in self.world.machines:
            machine.on_step = partial(self.replicas.look, machine)
        self.stage = Stage(self.world, random.Random(version), Ledger())
        self.stage.astray = 0.0
        self.writers = Writers()
        self.world.start().advance(FENCES_LIFTED_MS)
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": BROKERS}
        created = self.world.ask_at(1, ApiKey.CREATE_TOPICS, 4, topics=[topic], timeout_ms=1000)
        assert created.topics[0].error_code == 0
        assert not self.transaction(0), "the first transaction creates the topics of coordinators"

    def play(self, first: int = 1) -> int:
        """Lets coordinators die after the first of these steps and every later one, `APART` apart. Returns how many
        died."""
        deaths = 0
        while self.transaction(first + deaths * APART):
            deaths += 1
        self.world.advance(FENCES_LIFTED_MS)
        check_transactions(self.stage, self.writers.attempts, at_the_end=True)
        ended = TransactionCommitted if self._commit else TransactionAborted
        assert sum(isinstance(event, ended) for event in self.stage.history) == len(self.writers.attempts)
        return deaths

    def transaction(self, dies_after: int) -> bool:
        """One transaction. Returns whether it was under way when its coordinator died."""
        writer = OneTransaction(self.stage, f"{NAME}-{dies_after}", self.writers, self._version, commit=self._commit)
        dead = None
        for number in range(1, MOST_STEPS):
            if not writer.tries_again:
                writer.act()
            if not self._step():
                if writer.ended:
                    break
                writer.act()
            if number == dies_after:
                dead = self._coordinator()
                self._death(self, dead)
        else:
            raise InvariantBroken(f"the transaction whose coordinator dies after {dies_after} steps does not end")
        assert not writer.over, f"the writer gave up after its coordinator had died after {dies_after} steps"
        if dead is not None:
            dead.start()
            self.world.advance(FENCES_LIFTED_MS)
            assert not self.replicas.unconverged()
        return dead is not None

    def _step(self) -> bool:
        """Any step that can happen now; time passes if there is none, and False is returned."""
        if steps := self.world.steps():
            self.world.do(self.stage.chance.choice(steps)[1])
            return True
        self.world.clock.advance(min(WAIT_MS, self.world._next_deadline_in_ms() or WAIT_MS))
        return False

    def _coordinator(self) -> Machine:
        image = self.stage.image
        if TRANSACTION_STATE_TOPIC not in image.topics:
            return self.world.machines[0]
        partitions = image.topics[TRANSACTION_STATE_TOPIC].partitions
        return self.world.machine_of(partitions[transaction_partition(NAME, len(partitions))].leader)


def kill(_: Deaths, machine: Machine) -> None:
    machine.kill()


def in_order(_: Deaths, machine: Machine) -> None:
    """As in a rolling restart: the broker answers what it can, and flushes."""
    machine.stop()


def power_cut(deaths: Deaths, machine: Machine) -> None:
    machine.lose_power()
    deaths.replicas.lost_power(machine)


@pytest.mark.parametrize(
    ("version", "commit", "death"),
    [
        (1, True, kill),
        (2, True, power_cut),
        (1, False, power_cut),
        (2, False, kill),
        (1, True, in_order),
    ],
)
def test_a_transaction_is_whole_and_ended_once_whichever_step_its_coordinator_dies_after(
    version: int, commit: bool, death: Death
) -> None:
    deaths = Deaths(version, death, commit=commit)
    try:
        assert deaths.play() > 3
    finally:
        deaths.world.kill()


def test_a_coordinator_that_leaves_decisions_of_its_predecessor_alone_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Completions, "complete_all", lambda completions, shard, transactional_ids: None)
    with pytest.raises(InvariantBroken, match="does not end"):
        Deaths(1, kill, commit=True).play(first=DECIDED)
