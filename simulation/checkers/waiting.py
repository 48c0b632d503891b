"""Checks that a long poll is answered as soon as there is a record, or when its time is up, and not before."""

from typing import Any

from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.broken import InvariantBroken
from simulation.world.ledger import IDENTITY_HEADER
from simulation.world.stage import Stage

NAME = "the end"


def check_waiting(stage: Stage) -> None:
    """Polls each partition at its end twice: once in vain, and once until a record comes."""
    world = stage.world
    for broker_id, partition in [(each.broker_id, led) for each in world.machines for led in each.node.hosted]:
        topic, index = partition.name
        if topic.startswith("__"):
            continue
        asked = {"partition": index, "fetch_offset": partition.replica.high_watermark, "partition_max_bytes": 1000}
        values: dict[str, Any] = {"min_bytes": 1, "max_bytes": 1000, "isolation_level": 0}
        values["topics"] = [{"topic": topic, "partitions": [asked]}]
        in_vain = world.begin_at(broker_id, ApiKey.FETCH, 11, **values, max_wait_ms=50)
        world.advance(50)
        poll = world.begin_at(broker_id, ApiKey.FETCH, 11, **values, max_wait_ms=30_000)
        if not in_vain.answered or poll.answered:
            raise InvariantBroken(f"a poll of {partition.name} was not answered when its time was up")
        record = (world.clock.wall_ms, b"key", b"value", [(IDENTITY_HEADER, stage.new_identity(NAME))])
        batch = bytes(build_batch([record]))
        stage.ledger.sending(batch, NAME, may_repeat=False)
        entry = {"name": topic, "partition_data": [{"index": index, "records": batch}]}
        sent = world.begin_at(broker_id, ApiKey.PRODUCE, 8, acks=-1, timeout_ms=1000, topic_data=[entry])
        if sent.answer.responses[0].partition_responses[0].error_code == 0 and not poll.answered:
            raise InvariantBroken(f"{partition.name} got a record, and the poll that waited for it was not answered")
        for exchange in (in_vain, poll, sent):
            exchange.connection.close()
