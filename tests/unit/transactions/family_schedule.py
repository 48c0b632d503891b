"""Random schedules for the families' state machine, checked step by step against its dumb twin.

Around the machine stand a log of which a crash may cut off what was not yet answered, and partitions that behave as
real ones do towards transactions: who is inside one may write, anybody else is vouched for by the coordinator first,
and a marker ends and fences. Clients are of every kind: tasks, zombies of them, and drivers that know each other's work
or do not.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.moments import at
from tests.unit.transactions.family_table import MAX_BYTES, NAME, Table, winner
from tests.unit.transactions.family_twin import Member, Twin

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.transactions import families_deciding
from cordwood.transactions.adding import add_partitions
from cordwood.transactions.ending import complete
from cordwood.transactions.families_deciding import Asked, Decision
from cordwood.transactions.families_joining import join
from cordwood.transactions.log_records import Record, record_of
from cordwood.transactions.transaction import EPOCH_BUMPED, LAST_CLIENT_EPOCH, Transaction

PARTITIONS = 3
TOPIC = "events"
EXPIRATION_MS = 20_000


class Crash(Exception):
    """The broker dies in the middle of a step."""


class Broken(AssertionError):
    """A promise was not kept."""


class Log:
    """A partition with transactions of many producers."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[str]] = {}
        self.committed: list[str] = []

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        return producer_id in self.open and self.epochs[producer_id] == epoch

    def append(self, producer_id: int, epoch: int, text: str) -> bool:
        if epoch < self.epochs.get(producer_id, -1):
            return False
        if epoch > self.epochs.get(producer_id, -1) and producer_id in self.open:
            raise Broken(f"producer {producer_id} writes in epoch {epoch} while its last transaction is open")
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(text)
        return True

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        if producer_id in self.open and epoch <= self.epochs[producer_id]:
            return
        texts = self.open.pop(producer_id, [])
        if commit:
            self.committed += texts
        self.epochs[producer_id] = max(epoch, self.epochs.get(producer_id, -1))


@dataclass
class Task:
    slot: Transaction
    member: Member
    answered: bool = True
    """False: the answer to its join got lost, so nobody knows of it."""
    finished: bool = False
    """It has reported its success and writes no more. Only such a task can be a winner."""


@dataclass
class Played:
    """What a schedule had in it."""

    committed: int = 0
    refused: int = 0
    already_decided: int = 0
    aborted: int = 0
    timed_out: int = 0
    crashes: int = 0
    cut_off: int = 0
    losers_left: int = 0
    writes_refused: int = 0


