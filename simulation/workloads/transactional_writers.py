"""Writers that write in transactions, in both versions of the protocol, and go on when other writers replace them.

Each transaction writes records that name the transaction, and moves a position to its own number. A writer has one
request under way, sends it again without an answer, and gives up when it is fenced. A writer may also repeat an EndTxn
much later, when the broker must ignore it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.stage import GROUP, TRANSACTION, Client, Stage

TOPIC = "events"
PARTITIONS = 3

AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass
class Attempt:
    """One transaction, as its writer knows it."""

    number: int
    transactional_id: str
    written: int = 0
    """The number of records that are in the log, or may be."""
    unanswered: set[bytes] = field(default_factory=set)
    moved_position: bool = False
    commits: bool = False
    """True if the writer asked for the commit."""

    @property
    def name(self) -> str:
        return str(self.number)


class Writers:
    """All writers of a game with their epochs, and all their transactions."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.writers: list[TransactionalWriter] = []
        self.refused_when_fenced = 0

    def began(self, writer: "TransactionalWriter") -> None:
        """Notes a new epoch: among all writers of an id with an epoch, only the highest is not fenced."""
        same = [each for each in self.writers if each.transactional_id == writer.transactional_id and each.epoch >= 0]
        highest = max(each.epoch for each in same)
        for each in same:
            each.fenced = each.epoch < highest


