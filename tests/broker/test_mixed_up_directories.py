"""Directories of brokers that were mixed up: a start on another's directory is refused, and changes nothing."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.confluent_clients import produce_all, read_to_end

from cordwood.embedded import Cluster
from cordwood.model.errors import StorageFailure


def test_brokers_on_swapped_directories_are_refused_before_the_cluster_hears_of_them(tmp_path: Path) -> None:
    values = [str(number) for number in range(10)]
    with Cluster(nodes=3, data_dir=tmp_path) as cluster:
        clients: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        # The first broker goes on, and would take the storage of the others for lost.
        topic = NewTopic("orders", 1, replica_assignment=[[2, 3]], config={"min.insync.replicas": "1"})
        administrator = AdminClient(clients)
        administrator.create_topics([topic])["orders"].result()
        records = [{"topic": "orders", "value": value, "partition": 0} for value in values]
        produce_all(Producer({**clients, "acks": "all"}), records)
        swapped = [cluster.brokers[2], cluster.brokers[3]]
        for broker in swapped:
            broker.stop()
        files = [tmp_path / f"node-{node_id}" / "meta.properties" for node_id in (2, 3)]
        texts = [file.read_text() for file in files]
        for file, text in zip(files, reversed(texts), strict=True):
            file.write_text(text)
        for broker, words in zip(swapped, ("node 3, not of node 2", "node 2, not of node 3"), strict=True):
            with pytest.raises(StorageFailure, match=f"has the data of {words}"):
                broker.start()
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        for broker in swapped:
            broker.start()
        read = read_to_end(cluster.bootstrap_servers, "orders", (0,), at_least=len(values))
        assert [(message.value() or b"").decode() for message in read] == values
