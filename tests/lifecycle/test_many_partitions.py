"""Ten thousand partitions on one node: made, written, counted, and there again after a clean stop and after a kill."""

from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.broker_process import BrokerProcess

PARTITIONS = 10_000
WRITTEN = range(0, PARTITIONS, 50)
TOPIC = "wide"


def ends(broker: BrokerProcess) -> dict[int, int]:
    """The end offset of every partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = {TopicPartition(TOPIC, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    return {asked.partition: answer.result(60).offset for asked, answer in admin.list_offsets(asked).items()}


@pytest.mark.stories
def test_ten_thousand_partitions_work_on_one_node(tmp_path: Path) -> None:
    expected = {index: int(index in WRITTEN) for index in range(PARTITIONS)}
    with BrokerProcess(tmp_path / "data", keep_port=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for index in WRITTEN:
            producer.produce(TOPIC, value=b"x", partition=index)
        assert producer.flush(60) == 0
        assert ends(broker) == expected
        assert broker.rss_bytes() < 256 << 20
        directories = [path for path in broker.data_dir.iterdir() if path.name.startswith(f"{TOPIC}-")]
        assert len(directories) == len(WRITTEN), "a partition without records has no files"
        assert broker.stop() == 0
        broker.start()
        assert ends(broker) == expected
        broker.kill()
        broker.start()
        assert ends(broker) == expected
