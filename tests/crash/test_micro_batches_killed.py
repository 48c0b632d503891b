"""Micro-batches through a real broker that is killed again and again: every batch once, and whole."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.broker_process import BrokerProcess
from tests.crash.conftest import ROUNDS, StartBroker
from tests.interop.confluent_clients import read_to_end

from cordwood.client.cluster import Cluster
from cordwood.client.families import FamilyMember
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.records.build import build_batch

TOPIC = "events"
FAMILY = "query"
PARTITIONS = 3
TASKS = 3
KILLS = max(5, ROUNDS)
BATCHES_AFTER = 5
LONGEST_BATCH_MS = 900_000


class Query:
    """A driver and its tasks in one. No kill of the broker may lead to a refusal."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runs = 0
        self.written: dict[int, list[bytes]] = {}

    def run_batch(self, batch_id: int) -> None:
        self.runs += 1
        winners = [self._task(batch_id, "kept") for _ in range(TASKS)]
        self._task(batch_id, "lost")
        members = [member for member, _ in winners if member is not None]
        if members:
            assert batch_id not in self.written, "it was decided"
            self.written[batch_id] = sorted(text for _, texts in winners for text in texts)
        self.cluster.family_decide(FAMILY, batch_id, commit=True, winners=members)

    def _task(self, batch_id: int, kind: str) -> tuple[FamilyMember | None, list[bytes]]:
        member = self.cluster.family_join(FAMILY, batch_id, LONGEST_BATCH_MS).member
        if member is None:
            return None, []
        texts = [
            f"{batch_id}:{self.runs}:{member.transactional_id}:{partition}:{kind}".encode()
            for partition in range(PARTITIONS)
        ]
        batches = {
            TopicPartition(TOPIC, partition): [
                build_batch(
                    [(int(time.time() * 1000), None, text, ())],
                    producer_id=member.producer_id,
                    producer_epoch=member.producer_epoch,
                    base_sequence=0,
                    transactional=True,
                )
            ]
            for partition, text in enumerate(texts)
        }
        self.cluster.produce(batches, transactional_id=member.transactional_id)
        return member, texts


@contextmanager
def killed_now_and_then(broker: BrokerProcess, chance: random.Random) -> Iterator[threading.Event]:
    """The event is set when the broker has been killed often enough and is up again."""
    enough, stop = threading.Event(), threading.Event()

    def kill() -> None:
        for _ in range(KILLS):
            if stop.wait(chance.uniform(0.05, 0.8)):
                return
            broker.kill()
            broker.start()
        enough.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield enough
    finally:
        stop.set()
        killer.join()


@pytest.mark.timeout(240)
def test_every_batch_is_seen_once_and_whole_however_often_the_broker_is_killed(
    start_broker: StartBroker, chance: random.Random
) -> None:
    broker = start_broker(settings={"num.partitions": str(PARTITIONS)})
    with Cluster(ClientSettings(broker.bootstrap, retry_timeout_ms=120_000)) as cluster:
        cluster.topics([TOPIC], create=True)
        query = Query(cluster)
        batch_id = 0
        with killed_now_and_then(broker, chance) as enough:
            while not enough.is_set():
                query.run_batch(batch_id)
                if chance.random() < 0.3:
                    # A driver that died before it noted the batch as finished does the same.
                    query.run_batch(batch_id)
                batch_id += 1
        for _ in range(BATCHES_AFTER):
            query.run_batch(batch_id)
            batch_id += 1
    messages = read_to_end(
        broker.bootstrap, TOPIC, range(PARTITIONS), config={"isolation.level": "read_committed"}, timeout_s=60
    )
    wanted = sorted(text for texts in query.written.values() for text in texts)
    assert sorted(message.value() or b"" for message in messages) == wanted
    assert sorted(query.written) == list(range(batch_id))
    assert broker.stop() == 0
