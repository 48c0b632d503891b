"""The raw client against an Apache Kafka, if one can be had: the Spark source and sink work with it, too."""

import os
from collections.abc import Iterator

import pytest
from benchmarks.kafka_peer import KafkaBroker, KafkaJars
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conftest import await_topic
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client.cluster import EARLIEST, LATEST, NO_POSITION, Cluster, Isolation, Produced
from cordwood.client.errors import OffsetOutOfRange, RequestRefused, UnknownTopic, VersionMismatch
from cordwood.client.settings import ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Codec
from cordwood.wire.apis import ApiKey

pytestmark = pytest.mark.timeout(720)

PATIENT_MS = 300_000


@pytest.fixture(scope="module")
def kafka(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with KafkaBroker(kafka_jars, tmp_path_factory.mktemp("kafka"), heap="256m", settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(kafka: KafkaBroker) -> Iterator[Cluster]:
    with Cluster(ClientSettings(kafka.bootstrap, retry_timeout_ms=PATIENT_MS)) as cluster:
        yield cluster


def new_topic(kafka: KafkaBroker, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(120)
    await_topic(admin, name, partitions)
    return name


def values(start: int, count: int) -> list[bytes]:
    return [f"{number:08d}".encode() * 10 for number in range(start, start + count)]


def test_batches_go_in_and_come_out(cluster: Cluster, kafka: KafkaBroker) -> None:
    name = new_topic(kafka, "batches", partitions=3)
    partitions = [TopicPartition(name, index) for index in range(3)]
    assert set(cluster.topics([name, "no-such-topic"])) == {name}
    producer = cluster.init_producer_id()
    pipeline = cluster.pipeline()
    for place in range(20):
        codec = list(Codec)[place % len(Codec)]
        batch = batch_of(values(10 * place, 10), producer=producer, sequence=10 * place, codec=codec)
        pipeline.send({partition: [batch] for partition in partitions})
    assert pipeline.finish() == {partition: Produced(0, 200) for partition in partitions}
    assert cluster.list_offsets(dict.fromkeys(partitions, LATEST))[partitions[2]].offset == 200
    for partition in partitions:
        assert records_of(cluster.stream(partition, 0, 200, max_bytes=3_000)) == list(enumerate(values(0, 200)))
    with pytest.raises(OffsetOutOfRange, match="ends at 200"):
        cluster.fetch(partitions[0], 201)
    with pytest.raises(UnknownTopic, match="no-such-topic does not exist"):
        cluster.fetch(TopicPartition("no-such-topic", 0), 0)


def test_positions_and_settings(cluster: Cluster, kafka: KafkaBroker) -> None:
    partition = TopicPartition(new_topic(kafka, "positions"), 0)
    cluster.commit("a-group", {partition: 3})
    cluster.commit("a-note", {partition: NO_POSITION}, metadata="a note", retention_ms=600_000)
    assert cluster.committed("a-group") == {partition: 3}
    assert cluster.committed("a-note") == {}
    assert cluster.committed_with_metadata("a-note") == {partition: (NO_POSITION, "a note")}
    assert set(cluster.groups()) >= {"a-group", "a-note"}
    cluster.delete_group("a-group")
    assert cluster.committed("a-group") == {}
    assert "a-group" not in cluster.groups()
    assert cluster.describe_configs(partition.topic)["cleanup.policy"] == "delete"


def test_transactions(cluster: Cluster, kafka: KafkaBroker) -> None:
    name = new_topic(kafka, "transactions", partitions=2)
    partitions = [TopicPartition(name, index) for index in range(2)]
    assert cluster.transaction_version == 2
    producer = cluster.init_producer_id("a-writer")
    for number, commit in enumerate((True, False, True)):
        batch = batch_of(values(number, 5), producer=producer, sequence=0, transactional=True)
        cluster.produce({partition: [batch] for partition in partitions}, transactional_id="a-writer")
        cluster.commit_in_transaction("a-writer", producer, "another-group", {partitions[0]: number})
        producer = cluster.end_transaction("a-writer", producer, commit=commit)
    newer = cluster.init_producer_id("a-writer")
    with pytest.raises(RequestRefused) as refused:
        cluster.end_transaction("a-writer", newer._replace(producer_epoch=0), commit=True)
    assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert cluster.committed("another-group") == {partitions[0]: 2}
    for partition in partitions:

        def found(partition: TopicPartition = partition) -> bool:
            end = cluster.list_offsets({partition: LATEST}, Isolation.READ_COMMITTED)[partition].offset
            answers = cluster.stream(partition, 0, end, isolation=Isolation.READ_COMMITTED)
            return [value for _, value in records_of(answers, committed=True)] == values(0, 5) + values(2, 5)

        eventually(found, what="both committed transactions")


def test_there_are_no_families(cluster: Cluster) -> None:
    assert not cluster.supports(ApiKey.FAMILY_JOIN)
    with pytest.raises(VersionMismatch, match="does not have it: FamilyJoin"):
        cluster.family_join("a-family", 0, timeout_ms=1000)


@pytest.mark.skipif(
    "CORDWOOD_KAFKA_RESTARTS" not in os.environ, reason="half a minute; CORDWOOD_KAFKA_RESTARTS=1 runs it"
)
def test_a_restart_in_the_middle_of_a_stream(cluster: Cluster, kafka: KafkaBroker) -> None:
    partition = TopicPartition(new_topic(kafka, "restarted"), 0)
    cluster.produce({partition: [batch_of(values(10 * place, 10)) for place in range(30)]})
    assert cluster.list_offsets({partition: EARLIEST})[partition].offset == 0
    stream = cluster.stream(partition, 0, 300, max_bytes=2_000)
    answers = [next(stream)]
    kafka.kill()
    kafka.start(wait=False)
    answers += stream
    assert records_of(answers) == list(enumerate(values(0, 300)))
