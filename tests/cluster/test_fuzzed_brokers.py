"""Frames that no client and no broker would send, at every listener of a replicated cluster: all brokers live on, no
larger, with nothing lost, and others are served meanwhile."""

import sqlite3
import threading
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from benchmarks.processes import rss_bytes
from benchmarks.wide_requests import Stage
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.confluent_load import Writer, lost
from tests.cluster.local_cluster import LocalCluster, is_alive
from tests.cluster.test_forged_followers import addresses
from tests.cluster.test_leader_killed import create
from tests.deadline import eventually
from tests.fuzz.cluster_frames import frames
from tests.fuzz.conftest import MAX_GROWTH_BYTES, ROUNDS, SEED
from tests.fuzz.raw_connection import Outcome, RawConnection, framed
from tests.interop.confluent_clients import read_to_end
from tests.raw_client import RawClient

from cordwood.cluster.metadata.rows import decode_broker
from cordwood.cluster.stores.integrity import read_image
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

pytestmark = pytest.mark.timeout(300)
FRAMES = 500
"""For each of two listeners of three brokers."""
PATIENCE_S = 0.1
STOCK, PARTITIONS = "stock", 6
SETTINGS = {
    "queued.max.request.bytes": 8 << 20,
    "queued.max.response.bytes": 8 << 20,
    "socket.request.max.bytes": 1 << 20,
    "tail.memory.max.bytes": 8 << 20,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


def true_senders(cluster: LocalCluster) -> list[Sender]:
    """The brokers with the keys of their registrations, as brokers read them in the metadata store."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(read_image(str(cluster.directory / "metadata.sqlite")))
    rows = connection.execute(
        "SELECT key, value, max(mod_revision) FROM history WHERE key GLOB 'brokers/*' GROUP BY key"
    )
    found = {int(key.rpartition("/")[2]): decode_broker(key, value) for key, value, _ in rows if value is not None}
    connection.close()
    assert found.keys() == cluster.pids.keys()
    return [Sender(broker_id, row.key) for broker_id, row in found.items()]


class Attack(threading.Thread):
    """One peer that sends frames to one listener, alone, twice or cut short. Ends when all are sent."""

    def __init__(self, address: str, random: Random, stage: Stage, senders: list[Sender]) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[Outcome] = Counter()
        self.failure: BaseException | None = None
        self._address = address
        self._random = random
        self._frames = islice(frames(random, stage, senders), FRAMES * ROUNDS)

    def run(self) -> None:
        try:
            self._attack()
        except BaseException as failure:
            self.failure = failure

    def _attack(self) -> None:
        connection = RawConnection(self._address)
        for frame in self._frames:
            kind = self._random.random()
            if kind < 0.05:
                connection.send(framed(frame)[: self._random.randrange(4 + len(frame))])
                outcome = Outcome.CLOSED
            else:
                if kind < 0.2:
                    connection.send(framed(frame) * self._random.randint(1, 5))
                outcome = connection.outcome_of(frame, PATIENCE_S)
            self.counts[outcome] += 1
            if outcome is not Outcome.ANSWERED:
                connection.close()
                connection = RawConnection(self._address)
        connection.close()


def stage_of(cluster: LocalCluster) -> Stage:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(STOCK, PARTITIONS, 3)], operation_timeout=30)[STOCK].result(timeout=60)
    client = RawClient(cluster.bootstrap.split(",")[0])
    (topic,) = client.send(ApiKey.METADATA, 12, topics=[{"name": STOCK}]).topics
    for key_type in (0, 1):
        client.send(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["any"])
    client.close()
    return Stage(STOCK, PARTITIONS, topic.topic_id)


def out_of_sync(cluster: LocalCluster) -> list[str]:
    """The partitions of all topics without a leader, or with a replica that is not in sync."""
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    return [
        f"{name}-{number}: leader {partition.leader}, in sync {partition.isrs} of {partition.replicas}"
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader < 0 or set(partition.isrs) != set(partition.replicas)
    ]


def test_a_replicated_cluster_outlives_hostile_frames_at_every_listener(tmp_path: Path) -> None:
    print(f"the same frames again: CORDWOOD_FUZZ_SEED={SEED}")
    options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", *options) as cluster:
        kept, stage = create(cluster, 3, 3), stage_of(cluster)
        true = true_senders(cluster)
        senders = [*true, *(sender._replace(key=sender.key ^ 1) for sender in true), Sender(9, 1), Sender(-1, 0)]
        writer = Writer("kept", cluster.bootstrap, kept, **{"message.timeout.ms": 60_000})
        writer.start()
        eventually(lambda: writer.acknowledged, what="a first record")
        before = {node_id: rss_bytes(pid) for node_id, pid in cluster.pids.items()}
        attacks = [
            Attack(address, Random(f"{SEED} {node_id} {number}"), stage, senders)
            for node_id in cluster.pids
            for number, address in enumerate(addresses(cluster, node_id))
        ]
        assert len(attacks) == 6, "a listener of clients and one of brokers at each of three"
        for attack in attacks:
            attack.start()
        for attack in attacks:
            attack.join()
            print(dict(attack.counts))
        assert [attack.failure for attack in attacks if attack.failure is not None] == []
        acknowledged_meanwhile = len(writer.acknowledged)
        writer.stopping.set()
        writer.join()
        for node_id, pid in cluster.pids.items():
            assert is_alive(pid), cluster.log_of(node_id)[-8000:]
            # A peer's fault is an error code or a close; a traceback is a fault of the broker's own.
            assert "Traceback" not in cluster.log_of(node_id), cluster.log_of(node_id)[-8000:]
            grown = rss_bytes(pid) - before[node_id]
            assert grown < MAX_GROWTH_BYTES, f"broker {node_id} grew by {grown >> 20} MiB"
        assert writer.errors == []
        assert acknowledged_meanwhile > 0
        eventually(lambda: not out_of_sync(cluster), what="all replicas in sync")
        read = [(message.value() or b"").decode() for message in read_to_end(cluster.bootstrap, kept, range(3))]
        assert lost(writer.acknowledged, read) == []
