"""A single broker and a cluster refuse each other's directories: partitions would start again, empty."""

from pathlib import Path

import pytest

from cordwood.broker.supervision.local_cluster import chosen_metadata
from cordwood.embedded import Broker
from cordwood.embedded.cluster import Cluster
from cordwood.model.errors import StorageFailure
from cordwood.model.failure import Failure


def test_a_single_broker_does_not_begin_on_the_metadata_of_a_cluster(tmp_path: Path) -> None:
    with Cluster(nodes=1, data_dir=tmp_path):
        pass
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageFailure, match=r"metadata of a cluster.*Nothing was changed.*cluster up --data-dir"):
        Broker(data_dir=tmp_path).start()
    after = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".lock"))
    assert "meta.properties" not in after
    assert set(before) <= set(after)
    with Cluster(nodes=1, data_dir=tmp_path):
        pass


def test_a_single_broker_does_not_begin_on_the_directory_of_a_node(tmp_path: Path) -> None:
    with Cluster(nodes=1, data_dir=tmp_path):
        pass
    with pytest.raises(StorageFailure, match=r"part of a cluster.*--cluster and --store"):
        Broker(data_dir=tmp_path / "node-1").start()


def test_a_cluster_does_not_begin_on_the_directory_of_a_single_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        pass
    for choice in ("auto", "supervisor", "etcd"):
        with pytest.raises(Failure, match="the data of a single broker") as refused:
            chosen_metadata(str(tmp_path), choice, None)
        assert "cluster import" in (refused.value.hint or "")
