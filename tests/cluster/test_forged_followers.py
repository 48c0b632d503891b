"""A client that passes for the followers of a leader: nothing is acknowledged that they do not have."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import create
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

pytestmark = pytest.mark.timeout(300)
GUESSES = range(1, 6)
"""Broker epochs count from 1."""
TIMEOUT_MS = 4_000


def addresses(cluster: LocalCluster, node_id: int) -> list[str]:
    """All addresses that the broker listens on, as its log tells them."""
    (told,) = re.findall("ready on (.*) \\(data", cluster.log_of(node_id))
    return re.findall(r"[0-9.]+:\d+", told)


def forge(address: str, topic_id: TopicId, replica_id: int, offset: int) -> set[int]:
    """Fetches as a follower that has everything up to `offset`, in each epoch that it may have. The error codes."""
    client = RawClient(address)
    codes = set()
    for broker_epoch in GUESSES:
        for leader_epoch in range(5):
            partition = {"partition": 0, "current_leader_epoch": leader_epoch, "fetch_offset": offset}
            answer = client.send(
                ApiKey.FETCH,
                16,
                replica_state={"replica_id": replica_id, "replica_epoch": broker_epoch},
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[{"topic_id": topic_id, "partitions": [{**partition, "partition_max_bytes": 1 << 20}]}],
            )
            codes.add(answer.error_code)
    client.close()
    return codes


def test_records_are_not_acknowledged_by_fetches_of_a_client(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor", "--set", "broker.lease.ms=20000") as cluster:
        name = create(cluster, 1, 3)
        asking = RawClient(cluster.bootstrap.split(",")[0])

        def in_sync() -> list[Any]:
            (topic,) = asking.send(ApiKey.METADATA, 12, topics=[{"name": name}]).topics
            (partition,) = topic.partitions
            return [topic.topic_id, partition.leader_id] if len(partition.isr_nodes) == 3 else []

        topic_id, leader = eventually(in_sync, what="all replicas in sync")
        asking.close()
        followers = [node_id for node_id in cluster.pids if node_id != leader]
        for node_id in followers:
            cluster.freeze(node_id)
        try:
            producer = RawClient(f"127.0.0.1:{cluster.port(leader)}")
            batch = build_batch([(int(time.time() * 1000), None, b"of the leader alone", ())])
            data = [{"name": name, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
            producer.request(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)
            codes: dict[str, set[int]] = {}
            for address in addresses(cluster, leader):
                for follower in followers:
                    codes.setdefault(address, set()).update(forge(address, topic_id, follower, 1))
            (told,) = producer.answer(ApiKey.PRODUCE, 9).responses
            refused = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            assert told.partition_responses[0].error_code in refused
            at_clients, at_brokers = codes.values()
            assert at_clients == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
            assert at_brokers == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.STALE_BROKER_EPOCH}
            producer.close()
        finally:
            for node_id in followers:
                cluster.thaw(node_id)
