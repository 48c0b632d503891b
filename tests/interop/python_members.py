"""Members of a group on the clients written in Python, kafka-python and aiokafka, plain and as workers of a test."""

import asyncio
from collections.abc import Coroutine
from threading import Thread
from typing import Any

from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer

SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 300,
}
COMMITTING: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}

WITHIN_S = 120


def kafka_python_member(bootstrap: str, group: str, topic: str, **settings: Any) -> Any:
    return KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **SETTINGS | settings)


def aiokafka_member(bootstrap: str, group: str, topic: str, **settings: Any) -> Any:
    return AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, **SETTINGS | settings)


def poll(consumer: Any, values: list[bytes], timeout_ms: int = 50) -> int:
    """Reads the present records, and returns the number of values so far."""
    values.extend(record.value for records in consumer.poll(timeout_ms=timeout_ms).values() for record in records)
    return len(values)


class KafkaPythonWorker:
    """A worker that commits what it read. Several have to be polled at the same time, as separate programs would be.

    Polled one after the other, in turns of 50 ms, each may join again for ever: the client forgets a round whose answer
    came after its turn.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.values: list[bytes] = []
        self._consumer = kafka_python_member(bootstrap, group, topic, **COMMITTING)

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def poll(self) -> None:
        poll(self._consumer, self.values, 1000)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaWorker:
    """A worker that reads and commits by itself, on an event loop of its own.

    Its reads wait for rounds, and so for the other workers: a test that polls them all cannot wait for it.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.values: list[bytes] = []
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self._consumer = self._run(self._started(bootstrap, group, topic))
        self._reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)

    async def _started(self, bootstrap: str, group: str, topic: str) -> Any:
        consumer = aiokafka_member(bootstrap, group, topic, **COMMITTING)
        await consumer.start()
        return consumer

    async def _read(self) -> None:
        while True:
            read = await self._consumer.getmany(timeout_ms=50)
            self.values.extend(record.value for records in read.values() for record in records)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def poll(self) -> None:
        if self._reading.done():
            self._reading.result()

    def close(self) -> None:
        try:
            self._reading.cancel()
            self._run(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WITHIN_S)
            self._loop.close()