class Schedule:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = Table()
        self.twin = Twin()
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.tasks: list[Task] = []
        self.played = Played()
        self._texts = 0
        self._crash_rate = self.chance.choice((0.0, 0.02, 0.1))

    def play(self, steps: int = 400) -> Played:
        moves: list[Callable[[], None]] = [
            *[self._join] * 6,
            *[self._write] * 10,
            *[self._finish] * 4,
            *[self._renew] * 2,
            *[self._decide] * 3,
            *[self._mark] * 6,
            *[self._look] * 2,
            self._wait,
            self._expire,
            self.table.compact,
        ]
        for _ in range(steps):
            try:
                self.chance.choice(moves)()
            except Crash:
                self.played.crashes += 1
                self.table.restart()
                self.twin.restart()
            self._check()
        self._come_to_rest()
        return self.played

    # Steps

    def _append(self, appends: list[list[Record]]) -> None:
        """A crash comes before, between or after the appends; who asked hears nothing then."""
        for append in appends:
            if self.chance.random() < self._crash_rate:
                raise Crash
            self.table.append(append)

    def _maybe_unanswered(self) -> None:
        if self.chance.random() < self._crash_rate:
            raise Crash

    def _batch_id(self) -> int:
        return max(0, self.twin.last_batch_id + self.chance.choice((-1, 0, 1, 1, 1, 1, 1, 2)))

    def _join(self) -> None:
        table = self.table
        batch_id, timeout_ms = self._batch_id(), self.chance.choice((300, 5_000))
        joined = join(table.family, batch_id, timeout_ms, table.new_producer_id, table.now_ms)
        if joined.slot is not None:
            self._append(joined.appends)
            table.leases.joined(NAME, batch_id, table.now_ms)
        member = self.twin.join(batch_id, timeout_ms, table.now_ms)
        if joined.decided != (member is None):
            raise Broken(f"batch {batch_id}: decided is {joined.decided} after {self.twin.last_batch_id}")
        if member is not None and joined.slot is not None:
            slot = joined.slot
            if self.chance.random() < 0.02 and slot.producer_epoch < 10:
                slot = replace(slot, producer_epoch=LAST_CLIENT_EPOCH - self.chance.randrange(3))
                table.append([record_of(slot)])
            task = Task(slot, member, answered=False)
            self.tasks.append(task)
            self._maybe_unanswered()
            task.answered = True

    def _write(self) -> None:
        running = self._running()
        if not running:
            return
        task = self.chance.choice(running)
        index = self.chance.randrange(PARTITIONS)
        self._texts += 1
        text = f"{task.member.batch_id}:{self._texts}"
        slot, log = task.slot, self.logs[index]
        if not log.in_transaction(slot.producer_id, slot.producer_epoch):
            step = add_partitions(
                self.table.machine.get(slot.transactional_id),
                slot.producer_id,
                slot.producer_epoch,
                [TopicPartition(TOPIC, index)],
                client_version=EPOCH_BUMPED,
                wall_ms=self.table.now_ms,
                max_partitions=1000,
            )
            if step.error is not ErrorCode.NONE:
                if task.member.alive:
                    raise Broken(f"{slot.transactional_id}, epoch {slot.producer_epoch}: {step.error.name}")
                self.played.writes_refused += 1
                return
            if step.changed is not None:
                self._append([[record_of(step.changed)]])
                self._maybe_unanswered()
        if not log.append(slot.producer_id, slot.producer_epoch, text):
            if task.member.alive:
                raise Broken(f"{slot.transactional_id}, epoch {slot.producer_epoch}: fenced in partition {index}")
            self.played.writes_refused += 1
            return
        task.member.written.append(text)

    def _running(self) -> list[Task]:
        """Tasks that may still write, among them many that are over and do not know it."""
        return [task for task in self.tasks[-40:] if task.answered and not task.finished]

    def _finish(self) -> None:
        running = self._running()
        if running:
            self.chance.choice(running).finished = True

    def _renew(self) -> None:
        batch_id = self._batch_id()
        if not self.table.family.has_decided(batch_id):
            self.table.leases.renew(NAME, batch_id, self.table.now_ms)
        self.twin.renew(batch_id, self.table.now_ms)

    def _decide(self) -> None:
        batch_id = self._batch_id()
        commit = self.chance.random() < 0.8
        winners = self._winners(batch_id)
        asked = Asked(batch_id, commit, [winner(task.slot) for task in winners])
        decision = self._decision(asked, self.chance.choice((200, 300, MAX_BYTES)))
        if decision.error is ErrorCode.MESSAGE_TOO_LARGE:
            decision = self._decision(asked, MAX_BYTES)
        members = [task.member for task in winners]
        try:
            self._append(list(decision.appends))
        except Crash:
            self.played.cut_off += 1
            if not commit or decision.already_decided:
                self._follow_aborts()
            elif self.table.family.has_decided(batch_id):
                self.played.losers_left += 1
                self.twin.commit(batch_id, members)
            raise
        expected = self.twin.commit(batch_id, members) if commit else self.twin.abort(batch_id, members)
        self._compare(decision, expected, batch_id)
        self._maybe_unanswered()

    def _decision(self, asked: Asked, max_bytes: int) -> Decision:
        return families_deciding.decide(self.table.family, asked, max_bytes=max_bytes, wall_ms=self.table.now_ms)

    def _winners(self, batch_id: int) -> list[Task]:
        """Mostly all tasks of the batch that are done and alive; sometimes not all, and sometimes wrong ones."""
        chance = self.chance
        finished = [task for task in self.tasks if task.finished]
        winners = [task for task in finished if task.member.batch_id == batch_id]
        if chance.random() < 0.8:
            winners = [task for task in winners if task.member.alive]
        if chance.random() < 0.3:
            winners = chance.sample(winners, chance.randint(0, len(winners)))
        if finished and chance.random() < 0.1:
            winners.append(chance.choice(finished))
        return winners

    def _follow_aborts(self) -> None:
        """Part of an abort got through: what did is over, and nobody minds."""
        for task in self.tasks:
            found = self.table.machine.get(task.slot.transactional_id)
            mine = found is not None and (found.producer_id, found.producer_epoch) == (
                task.slot.producer_id,
                task.slot.producer_epoch,
            )
            task.member.alive = task.member.alive and mine

    def _compare(self, decision: Decision, expected: str, batch_id: int) -> None:
        if decision.error is ErrorCode.PRODUCER_FENCED:
            found = "refused"
        elif decision.error is not ErrorCode.NONE:
            raise Broken(f"batch {batch_id}: {decision.error.name}")
        elif decision.already_decided:
            found = "already decided"
        else:
            found = "committed" if decision.last_batch_id == batch_id else "aborted"
        if found != expected:
            raise Broken(f"batch {batch_id} is {found}, and should be {expected}")
        counter = found.replace(" ", "_")
        setattr(self.played, counter, getattr(self.played, counter) + 1)

    def _mark(self) -> None:
        """A marker in one partition, or the completion of a slot whose markers are all there."""
        prepared = self.table.machine.prepared()
        if prepared:
            self._mark_some(self.chance.choice(prepared), self.chance.randint(0, PARTITIONS))

    def _mark_some(self, slot: Transaction, most: int) -> None:
        partitions = sorted(slot.partitions)
        for partition in partitions[:most]:
            self.logs[partition.partition].mark(slot.producer_id, slot.producer_epoch, slot.commits)
        if most >= len(partitions):
            self._append([[record_of(complete(slot, self.table.now_ms))]])

    def _look(self) -> None:
        table = self.table
        ended = families_deciding.time_out(table.family, table.leases, at(table.now_ms))
        table.append([record_of(slot) for slot in ended])
        joined = {(NAME, slot.batch_id) for slot in table.family.joined(1 << 62)}
        table.leases.forget(batch for batch in table.leases.batches() if batch not in joined)
        self.played.timed_out += len(ended)
        self.twin.look(table.now_ms)

    def _wait(self) -> None:
        self.table.now_ms += self.chance.choice((1, 100, 400, 6_000, 30_000))

    def _expire(self) -> None:
        self._append([self.table.machine.expired(self.table.now_ms, EXPIRATION_MS)])

    # Promises

    def _check(self) -> None:
        visible = [text for log in self.logs for text in log.committed]
        if len(visible) != len(set(visible)):
            raise Broken("something is visible twice")
        strange = set(visible) - self.twin.visible()
        if strange:
            raise Broken(f"readers see what was not committed: {sorted(strange)}")
        if not self.table.machine.prepared() and set(visible) != self.twin.visible():
            raise Broken(f"all markers are written, and readers miss {sorted(self.twin.visible() - set(visible))}")
        if self.table.family.last_batch_id != self.twin.last_batch_id:
            raise Broken(f"batch {self.table.family.last_batch_id} was decided last, not {self.twin.last_batch_id}")
        joined = len(self.table.family.joined(1 << 62))
        alive = sum(member.alive for member in self.twin.members)
        if joined < alive:
            raise Broken(f"{joined} slots are joined by {alive} members")

    def _come_to_rest(self) -> None:
        """Nobody renews any more: everything ends by itself."""
        for _ in range(2):
            self._look()
            self.table.now_ms += 10_000
        self._crash_rate = 0.0
        for slot in self.table.machine.prepared():
            self._mark_some(slot, PARTITIONS)
        self._check()
        if self.table.family.joined(1 << 62):
            raise Broken("slots stay joined for ever")
        still_open = [index for index, log in enumerate(self.logs) if log.open]
        if still_open:
            raise Broken(f"something stays open for ever in partitions {still_open}")
        for batch_id in range(self.twin.last_batch_id + 1):
            self.table.restart()
            if not self.table.asks_to_join(batch_id).decided:
                raise Broken(f"batch {batch_id} could be written again")
