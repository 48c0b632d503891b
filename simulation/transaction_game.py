"""A game about transactions: writers that replace and fence each other, a broker that dies, and read_committed readers.

Promises: no transaction is torn, no aborted record is read, a late EndTxn changes nothing, a fenced writer writes
nothing, positions move exactly with their transactions, and once all writers are gone no transaction stays open.

With several nodes the coordinators, the partitions and the positions are on different ones, whose links may be cut.
"""

import random
from collections import Counter
from dataclasses import dataclass

from cordwood.history import events
from simulation.checkers.committed_reads import check_transactions
from simulation.checkers.rest import check_at_rest
from simulation.game import GameOfBrokers, Pace, play_out
from simulation.workloads.transactional_writers import (
    PARTITIONS,
    TOPIC,
    TransactionalWriter,
    Writers,
)
from simulation.world.broken import InvariantBroken
from simulation.world.world import World, replicated

SETTINGS = {
    "transaction.state.log.segment.bytes": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.cleaner.backoff.ms": "1000",
}
TRANSACTIONAL_IDS = ("left", "right")
ROUNDS_TO_FINISH = 200
LONGEST_TRANSACTION_MS = 120_000
CATCH_UP_MS = 10_000
"""Time for brokers to register again and to catch up with missed changes."""
PACE = Pace(waits=0.1, waits_ms=(1, 5, 50, 400, 2000), eagerness=0.8)
REPLICATED_PACE = Pace(waits=0.05, waits_ms=(1, 5, 20, 100), eagerness=0.9)
"""Shorter waits: a leader serves for two seconds after it renewed its lease."""
FAULT_RATES = (0.0, 0.005, 0.02)
REPLICATED_FAULT_RATES = (0.001, 0.003, 0.01)
"""Fewer faults: a new leader takes more steps than the start of a lone replica."""


@dataclass
class TransactionOutcome:
    """Counts of the events in a game."""

    committed: int = 0
    aborted: int = 0
    undecided: int = 0
    lives: int = 0
    refused_when_fenced: int = 0


def play(seed: int, steps: int = 1500, nodes: int = 1, replicas: int = 1) -> TransactionOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(TransactionGame(seed, nodes, replicas), steps)


class TransactionGame(GameOfBrokers[TransactionOutcome]):
    topic, partitions = TOPIC, PARTITIONS

    def __init__(self, seed: int, nodes: int = 1, replicas: int = 1) -> None:
        world = World(seed, SETTINGS | replicated(replicas), machines=nodes, clustered=replicas > 1)
        super().__init__(seed, random.Random(seed), world, PACE if replicas == 1 else REPLICATED_PACE, replicas)
        self.writers = Writers()
        self._fault_rate = self.chance.choice(FAULT_RATES if replicas == 1 else REPLICATED_FAULT_RATES)

    def _check(self) -> None:
        if self.leaders_may_be_away():
            return
        self.world.settle()
        check_transactions(self.stage, self.writers.attempts, at_the_end=False)

    def _outcome(self) -> TransactionOutcome:
        ends = Counter(type(event) for event in self.stage.history)
        return TransactionOutcome(
            ends[events.TransactionCommitted],
            ends[events.TransactionAborted],
            ends[events.TransactionBegun] - ends[events.TransactionCommitted] - ends[events.TransactionAborted],
            self.world.lives,
            self.writers.refused_when_fenced,
        )

    def _somebody_acts(self) -> None:
        writer = self._some_writer()
        if writer.unanswered and self.chance.random() < 0.02:
            writer.hang_up()
            self._note(f"{writer.name} hangs up")
        elif (what := writer.act()) is not None:
            self._note(f"{writer.name} {what}")

    def _some_writer(self) -> TransactionalWriter:
        """A writer at work; now and then a new writer, which replaces a writer that may not know it yet."""
        chance = self.chance
        working = [writer for writer in self.writers.writers if not writer.over]
        if len(working) < len(TRANSACTIONAL_IDS) or (len(working) < 4 and chance.random() < 0.04):
            name = f"writer-{len(self.writers.writers)}"
            busy = {writer.transactional_id for writer in working}
            free = [each for each in TRANSACTIONAL_IDS if each not in busy] or list(TRANSACTIONAL_IDS)
            return TransactionalWriter(self.stage, name, self.writers, chance.choice(free), chance.choice((1, 2, 2)))
        return chance.choice(working)

    def _finish(self) -> None:
        self._faults_stop()
        world = self.world
        for machine in world.machines:
            machine.disk.die_at = None
        world.start()
        if self.several:
            world.advance(CATCH_UP_MS)
        for _ in range(ROUNDS_TO_FINISH):
            world.settle()
            if not [writer.name for writer in self.writers.writers if writer.finish()]:
                break
            world.advance(self.chance.choice((0, 50, 600)))
        else:
            raise InvariantBroken("some writers never come to an end")
        for writer in self.writers.writers:
            writer.hang_up()
        # Transactions whose writers are gone end by their timeout.
        world.advance(LONGEST_TRANSACTION_MS)
        check_transactions(self.stage, self.writers.attempts, at_the_end=True)
        check_at_rest(world)
        self._stop_and_start()
        check_transactions(self.stage, self.writers.attempts, at_the_end=True)
