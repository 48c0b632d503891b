"""A bit flipped in a coordinator's own log: no group gets a position that nobody committed, and there is a way out."""

import logging
from pathlib import Path

import pytest
from tests.deadline import eventually

from cordwood.client.cluster import Cluster
from cordwood.client.errors import RequestRefused
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

ORDERS = TopicPartition("orders", 0)
ONE_PARTITION: dict[str, str | int | float | bool] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(ClientSettings(broker.bootstrap_servers, retry_timeout_ms=300))


def alter_the_position_of(directory: Path, group: bytes) -> None:
    """Position 7 becomes 6: one bit. The record's batch keeps its checksum."""
    [log] = (directory / "__consumer_offsets-0").glob("*.log")
    data = bytearray(log.read_bytes())
    position = (7).to_bytes(8, "big")
    data[data.index(position, data.index(group)) + 7] ^= 1
    log.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three groups committed position 7 each, in this order; a bit of the second one's position is flipped."""
    with Broker(data_dir=tmp_path, settings=ONE_PARTITION) as broker, cluster_of(broker) as cluster:
        broker.log.append("orders", None, "first", partition=0)
        for group in ("early", "billing", "late"):
            eventually(lambda group=group: commit(cluster, group), what="a coordinator")  # type: ignore[misc]
    alter_the_position_of(tmp_path, b"billing")
    return tmp_path


def commit(cluster: Cluster, group: str) -> bool:
    try:
        cluster.commit(group, {ORDERS: 7})
    except RequestRefused:
        return False
    return True


def test_a_coordinator_does_not_believe_a_damaged_position(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=damaged, settings=ONE_PARTITION) as broker, cluster_of(broker) as cluster:
        for group in ("billing", "late"):
            with pytest.raises(RequestRefused) as refused:
                cluster.committed(group)
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    said = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert any("__consumer_offsets-0" in line and "coordinator.damaged.records=skip" in line for line in said), said


def test_a_coordinator_goes_on_without_damaged_records_if_told(damaged: Path) -> None:
    skipping = {**ONE_PARTITION, "coordinator.damaged.records": "skip"}
    with Broker(data_dir=damaged, settings=skipping) as broker, cluster_of(broker) as cluster:
        assert [cluster.committed(group) for group in ("early", "billing", "late")] == [{ORDERS: 7}, {}, {ORDERS: 7}]
        cluster.commit("billing", {ORDERS: 8})
    with Broker(data_dir=damaged, settings=skipping) as broker, cluster_of(broker) as cluster:
        assert cluster.committed("billing") == {ORDERS: 8}
