"""Producers: plain producers send once or retry, idempotent producers retry until they know the outcome.

An idempotent producer has up to five batches of a partition under way and sends batches without a good answer again, in
order: over a new connection while the broker may still see the old request, and after the broker's restart.
"""

from enum import Enum
from typing import Any

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Exchange
from simulation.world.ledger import IDENTITY_HEADER
from simulation.world.stage import Client, Stage

WINDOW = 5
MOST_ATTEMPTS = 4
TOPIC_IDS_FROM = 13
KEYS = tuple(f"key-{number}".encode() for number in range(6))

WORTH_ANOTHER_TRY = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class Progress(Enum):
    TO_SEND = "to be sent, perhaps again"
    UNDER_WAY = "under way"
    OVER = "acknowledged, refused for good, or given up"


class Batch:
    __slots__ = ("attempts", "data", "index", "progress", "topic", "topic_id")

    def __init__(self, topic: TopicImage, index: int, data: bytes) -> None:
        self.topic = topic
        self.topic_id = topic.topic_id
        self.index = index
        self.data = data
        self.progress = Progress.TO_SEND
        self.attempts = 0


class Lane:
    """An idempotent producer's batches for one partition, in the order of their sequence numbers."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.batches: list[Batch] = []

    def tidy(self) -> None:
        self.batches = [batch for batch in self.batches if batch.progress is not Progress.OVER]

    def next_to_send(self) -> Batch | None:
        return next((batch for batch in self.batches if batch.progress is Progress.TO_SEND), None)


class Producer(Client):
    """The common part of plain and idempotent producers."""

    def __init__(self, stage: Stage, name: str, acks: int) -> None:
        super().__init__(stage, name)
        self.acks = acks

    def _records(self) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        chance, now_ms = self.chance, self.stage.world.clock.wall_ms
        return [
            (
                now_ms - chance.randrange(3),
                chance.choice(KEYS),
                None if chance.random() < 0.1 else bytes(chance.randrange(60)),
                [(IDENTITY_HEADER, self.stage.new_identity(self.name))],
            )
            for _ in range(chance.randint(1, 4))
        ]

    def _codec(self) -> Codec:
        return self.chance.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4))

    def _send(self, batches: list[Batch]) -> None:
        """Sends these batches of different partitions: one request to each leader."""
        by_leader: dict[int, list[Batch]] = {}
        for batch in batches:
            by_leader.setdefault(self.routes.leader(batch.topic.name, batch.index), []).append(batch)
        for leader, its_batches in by_leader.items():
            self._send_to(leader, its_batches)

    def _send_to(self, leader: int, batches: list[Batch]) -> None:
        version = self.stage.version(ApiKey.PRODUCE)
        topics: dict[TopicId, dict[str, Any]] = {}
        for batch in batches:
            entry = topics.get(batch.topic_id)
            if entry is None:
                by_id = version >= TOPIC_IDS_FROM
                entry = topics[batch.topic_id] = self.stage.topic_fields(batch.topic, by_id) | {"partition_data": []}
            entry["partition_data"].append({"index": batch.index, "records": batch.data})
            batch.progress = Progress.UNDER_WAY
            batch.attempts += 1
        order = {topic_id: place for place, topic_id in enumerate(topics)}
        batches = sorted(batches, key=lambda batch: order[batch.topic_id])
        values = {
            "acks": self.acks,
            "timeout_ms": self.chance.choice((50, 1000, 30_000, 30_000)),
            "topic_data": list(topics.values()),
        }
        self.connection_to(leader).request(
            ApiKey.PRODUCE, version, values, lambda exchange: self._ended(exchange, batches)
        )

    def _ended(self, exchange: Exchange, batches: list[Batch]) -> None:
        if self.routes.failed(exchange):
            for batch in batches:
                self._no_answer(batch)
            return
        results = [each for topic in exchange.answer.responses for each in topic.partition_responses]
        if any(result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for result in results):
            self.routes.learn()
        for batch, result in zip(batches, results, strict=True):
            if batch.progress is Progress.UNDER_WAY:
                self._result(batch, ErrorCode(result.error_code))

    def _no_answer(self, batch: Batch) -> None:
        raise NotImplementedError

    def _result(self, batch: Batch, error: ErrorCode) -> None:
        raise NotImplementedError


class PlainProducer(Producer):
    """Sends a batch once, or a few times without an acknowledgement, which may append it as often."""

    def __init__(self, stage: Stage, name: str, acks: int, *, retries: bool) -> None:
        super().__init__(stage, name, acks)
        self._retries = retries
        self._again: list[Batch] = []

    def act(self) -> str | None:
        if self._again and self.chance.random() < 0.5:
            batch = self._again.pop(0)
            self._send([batch])
            return f"sends to {batch.topic.name}-{batch.index} again"
        batches = self._new_batches()
        if not batches:
            return None
        self._send(batches)
        return "sends to " + ", ".join(f"{batch.topic.name}-{batch.index}" for batch in batches)

    def finish(self) -> bool:
        self._again.clear()
        return False

    def _new_batches(self) -> list[Batch]:
        found: dict[tuple[TopicId, int], Batch] = {}
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            topic = self.stage.some_topic()
            if topic is None:
                return []
            index = self.chance.randrange(len(topic.partitions))
            if (topic.topic_id, index) not in found:
                data = bytes(build_batch(self._records(), codec=self._codec()))
                self.stage.ledger.sending(data, self.name, may_repeat=self._retries)
                found[topic.topic_id, index] = Batch(topic, index, data)
        return list(found.values())

    def _no_answer(self, batch: Batch) -> None:
        self._try_again(batch, worth_it=self.acks != 0)

    def _result(self, batch: Batch, error: ErrorCode) -> None:
        self._try_again(batch, worth_it=error in WORTH_ANOTHER_TRY)

    def _try_again(self, batch: Batch, *, worth_it: bool) -> None:
        batch.progress = Progress.OVER
        if self._retries and worth_it and batch.attempts < MOST_ATTEMPTS:
            self._again.append(batch)


class IdempotentProducer(Producer):
    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name, acks=-1)
        self._producer_id: int | None = None
        self._epoch = 0
        self._asking = False
        self._lanes: dict[tuple[TopicId, int], Lane] = {}
        self.given_up = 0
        """Batches whose outcome the producer never learns."""

    def act(self) -> str | None:
        self._leave_deleted_topics()
        if self._producer_id is None:
            return self._ask_for_id()
        if self.chance.random() < 0.5:
            again = self._send_again()
            if again is not None:
                return again
        return self._send_new()

    def finish(self) -> bool:
        self._leave_deleted_topics()
        if self._send_again() is not None:
            return True
        return any(lane.batches for lane in self._lanes.values())

    def _ask_for_id(self) -> str | None:
        if self._asking:
            return None
        self._asking = True
        version = self.stage.version(ApiKey.INIT_PRODUCER_ID)
        values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        self.connection.request(ApiKey.INIT_PRODUCER_ID, version, values, self._got_id)
        return "asks for a producer id"

    def _got_id(self, exchange: Exchange) -> None:
        self._asking = False
        if not self.routes.failed(exchange) and exchange.answer.error_code == 0:
            self._producer_id, self._epoch = exchange.answer.producer_id, exchange.answer.producer_epoch

    def _leave_deleted_topics(self) -> None:
        """Starts over after a topic was deleted: in a new topic of its name batches could pass for repetitions."""
        known = self.stage.image.topics_by_id
        if any(topic_id not in known for topic_id, _ in self._lanes):
            self._start_over()

    def _start_over(self) -> None:
        """Gives up all batches under way, which may or may not be in the log, and never sends them again."""
        for lane in self._lanes.values():
            for batch in lane.batches:
                batch.progress = Progress.OVER
                self.given_up += 1
        self._lanes.clear()
        self._producer_id = None

    def _send_again(self) -> str | None:
        lanes = [lane for lane in self._lanes.values() if lane.next_to_send() is not None]
        if not lanes:
            return None
        batch = self.chance.choice(lanes).next_to_send()
        assert batch is not None
        self._send([batch])
        return f"sends to {batch.topic.name}-{batch.index} again"

    def _send_new(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        lane = self._lanes.setdefault((topic.topic_id, index), Lane())
        lane.tidy()
        if len(lane.batches) >= WINDOW or lane.next_to_send() is not None:
            return None
        records = self._records()
        assert self._producer_id is not None
        data = bytes(
            build_batch(
                records,
                codec=self._codec(),
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=lane.next_sequence,
            )
        )
        self.stage.ledger.sending(data, self.name, may_repeat=False)
        lane.next_sequence += len(records)
        batch = Batch(topic, index, data)
        lane.batches.append(batch)
        self._send([batch])
        return f"sends to {topic.name}-{index}"

    def _no_answer(self, batch: Batch) -> None:
        if batch.progress is Progress.UNDER_WAY:
            batch.progress = Progress.TO_SEND

    def _result(self, batch: Batch, error: ErrorCode) -> None:
        lane = self._lanes[batch.topic_id, batch.index]
        if error is ErrorCode.NONE:
            batch.progress = Progress.OVER
            lane.tidy()
        elif error in WORTH_ANOTHER_TRY or (
            error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.batches[0] is not batch
        ):
            batch.progress = Progress.TO_SEND
        else:
            self._start_over()
