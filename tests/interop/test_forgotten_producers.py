"""Idempotent producers on a broker that is flooded with producer ids: they hear that they were forgotten, and go on."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.raw_client import RawClient

from cordwood.embedded import Broker
from cordwood.log.parts import producer_bounds
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

FEW = 20


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(producer_bounds.SHARED, "_in_partition", FEW)
    with Broker() as broker:
        yield broker


def flood(broker: Broker, topic: str) -> None:
    """Batches of producer ids that nobody was given."""
    client = RawClient(broker.bootstrap_servers)
    for number in range(2 * FEW):
        batch = build_batch(
            [(int(time.time() * 1000), None, b"made up", ())],
            producer_id=10**9 + number,
            producer_epoch=0,
            base_sequence=0,
        )
        data = [{"index": 0, "records": bytes(batch)}]
        answer = client.send(
            ApiKey.PRODUCE, 9, acks=-1, timeout_ms=1000, topic_data=[{"name": topic, "partition_data": data}]
        )
        code = answer.responses[0].partition_responses[0].error_code
        assert code in (0, 46), "the second time its sequence is not the next one"
    client.close()


def test_librdkafkas_producer_begins_anew_and_loses_nothing(broker: Broker) -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "error_cb": lambda error: failures.append(error) if error.fatal() else None,
        }
    )

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(6):
        producer.produce("orders", b"%d" % number, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        if number % 2:
            flood(broker, "orders")
    sent = [record.value for record in broker.log.read("orders", partition=0) if record.value != b"made up"]
    assert failures == []
    assert sent == [b"%d" % number for number in range(6)]