class Insistent(Client):
    """A program with one request under way. A request without an answer, or with a retriable error, is sent again."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self.over = False
        self._busy = False
        self._again: Callable[[], str] | None = None

    def act(self) -> str | None:
        if self.over or self._busy:
            return None
        if self._again is not None:
            again, self._again = self._again, None
            return again()
        return self._next()

    def _next(self) -> str | None:
        raise NotImplementedError

    def _request(
        self,
        broker_id: int,
        key: ApiKey,
        version: int,
        values: dict[str, Any],
        errors_in: Callable[[Any], list[int]],
        done: Callable[[ErrorCode, Any], None],
        again: Callable[[], str],
        heard: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:
        """Sends a request; `done` gets the first error, or NONE, after `heard`. After no answer or a retriable error,
        `again` is next."""
        self._busy = True

        def ended(exchange: Exchange) -> None:
            self._busy = False
            if self.routes.failed(exchange):
                self._again = again
                return
            error = next((ErrorCode(code) for code in errors_in(exchange.answer) if code), ErrorCode.NONE)
            heard(error)
            if error not in AGAIN:
                done(error, exchange.answer)
                return
            self._again = again
            if error is ErrorCode.NOT_COORDINATOR:
                self.routes.not_at(broker_id)
            elif error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.routes.learn()

        self.connection_to(broker_id).request(key, version, values, ended)


class TransactionalWriter(Insistent):
    """One program with a transactional id; the next program with the same id fences it."""

    def __init__(self, stage: Stage, name: str, writers: Writers, transactional_id: str, version: int) -> None:
        super().__init__(stage, name)
        self.transactional_id = transactional_id
        self.bumps = version >= 2
        self.fenced = False
        self.timeout_ms = self.chance.choice((1500, 60_000, 60_000))
        self._writers = writers
        self._told = stage.recorder.producer(name)
        self._producer_id = self.epoch = -1
        self._sequences: dict[int, int] = {}
        self._added: set[int] = set()
        self._offsets_added = False
        self._attempt: Attempt | None = None
        self._late_ends: list[tuple[int, dict[str, Any]]] = []
        writers.writers.append(self)

    def _next(self) -> str | None:
        if self._producer_id < 0:
            return self._init()
        if self._late_ends and self.chance.random() < 0.1:
            return self._end_late()
        if self._attempt is None:
            self._attempt = self._new_attempt()
            self._added, self._offsets_added = set(), False
            if self.bumps:
                self._sequences = {}
        attempt = self._attempt
        dice = self.chance.random()
        if not attempt.written or dice < 0.4:
            return self._write(self.chance.randrange(PARTITIONS))
        if dice < 0.6 and not attempt.moved_position:
            return self._move_position()
        if dice < 0.8:
            return self._end(commit=self.chance.random() < 0.7)
        return None

    def finish(self) -> bool:
        """Ends the present transaction; begins no new one."""
        if self.over:
            return False
        if self._busy:
            return True
        if self._again is not None:
            self.act()
            return True
        if self._attempt is not None and self._producer_id >= 0:
            self._end(commit=self._attempt.written > 0)
            return True
        return False

    def _new_attempt(self) -> Attempt:
        attempt = Attempt(len(self._writers.attempts) + 1, self.transactional_id)
        self._writers.attempts.append(attempt)
        self._told.begin(attempt.name)
        return attempt

    # Requests

    def _ask(
        self,
        key: ApiKey,
        version: int,
        values: dict[str, Any],
        errors_in: Callable[[Any], list[int]],
        done: Callable[[ErrorCode, Any], None],
        again: Callable[[], str],
        *,
        to: int | None = None,
        repeated: bool = False,
    ) -> None:
        """Sends a request, by default to the transaction's coordinator. A fenced writer may write nothing new."""
        must_refuse = self.fenced and not repeated and key in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT)

        def heard(error: ErrorCode) -> None:
            if must_refuse and error is ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} is fenced, and its {key.name} was accepted")
            self._writers.refused_when_fenced += must_refuse

        broker_id = self.routes.coordinator_of(TRANSACTION, self.transactional_id) if to is None else to
        self._request(broker_id, key, version, values, errors_in, done, again, heard)

    def _init(self) -> str:
        values: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                raise InvariantBroken(f"{self.name} cannot begin: {error.name}")
            self._producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._writers.began(self)

        version = self.stage.version(ApiKey.INIT_PRODUCER_ID)
        self._ask(ApiKey.INIT_PRODUCER_ID, version, values, lambda answer: [answer.error_code], done, self._init)
        return f"asks for {self.transactional_id}"

    def _write(self, partition: int) -> str:
        if not self.bumps and partition not in self._added:
            return self._add(partition)
        attempt = self._attempt
        assert attempt is not None
        count = self.chance.randint(1, 3)
        texts = [f"{attempt.number}:{partition}:{attempt.written + place}".encode() for place in range(count)]
        batch = bytes(
            build_batch(
                [(self.stage.world.clock.wall_ms, None, text, ()) for text in texts],
                producer_id=self._producer_id,
                producer_epoch=self.epoch,
                base_sequence=self._sequences.get(partition, 0),
                transactional=True,
            )
        )
        self._sequences[partition] = self._sequences.get(partition, 0) + count
        attempt.written += count
        attempt.unanswered.update(texts)
        for text in texts:
            self._told.send(TOPIC, text, transaction=attempt.name)
        return self._send(partition, batch, texts)

    def _send(self, partition: int, batch: bytes, texts: list[bytes], *, repeated: bool = False) -> str:
        attempt = self._attempt
        assert attempt is not None
        values = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}],
        }

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                self._refused()
                return
            attempt.unanswered.difference_update(texts)
            first = answer.responses[0].partition_responses[0].base_offset
            for offset, text in enumerate(texts, first):
                self._told.acked(TOPIC, text, partition, offset)

        version = 12 if self.bumps else self.chance.randint(3, 11)
        self._ask(
            ApiKey.PRODUCE,
            version,
            values,
            lambda answer: [part.error_code for topic in answer.responses for part in topic.partition_responses],
            done,
            lambda: self._send(partition, batch, texts, repeated=True),
            to=self.routes.leader(TOPIC, partition),
            # A repeated batch may be in the log since before the fencing: its acknowledgement is no new write.
            repeated=repeated,
        )
        return f"writes {texts[0].decode()} to partition {partition}"

    def _add(self, partition: int) -> str:
        values = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self._producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [partition]}],
        }

        def done(error: ErrorCode, _: Any) -> None:
            if error is ErrorCode.NONE:
                self._added.add(partition)
            else:
                self._refused()

        self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            self.chance.randint(0, 3),
            values,
            lambda answer: [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ],
            done,
            lambda: self._add(partition),
        )
        return f"adds partition {partition}"

    def _move_position(self) -> str:
        if not self.bumps and not self._offsets_added:
            return self._add_offsets()
        attempt = self._attempt
        assert attempt is not None
        position = {"partition_index": 0, "committed_offset": attempt.number, "committed_metadata": ""}
        values = {
            "transactional_id": self.transactional_id,
            "group_id": self.transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self.epoch,
            "topics": [{"name": TOPIC, "partitions": [position]}],
        }

        def done(error: ErrorCode, _: Any) -> None:
            if error is ErrorCode.NONE:
                attempt.moved_position = True
            else:
                self._refused()

        self._ask(
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.bumps else self.chance.randint(0, 4),
            values,
            lambda answer: [part.error_code for topic in answer.topics for part in topic.partitions],
            done,
            self._move_position,
            to=self.routes.coordinator_of(GROUP, self.transactional_id),
        )
        return f"moves its position to {attempt.number}"

    def _add_offsets(self) -> str:
        values = {
            "transactional_id": self.transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self.epoch,
            "group_id": self.transactional_id,
        }

        def done(error: ErrorCode, _: Any) -> None:
            if error is ErrorCode.NONE:
                self._offsets_added = True
            else:
                self._refused()

        version = self.chance.randint(0, 3)
        self._ask(
            ApiKey.ADD_OFFSETS_TO_TXN, version, values, lambda answer: [answer.error_code], done, self._add_offsets
        )
        return "adds its positions"

    def _end(self, *, commit: bool) -> str:
        attempt = self._attempt
        assert attempt is not None
        commit = commit and not attempt.unanswered
        attempt.commits = commit
        if commit:
            self._told.committing(attempt.name)
        values = {
            "transactional_id": self.transactional_id,
            "producer_id": self._producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        return self._send_end(attempt, values)

    def _send_end(self, attempt: Attempt, values: dict[str, Any]) -> str:
        version = 5 if self.bumps else self.chance.randint(0, 4)

        def done(error: ErrorCode, answer: Any) -> None:
            if error is not ErrorCode.NONE:
                self._refused()
                return
            if values["committed"]:
                self._told.committed(attempt.name)
            else:
                self._told.aborted(attempt.name)
            self._attempt = None
            if self.bumps:
                self._late_ends.append((version, values))
                self._producer_id, self.epoch = answer.producer_id, answer.producer_epoch

        self._ask(
            ApiKey.END_TXN,
            version,
            values,
            lambda answer: [answer.error_code],
            done,
            lambda: self._send_end(attempt, values),
        )
        return f"{'commits' if values['committed'] else 'aborts'} {attempt.number}"

    def _end_late(self) -> str:
        """Delivers an old EndTxn once more, on a connection whose answer is ignored."""
        version, values = self.chance.choice(self._late_ends)
        connection = self.stage.world.connect(self.routes.coordinator_of(TRANSACTION, self.transactional_id))
        connection.request(ApiKey.END_TXN, version, values)
        connection.close()
        return f"repeats an EndTxn of epoch {values['producer_epoch']}"

    def _refused(self) -> None:
        """Ends the program: it is fenced, timed out, or its transaction is gone."""
        if self._attempt is not None and self._attempt.commits:
            self._told.transaction_unknown(self._attempt.name)
        elif self._attempt is not None:
            self._told.aborted(self._attempt.name)
        self.over = True
