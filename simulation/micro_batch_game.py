"""A game about families: drivers that replace each other, attempts that outlive their drivers, and a broker that dies.

Promises: readers see of every batch exactly the records that one decision named, whole and once, and all of them when
the commit is answered; a decision holds over restarts, expiry and compaction; and once all clients are gone no
transaction stays open.

With several nodes the family's coordinator and the partitions are on different ones, whose links may be cut. With
replicas the coordinator moves: between a join, a decision, its markers and the answer.
"""

import random
from dataclasses import dataclass

from simulation.checkers.micro_batches import check_answer, check_micro_batches
from simulation.checkers.rest import check_at_rest
from simulation.game import GameOfBrokers, Pace, play_out
from simulation.transaction_game import (
    CATCH_UP_MS,
    FAULT_RATES,
    LONGEST_TRANSACTION_MS,
    REPLICATED_FAULT_RATES,
    REPLICATED_PACE,
    ROUNDS_TO_FINISH,
    SETTINGS,
)
from simulation.workloads.micro_batches import Attempt, Driver, Query, repeat_a_decision
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC
from simulation.world.broken import InvariantBroken
from simulation.world.world import World, replicated

PACE = Pace(waits=0.08, waits_ms=(1, 5, 50, 400, 2000), eagerness=0.75)
FORGETFUL = {
    "transactional.id.expiration.ms": "3000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
"""Settings with which slots expire while the query runs."""


@dataclass
class MicroBatchOutcome:
    """Counts of the events in a game."""

    finished: int = 0
    drivers: int = 0
    attempts: int = 0
    lives: int = 0
    told_to_write_nothing: int = 0
    already_decided: int = 0
    winners_refused: int = 0
    writes_refused: int = 0


def play(seed: int, steps: int = 3000, nodes: int = 1, replicas: int = 1) -> MicroBatchOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(MicroBatchGame(seed, nodes, replicas), steps)


class MicroBatchGame(GameOfBrokers[MicroBatchOutcome]):
    topic, partitions = TOPIC, PARTITIONS

    def __init__(self, seed: int, nodes: int = 1, replicas: int = 1) -> None:
        chance = random.Random(seed)
        settings = {**SETTINGS, **chance.choice(({}, FORGETFUL)), **replicated(replicas)}
        world = World(seed, settings, machines=nodes, clustered=replicas > 1)
        super().__init__(seed, chance, world, PACE if replicas == 1 else REPLICATED_PACE, replicas)
        self.query = Query()
        self._fault_rate = self.chance.choice(FAULT_RATES if replicas == 1 else REPLICATED_FAULT_RATES)
        for machine in self.world.machines:
            machine.network.on_sent = lambda exchange: check_answer(self.world, self.query, exchange)

    def _check(self) -> None:
        if self.leaders_may_be_away():
            return
        self.world.settle()
        check_micro_batches(self.stage, self.query, at_the_end=False)

    def _outcome(self) -> MicroBatchOutcome:
        query = self.query
        return MicroBatchOutcome(
            query.finished_batch_id + 1,
            len(query.drivers),
            len(query.attempts),
            self.world.lives,
            query.told_to_write_nothing,
            query.already_decided,
            query.winners_refused,
            query.writes_refused,
        )

    def _somebody_acts(self) -> None:
        chance = self.chance
        if self.query.decisions and chance.random() < 0.02:
            self._note(repeat_a_decision(self.stage, self.query))
            return
        client = self._some_client()
        if client.unanswered and chance.random() < 0.02:
            client.hang_up()
            self._note(f"{client.name} hangs up")
        elif (what := client.act()) is not None:
            self._note(f"{client.name} {what}")

    def _some_client(self) -> Driver | Attempt:
        """A driver or an attempt; now and then a new driver, which replaces a driver that may not know it yet."""
        chance, query = self.chance, self.query
        drivers = [driver for driver in query.drivers if not driver.over]
        if not drivers or (len(drivers) < 3 and chance.random() < 0.02):
            return Driver(self.stage, f"driver-{len(query.drivers)}", query)
        attempts = [attempt for attempt in query.attempts if not attempt.over]
        if attempts and chance.random() < 0.6:
            return chance.choice(attempts)
        return chance.choice(drivers)

    def _finish(self) -> None:
        self._faults_stop()
        world, query = self.world, self.query
        for machine in world.machines:
            machine.disk.die_at = None
        world.start()
        if self.several:
            world.advance(CATCH_UP_MS)
        if self.chance.random() < 0.5:
            # Else no client comes back, and the broker has to end the transactions alone.
            self._run_one_more_batch()
        for client in (*query.drivers, *query.attempts):
            client.hang_up()
        # Transactions that were left behind end by their timeout.
        world.advance(LONGEST_TRANSACTION_MS)
        check_micro_batches(self.stage, query, at_the_end=True)
        check_at_rest(world)
        self._stop_and_start()
        check_micro_batches(self.stage, query, at_the_end=True)

    def _run_one_more_batch(self) -> None:
        """Lets a new driver get a batch through, without faults and without other clients."""
        world, query = self.world, self.query
        before = len(query.attempts)
        wanted = query.finished_batch_id + 1
        driver = Driver(self.stage, f"driver-{len(query.drivers)}", query)
        for _ in range(ROUNDS_TO_FINISH):
            world.settle()
            if query.finished_batch_id >= wanted:
                return
            if driver.over:
                driver = Driver(self.stage, f"driver-{len(query.drivers)}", query)
            for client in (driver, *query.attempts[before:]):
                if (what := client.act()) is not None:
                    self._note(f"{client.name} {what}")
            world.advance(self.chance.choice((0, 50, 300)))
        raise InvariantBroken(f"batch {wanted} never comes to an end")
