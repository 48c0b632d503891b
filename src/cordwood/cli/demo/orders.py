"""The demo's data: events of customers' orders, sent by a real client and counted."""

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "orders"
PARTITIONS = 3
CUSTOMERS = ("ada", "bob", "cleo", "dan", "eve", "gus", "jo", "rosa", "sam")
STEPS = ("placed", "paid", "packed", "shipped", "delivered")


class Order(NamedTuple):
    """One event. `number` counts all events; `step` counts the customer's events, which must stay in order."""

    number: int
    customer: str
    step: int

    @property
    def value(self) -> bytes:
        what = STEPS[self.step % len(STEPS)]
        return json.dumps(
            {"number": self.number, "step": self.step, "order": self.step // len(STEPS), "is": what}
        ).encode()


def orders(first: int, count: int) -> Iterator[Order]:
    """`count` events from number `first` on: customers take turns."""
    for number in range(first, first + count):
        yield Order(number, CUSTOMERS[number % len(CUSTOMERS)], number // len(CUSTOMERS))


class Acknowledged(NamedTuple):
    order: Order
    partition: int
    offset: int
    at_s: float
    """The time at which the producer got the acknowledgement, on the monotonic clock."""


class Shop:
    """Sends orders with an idempotent producer, and remembers the partition and offset of each acknowledged order."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.errors: list[str] = []
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # The demo need not wait long for a broker that comes back.
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )

    def send(self, order: Order) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(error.str())
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.acknowledged.append(Acknowledged(order, partition, offset, time.monotonic()))

        self._producer.produce(TOPIC, key=order.customer, value=order.value, on_delivery=delivered)
        self.sent += 1
        self.poll()

    def poll(self, timeout_s: float = 0.0) -> None:
        self._producer.poll(timeout_s)

    def finish(self, timeout_s: float = 30.0) -> None:
        """Waits until all orders are acknowledged or have failed."""
        self._producer.flush(timeout_s)


def order_of(value: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(value)
    return content
