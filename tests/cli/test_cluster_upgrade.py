"""`cordwood cluster upgrade` on brokers of two versions, one after the other: refused until the last one is new."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import Cordwood
from tests.deadline import eventually

from cordwood.cluster.metadata.versions import UnsupportedMetadata
from cordwood.embedded import Broker, Cluster

OLD = {"metadata.version.max": 1}
"""The setting that makes a broker one of the version before."""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(2, data_dir=tmp_path, settings=OLD)


def restart(cluster: Cluster, node_id: int, directory: Path, **settings: int) -> None:
    """Starts a node of the cluster again as another version."""
    cluster.brokers[node_id].stop()
    own: dict[str, str | int] = {"cluster.name": "embedded", "cluster.store": cluster.store, "node.id": node_id}
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    cluster.brokers[node_id] = Broker(data_dir=directory / f"node-{node_id}", settings={**own, **texts}).start()


def produce(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    errors: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def test_a_version_is_finalised_when_the_last_node_supports_it(cluster: Cluster, tmp_path: Path) -> None:
    with cluster:
        cli = Cordwood(cluster.brokers[1].bootstrap_servers)
        cli("topic", "create", "orders", "--partitions", "3", "--replication-factor", "2")
        told = cli.json("cluster", "upgrade", "--dry-run")
        assert told == {
            "nodes": [{"id": 1, "supports": {"min": 1, "max": 1}}, {"id": 2, "supports": {"min": 1, "max": 1}}],
            "before": 1,
            "version": 1,
            "finalised": False,
        }
        restart(cluster, 1, tmp_path)
        cli = Cordwood(cluster.brokers[1].bootstrap_servers)
        code, error = cli.error("cluster", "upgrade", "--yes")
        assert (code, error["code"]) == (1, "FEATURE_UPDATE_FAILED")
        assert "not supported by broker 2 (only version 1)" in error["message"]
        cluster.brokers[2].stop()
        away = "Broker 2 is away and has replicas: start it with Cordwood"
        eventually(lambda: cli.error("cluster", "upgrade", "--yes")[1]["message"].startswith(away), what=away)
        restart(cluster, 2, tmp_path)
        # Nothing is final yet: a node goes back, and comes again.
        restart(cluster, 2, tmp_path, **{"metadata.version.max": 1})
        produce(cluster.brokers[1], "orders")
        restart(cluster, 2, tmp_path)
        text = cli("cluster", "upgrade", "--dry-run")
        assert "metadata version 1 (Cordwood: builds before 0.1.0) is final" in text
        assert "versions 1 to 3" in text
        assert "Version 3 can be finalised" in text
        assert "none can go back to the release before" in text
        assert cli.run("cluster", "upgrade").exit_code == 2, "nobody is there to be asked"
        assert cli.json("cluster", "upgrade", "--dry-run")["before"] == 1
        assert "Version 3 is final.\n" in cli("cluster", "upgrade", "--yes")
        assert "Version 3 is final already: there is nothing to do." in cli("cluster", "upgrade", "--yes")
        assert cli.json("cluster", "upgrade")["before"] == 3
        code, error = cli.error("cluster", "upgrade", "--to", "1", "--yes")
        assert (code, error["code"]) == (1, "INVALID_UPDATE_VERSION")
        assert "3 is final" in error["message"]
        code, error = cli.error("cluster", "upgrade", "--to", "9", "--yes")
        assert "supports versions 1 to 3 of the metadata, not 9" in error["message"]
        cli("topic", "create", "later", "--partitions", "3", "--replication-factor", "2")
        produce(cluster.brokers[1], "later")
        with pytest.raises(UnsupportedMetadata, match="has version 3, and this broker supports only version 1"):
            restart(cluster, 2, tmp_path, **{"metadata.version.max": 1})
        restart(cluster, 2, tmp_path)
        produce(cluster.brokers[2], "later")


def test_a_directory_of_one_node_is_refused_by_an_older_version_once_finalised(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=OLD) as broker:
        Cordwood(broker.bootstrap_servers)("topic", "create", "orders")
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, "orders")
    with Broker(data_dir=tmp_path, settings=OLD) as broker:
        produce(broker, "orders")
    with Broker(data_dir=tmp_path) as broker:
        assert Cordwood(broker.bootstrap_servers).json("cluster", "upgrade", "--yes")["finalised"]
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*.log"))
    with pytest.raises(UnsupportedMetadata, match="has version 3, and this broker supports only version 1"):
        Broker(data_dir=tmp_path, settings=OLD).start()
    assert sorted((path, path.read_bytes()) for path in tmp_path.rglob("*.log")) == before
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, "orders")
