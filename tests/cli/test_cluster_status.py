"""`cordwood cluster status` against a real broker. tests/cluster looks at clusters in trouble."""

from tests.cli.conftest import Cordwood
from tests.conftest import MakeTopic

from cordwood.cluster.metadata.versions import FIRST_VERSION


def test_a_broker_alone_is_a_cluster_without_trouble(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    status = cordwood_cli.json("cluster", "status")
    (node,) = status["nodes"]
    assert node["controller"]
    assert not node["fenced"]
    assert node["leads"] == node["replicas"] == status["partitions"] >= 3
    # Topics of other tests may demand more replicas than one broker has.
    assert topic not in {trouble["topic"] for trouble in status["troubles"]}
    assert status["offline"] == status["under_replicated"] == 0
    text = cordwood_cli("cluster", "status")
    assert f"cluster {status['cluster_id']}: 1 broker" in text
    assert "serves, controller" in text
    assert status["metadata_version"] >= FIRST_VERSION
    assert f", metadata version {status['metadata_version']}" in text


def test_more_replicas_demanded_than_there_are_is_a_trouble(cordwood_cli: Cordwood, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"min.insync.replicas": "2"})
    status = cordwood_cli.json("cluster", "status")
    (trouble,) = [trouble for trouble in status["troubles"] if trouble["topic"] == topic]
    assert trouble["below_min_in_sync"]
    assert not trouble["under_replicated"]
    assert "below min.insync.replicas 2" in cordwood_cli("cluster", "status")
    assert cordwood_cli.run("cluster", "status", "--exit-code").exit_code == 5
    cordwood_cli("topic", "delete", topic, "--yes")
