"""Tasks and drivers of micro-batches, as plain requests to a simulated broker."""

from typing import Any

from simulation.checkers.committed_reads import committed_values, read_committed
from simulation.workloads.transactional_writers import PARTITIONS, TOPIC
from simulation.world.exchange import Exchange
from simulation.world.world import World

from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

FAMILY = "query"


class Task:
    """One attempt at a part of a batch."""

    def __init__(self, world: World, batch_id: int, *, family: str = FAMILY, timeout_ms: int = 60_000) -> None:
        self.world = world
        answer = world.ask(ApiKey.FAMILY_JOIN, 0, family=family, batch_id=batch_id, timeout_ms=timeout_ms)
        self.error = ErrorCode(answer.error_code)
        self.message = answer.error_message
        self.decided: bool = answer.decided
        self.last_batch_id: int = answer.last_batch_id
        self.transactional_id: str | None = answer.transactional_id
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch
        self._sequences: dict[int, int] = {}

    @property
    def slot(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def begin_write(self, *texts: bytes, partition: int = 0, version: int = 12) -> Exchange:
        first = self._sequences.get(partition, 0)
        batch = build_batch(
            [(self.world.clock.wall_ms, None, text, ()) for text in texts],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )
        return self.world.connect().request(
            ApiKey.PRODUCE,
            version,
            {
                "transactional_id": self.transactional_id,
                "acks": -1,
                "timeout_ms": 1000,
                "topic_data": [{"name": TOPIC, "partition_data": [{"index": partition, "records": bytes(batch)}]}],
            },
        )

    def write(self, *texts: bytes, partition: int = 0, version: int = 12) -> ErrorCode:
        exchange = self.begin_write(*texts, partition=partition, version=version)
        self.world.settle()
        error = ErrorCode(exchange.answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self._sequences[partition] = self._sequences.get(partition, 0) + len(texts)
        return error


def begin_decision(
    world: World,
    batch_id: int,
    *winners: Task,
    commit: bool = True,
    forget: bool = False,
    family: str = FAMILY,
    timeout_ms: int = 30_000,
) -> Exchange:
    return world.connect().request(
        ApiKey.FAMILY_DECIDE,
        0,
        {
            "family": family,
            "batch_id": batch_id,
            "commit": commit,
            "winners": [task.slot for task in winners],
            "forget": forget,
            "timeout_ms": timeout_ms,
        },
    )


def decide(world: World, batch_id: int, *winners: Task, **how: Any) -> Any:
    exchange = begin_decision(world, batch_id, *winners, **how)
    world.settle()
    assert exchange.answered, exchange.state
    return exchange.answer


def renew(world: World, batch_id: int, family: str = FAMILY) -> Any:
    return world.ask(ApiKey.FAMILY_RENEW, 0, family=family, batch_id=batch_id)


def families(world: World) -> dict[str, Any]:
    return {each.name: each for each in world.ask(ApiKey.FAMILY_LIST, 0, families=None).families}


def visible(world: World) -> list[bytes]:
    """What read_committed readers see, in all partitions."""
    return sorted(value for partition in range(PARTITIONS) for value in committed_values(world, partition))


def nothing_open(world: World) -> bool:
    ends = (read_committed(world, partition)[1:] for partition in range(PARTITIONS))
    return all(stable == high_watermark for stable, high_watermark in ends)
