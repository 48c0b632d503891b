"""Plain requests in the name of one transactional producer, for tests of single behaviours."""

from typing import Any

from simulation.workloads.transactional_writers import TOPIC
from simulation.world.world import World

from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

NAME = "writer"


class Producer:
    """Plain requests in the name of one producer."""

    def __init__(self, world: World, *, timeout_ms: int = 60_000) -> None:
        self.world = world
        self.sequence = 0
        for _ in range(3):
            answer = world.ask(
                ApiKey.INIT_PRODUCER_ID,
                5,
                transactional_id=NAME,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            )
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": NAME, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, partition: int, version: int = 3) -> ErrorCode:
        answer = self.world.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": TOPIC, "partitions": [partition]}],
        )
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def write(self, version: int, *texts: bytes, partition: int = 0, acks: int = -1, sequence: int = -1) -> ErrorCode:
        first = self.sequence if sequence < 0 else sequence
        batch = build_batch(
            [(self.world.clock.wall_ms, None, text, ()) for text in texts],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )
        answer = self.world.ask(
            ApiKey.PRODUCE,
            version,
            transactional_id=NAME,
            acks=acks,
            timeout_ms=1000,
            topic_data=[{"name": TOPIC, "partition_data": [{"index": partition, "records": bytes(batch)}]}],
        )
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.sequence = first + len(texts)
        return error

    def move(self, offset: int, version: int = 5, **author: Any) -> ErrorCode:
        position = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        known_as = {"topic_id": self.world.node.image.topic_id(TOPIC)} if version >= 6 else {"name": TOPIC}
        answer = self.world.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **self.who,
            **author,
            group_id="group",
            topics=[{**known_as, "partitions": [position]}],
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, version: int = 5) -> ErrorCode:
        answer = self.world.ask(ApiKey.END_TXN, version, **self.who, committed=commit)
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)


def described(world: World) -> Any:
    return world.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[NAME]).transaction_states[0]


def position(world: World, *, require_stable: bool) -> tuple[int, ErrorCode]:
    answer = world.ask(
        ApiKey.OFFSET_FETCH,
        7,
        group_id="group",
        topics=[{"name": TOPIC, "partition_indexes": [0]}],
        require_stable=require_stable,
    )
    (found,) = answer.topics[0].partitions
    return found.committed_offset, ErrorCode(found.error_code)
