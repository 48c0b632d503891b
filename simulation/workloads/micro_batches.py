"""Micro-batches of a query, as Spark runs them: a driver, attempts at tasks, and a checkpoint that outlives both.

A driver plans the batch after the last batch in the checkpoint, runs attempts at its parts until each part has a
finished attempt, decides, and notes the batch as done. A driver may be replaced at any moment without knowing it; its
tasks go on all the same. Every attempt writes records of its own, so a batch that is computed again has another
content.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cordwood.model.errors import ErrorCode
from cordwood.model.families import coordinator_key
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC, Insistent
from simulation.world.broken import InvariantBroken
from simulation.world.stage import TRANSACTION, Stage

FAMILY = "query"
PARTS = 2
PRODUCE_VERSION = 12


@dataclass
class Decision:
    """A commit as a driver asked for it, perhaps more than once."""

    batch_id: int
    values: dict[str, Any]
    winning: list[bytes]
    """The records that the winners have written."""
    could_be_first: bool
    """False: a winner was told that the batch is decided, so another decision counts."""
    committed: bool = False
    """True if the answer says that this decision counts."""


@dataclass
class Query:
    """The checkpoint, which outlives drivers, and counts over all drivers."""

    finished_batch_id: int = -1
    """The last batch in the checkpoint."""
    decisions: list[Decision] = field(default_factory=list)
    drivers: list["Driver"] = field(default_factory=list)
    attempts: list["Attempt"] = field(default_factory=list)
    told_to_write_nothing: int = 0
    already_decided: int = 0
    winners_refused: int = 0
    writes_refused: int = 0


class _Asking(Insistent):
    def _ask(
        self,
        key: ApiKey,
        version: int,
        values: dict[str, Any],
        error_in: Callable[[Any], int],
        done: Callable[[ErrorCode, Any], None],
        partition: int | None = None,
    ) -> None:
        """Asks the leader of a partition, or the coordinator of the family."""

        def again() -> str:
            self._ask(key, version, values, error_in, done, partition)
            return f"asks {key.name} again"

        if partition is None:
            broker_id = self.routes.coordinator_of(TRANSACTION, coordinator_key(FAMILY))
        else:
            broker_id = self.routes.leader(TOPIC, partition)
        self._request(broker_id, key, version, values, lambda answer: [error_in(answer)], done, again)


class Attempt(_Asking):
    """One attempt at a part of a batch. The attempt is done when all its records are acknowledged."""

    def __init__(self, stage: Stage, name: str, query: Query, batch_id: int) -> None:
        super().__init__(stage, name)
        self.batch_id = batch_id
        self.written: list[bytes] = []
        self.done = False
        self.slot: dict[str, Any] | None = None
        """None if the batch was decided already: there is nothing to write."""
        self.query = query
        self._joined = False
        self._left = self.chance.randint(0, 4)
        self._timeout_ms = self.chance.choice((1_500, 60_000, 60_000))
        self._sequences: dict[int, int] = {}
        self._told = stage.recorder.producer(name)
        self._told.begin(name)
        query.attempts.append(self)

    def _next(self) -> str | None:
        if not self._joined:
            return self._join()
        dice = self.chance.random()
        if dice < 0.15:
            return self._renew()
        if dice < 0.18:
            return self._take_back()
        if self._left:
            self._left -= 1
            return self._write(self.chance.randrange(PARTITIONS))
        self.done = self.over = True
        return "is done"

    def _join(self) -> str:
        values = {"family": FAMILY, "batch_id": self.batch_id, "timeout_ms": self._timeout_ms}

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot join: {error.name} {answer.error_message}")
            self._joined = True
            if answer.decided:
                self.query.told_to_write_nothing += 1
                self.done = self.over = True
                return
            self.slot = {
                "transactional_id": answer.transactional_id,
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }

        self._ask(ApiKey.FAMILY_JOIN, 0, values, lambda answer: answer.error_code, done)
        return f"joins for batch {self.batch_id}"

    def _renew(self) -> str:
        values = {"family": FAMILY, "batch_id": self.batch_id}

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot renew: {error.name}")

        self._ask(ApiKey.FAMILY_RENEW, 0, values, lambda answer: answer.error_code, done)
        return "renews"

    def _take_back(self) -> str:
        """Fails, and aborts its own slot, while other attempts go on."""
        values = {"family": FAMILY, "batch_id": self.batch_id, "commit": False, "winners": [self.slot], "forget": False}

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot take back: {error.name} {answer.error_message}")
            self._told.aborted(self.name)
            self.over = True

        self._ask(ApiKey.FAMILY_DECIDE, 0, values, lambda answer: answer.error_code, done)
        return "takes back what is its own"

    def _write(self, partition: int) -> str:
        assert self.slot is not None
        first = self._sequences.get(partition, 0)
        texts = [
            f"{self.batch_id}:{self.name}:{partition}:{first + place}".encode()
            for place in range(self.chance.randint(1, 3))
        ]
        batch = build_batch(
            [(self.stage.world.clock.wall_ms, None, text, ()) for text in texts],
            producer_id=self.slot["producer_id"],
            producer_epoch=self.slot["producer_epoch"],
            base_sequence=first,
            transactional=True,
        )
        self._sequences[partition] = first + len(texts)
        self.written += texts
        for text in texts:
            self._told.send(TOPIC, text, transaction=self.name)
        values = {
            "transactional_id": self.slot["transactional_id"],
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": partition, "records": bytes(batch)}]}],
        }

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                self.query.writes_refused += 1
                self.over = True
                return
            for offset, text in enumerate(texts, answer.responses[0].partition_responses[0].base_offset):
                self._told.acked(TOPIC, text, partition, offset)

        self._ask(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            values,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
            done,
            partition,
        )
        return f"writes {texts[0].decode()}"


class Driver(_Asking):
    def __init__(self, stage: Stage, name: str, query: Query) -> None:
        super().__init__(stage, name)
        self.query = query
        self.batch_id = query.finished_batch_id + 1
        self._parts: list[list[Attempt]] = [[] for _ in range(PARTS)]
        self._failed = False
        query.drivers.append(self)

    def _next(self) -> str | None:
        if self._failed:
            return self._abort()
        if self.query.finished_batch_id >= self.batch_id:
            # Another driver has finished the batch: a real driver finds out when it writes to the checkpoint.
            self.over = True
            return "was replaced"
        for number, attempts in enumerate(self._parts):
            if any(attempt.done for attempt in attempts):
                continue
            running = [attempt for attempt in attempts if not attempt.over]
            if not running or (len(running) < 2 and self.chance.random() < 0.1):
                attempts.append(
                    Attempt(
                        self.stage, f"{self.name}.{self.batch_id}.{number}.{len(attempts)}", self.query, self.batch_id
                    )
                )
                return f"begins {attempts[-1].name}"
        if all(any(attempt.done for attempt in attempts) for attempts in self._parts):
            return self._commit()
        return None

    def _commit(self) -> str:
        winners = [next(attempt for attempt in attempts if attempt.done) for attempts in self._parts]
        values = {
            "family": FAMILY,
            "batch_id": self.batch_id,
            "commit": True,
            "winners": [attempt.slot for attempt in winners if attempt.slot is not None],
            "forget": False,
            "timeout_ms": self.chance.choice((100, 5_000, 30_000)),
        }
        texts = [text for attempt in winners for text in attempt.written]
        could_be_first = all(attempt.slot is not None for attempt in winners)
        decision = Decision(self.batch_id, values, texts, could_be_first)
        self.query.decisions.append(decision)

        def done(error: ErrorCode, answer: Any) -> None:
            if error is ErrorCode.PRODUCER_FENCED:
                self.query.winners_refused += 1
                self._failed = True
                return
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot decide: {error.name} {answer.error_message}")
            if answer.already_decided:
                self.query.already_decided += 1
            decision.committed = decision.committed or not answer.already_decided
            self.query.finished_batch_id = max(self.query.finished_batch_id, self.batch_id)
            self.batch_id = self.query.finished_batch_id + 1
            self._parts = [[] for _ in range(PARTS)]

        self._ask(ApiKey.FAMILY_DECIDE, 0, values, lambda answer: answer.error_code, done)
        return f"commits batch {self.batch_id}"

    def _abort(self) -> str:
        values = {"family": FAMILY, "batch_id": self.batch_id, "commit": False, "winners": [], "forget": False}

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot abort: {error.name} {answer.error_message}")
            self.over = True

        self._ask(ApiKey.FAMILY_DECIDE, 0, values, lambda answer: answer.error_code, done)
        return f"aborts batch {self.batch_id}"


def repeat_a_decision(stage: Stage, query: Query) -> str:
    """Delivers an old decision once more, on a connection whose answer is ignored."""
    decision = stage.chance.choice(query.decisions)
    connection = stage.world.connect(stage.chance.choice(stage.world.machines).broker_id if stage.several else None)
    connection.request(ApiKey.FAMILY_DECIDE, 0, decision.values)
    connection.close()
    return f"a commit of batch {decision.batch_id} is repeated"
