"""The raw client against a real broker: topics, offsets, reading, writing, positions."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from tests.conftest import MakeTopic, RunningBroker
from tests.interop.confluent_clients import produce_all, read_to_end
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client.cluster import EARLIEST, LATEST, NO_POSITION, Cluster, FoundOffset, Isolation, Produced
from cordwood.client.errors import BrokerUnreachable, ClientError, OffsetOutOfRange, RequestRefused, UnknownTopic
from cordwood.client.settings import ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Codec
from cordwood.wire.apis import ApiKey

pytestmark = pytest.mark.landing


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        yield cluster


def numbered(start: int, count: int, size: int = 20) -> list[bytes]:
    return [f"{number:010d}".encode().ljust(size, b".") for number in range(start, start + count)]


def fill(cluster: Cluster, partition: TopicPartition, batches: int, per_batch: int, size: int = 20) -> list[bytes]:
    values = numbered(0, batches * per_batch, size)
    parts = [batch_of(values[place : place + per_batch]) for place in range(0, len(values), per_batch)]
    cluster.produce({partition: parts})
    return values


# Metadata.


def test_topics_are_told_and_absent_ones_are_absent(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(3)
    found = cluster.topics([name, "no-such-topic"])
    assert list(found) == [name]
    topic = found[name]
    assert topic.topic_id is not None
    assert [partition.index for partition in topic.partitions] == [0, 1, 2]
    assert all(partition.leader_id >= 0 for partition in topic.partitions)


def test_all_topics_and_no_topics(cluster: Cluster, topic: str) -> None:
    assert topic in cluster.topics()
    assert cluster.topics([]) == {}


def test_asking_for_a_topic_does_not_create_it(cluster: Cluster) -> None:
    for _ in range(2):
        assert cluster.topics(["never-created"]) == {}
    assert "never-created" not in cluster.topics()


def test_versions_are_those_of_the_broker(cluster: Cluster) -> None:
    assert cluster.api_versions()[ApiKey.FETCH][1] >= 16
    assert cluster.supports(ApiKey.PRODUCE)
    assert not cluster.supports(ApiKey.VOTE)
    assert cluster.transaction_version == 2


def test_settings_of_a_topic(cluster: Cluster, make_topic: MakeTopic) -> None:
    configs = cluster.describe_configs(make_topic(**{"retention.ms": "123456"}))
    assert configs["retention.ms"] == "123456"
    assert configs["cleanup.policy"] == "delete"
    with pytest.raises(UnknownTopic, match="no-such-topic does not exist"):
        cluster.describe_configs("no-such-topic")


def test_offsets_by_position_and_by_time(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    cluster.produce({first: [batch_of(numbered(0, 10), timestamp_ms=5_000)]})
    assert cluster.list_offsets({first: EARLIEST, second: LATEST}) == {
        first: FoundOffset(0, -1, 0),
        second: FoundOffset(0, -1, 0),
    }
    assert cluster.list_offsets({first: LATEST})[first].offset == 10
    assert cluster.list_offsets({first: 5_003})[first] == FoundOffset(3, 5_003, 0)
    assert cluster.list_offsets({first: 5_010})[first].offset == -1


def test_offsets_of_partitions_that_do_not_exist_are_absent(cluster: Cluster, topic: str) -> None:
    known = TopicPartition(topic, 0)
    wanted = {known: LATEST, TopicPartition(topic, 1): LATEST, TopicPartition("no-such-topic", 0): LATEST}
    assert set(cluster.list_offsets(wanted)) == {known}


# Reading.


def test_one_fetch_gives_whole_batches_and_where_to_go_on(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=4, per_batch=10)
    fetched = cluster.fetch(partition, 15, max_bytes=1)
    assert (fetched.base, fetched.next_offset) == (10, 20)
    assert (fetched.high_watermark, fetched.log_start_offset) == (40, 0)
    assert records_of([fetched]) == [(offset, values[offset]) for offset in range(10, 20)]


def test_a_fetch_at_the_end_waits_and_finds_nothing(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, partition, batches=1, per_batch=3)
    fetched = cluster.fetch(partition, 3, max_wait_ms=10)
    assert not fetched.records
    assert (fetched.base, fetched.next_offset, fetched.high_watermark) == (3, 3, 3)


@pytest.mark.parametrize("read_ahead", [0, 1])
@pytest.mark.parametrize(("start", "end"), [(0, 500), (0, 1), (3, 17), (10, 20), (499, 500), (0, 250), (7, 7), (9, 2)])
def test_a_stream_gives_every_record_of_its_range_once_and_in_order(
    cluster: Cluster, topic: str, start: int, end: int, read_ahead: int
) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=50, per_batch=10)
    answers = list(cluster.stream(partition, start, end, max_bytes=2_000, read_ahead=read_ahead))
    found = [(offset, value) for offset, value in records_of(answers) if start <= offset < end]
    assert found == [(offset, values[offset]) for offset in range(start, end)]
    # No batch begins at the end or beyond it.
    assert all(answer.base < end for answer in answers)
    assert max((offset for offset, _ in records_of(answers)), default=-1) < -(-end // 10) * 10


def test_what_a_stream_gives_stays_as_it_is(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=30, per_batch=100, size=1000)
    kept = list(cluster.stream(partition, 0, 3000, max_bytes=300_000))
    assert len(kept) > 5
    assert records_of(kept) == list(enumerate(values))


def test_a_batch_larger_than_what_is_asked_for_comes_whole(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=3, per_batch=10, size=50_000)
    assert records_of(cluster.stream(partition, 0, 30, max_bytes=1_000)) == list(enumerate(values))


def test_a_stream_that_is_left_does_not_disturb_what_comes_after_it(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=20, per_batch=10)
    for _ in range(3):
        stream = cluster.stream(partition, 0, 200, max_bytes=500)
        next(stream)
        stream.close()
    assert records_of(cluster.stream(partition, 0, 200)) == list(enumerate(values))


def test_streams_and_other_calls_can_be_mixed(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    values = fill(cluster, first, batches=20, per_batch=10)
    fill(cluster, second, batches=20, per_batch=10)
    streams = [cluster.stream(each, 0, 200, max_bytes=500) for each in (first, second)]
    found: list[list[tuple[int, bytes]]] = [[], []]
    for answers in zip(*streams, strict=True):
        assert cluster.list_offsets({first: LATEST})[first].offset == 200
        for place, answer in enumerate(answers):
            found[place] += records_of([answer])
    assert found == [list(enumerate(values))] * 2


def test_an_offset_that_is_not_there_is_named_with_those_that_are(
    cluster: Cluster, topic: str, admin: AdminClient
) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, partition, batches=3, per_batch=10)
    admin.delete_records([Position(topic, 0, 20)])[Position(topic, 0)].result(timeout=60)
    with pytest.raises(OffsetOutOfRange, match="everything below offset 20") as below:
        list(cluster.stream(partition, 5, 30))
    raised = below.value
    assert (raised.partition, raised.asked, raised.log_start_offset, raised.log_end_offset) == (partition, 5, 20, 30)
    with pytest.raises(OffsetOutOfRange, match="ends at 30"):
        cluster.fetch(partition, 31)


def test_a_topic_that_does_not_exist_is_told_at_once(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic does not exist"):
        cluster.fetch(TopicPartition("no-such-topic", 0), 0)


def test_a_partition_that_does_not_exist_is_told_at_once(cluster: Cluster, topic: str) -> None:
    with pytest.raises(UnknownTopic, match="has 1 partitions"):
        cluster.fetch(TopicPartition(topic, 1), 0)


# Writing.


def test_what_is_produced_is_what_other_clients_read(
    cluster: Cluster, broker: RunningBroker, make_topic: MakeTopic
) -> None:
    name = make_topic(3)
    batches = {
        TopicPartition(name, index): [
            batch_of(numbered(100 * index + 10 * place, 10), codec=Codec.ZSTD) for place in range(3)
        ]
        for index in range(3)
    }
    produced = cluster.produce(batches)
    assert produced == {partition: Produced(0, 30) for partition in batches}
    for index in range(3):
        values = [message.value() for message in read_to_end(broker.bootstrap, name, [index])]
        assert values == numbered(100 * index, 30)


def test_what_other_clients_produce_is_what_is_read(cluster: Cluster, broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    produce_all(producer, [{"topic": topic, "value": value} for value in numbered(0, 500)])
    partition = TopicPartition(topic, 0)
    assert [value for _, value in records_of(cluster.stream(partition, 0, 500))] == numbered(0, 500)


def test_a_duplicate_of_an_idempotent_producer_is_stored_once(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer = cluster.init_producer_id()
    batches = [batch_of(numbered(10 * n, 10), producer=producer, sequence=10 * n) for n in range(12)]
    assert cluster.produce({partition: batches}) == {partition: Produced(0, 120)}
    assert cluster.produce({partition: batches[-3:]}) == {partition: Produced(90, 120)}
    assert cluster.list_offsets({partition: LATEST})[partition].offset == 120


def test_a_gap_in_an_idempotent_producers_sequence_is_refused(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer = cluster.init_producer_id()
    cluster.produce({partition: [batch_of(numbered(0, 10), producer=producer, sequence=0)]})
    with pytest.raises(RequestRefused, match=f"{topic}-0: OUT_OF_ORDER_SEQUENCE_NUMBER") as refused:
        cluster.produce({partition: [batch_of(numbered(0, 10), producer=producer, sequence=11)]})
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_pipeline_takes_batches_while_others_are_on_their_way(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(4)
    producer = cluster.init_producer_id()
    pipeline = cluster.pipeline()
    for place in range(40):
        values = numbered(100 * place, 100, 1000)
        pipeline.send(
            {
                TopicPartition(name, index): [batch_of(values, producer=producer, sequence=100 * place)]
                for index in range(4)
            }
        )
    partitions = [TopicPartition(name, index) for index in range(4)]
    assert pipeline.finish() == {partition: Produced(0, 4000) for partition in partitions}
    for partition in partitions:
        assert records_of(cluster.stream(partition, 0, 4000)) == list(enumerate(numbered(0, 4000, 1000)))


def test_a_pipeline_bounds_what_is_on_its_way(broker: RunningBroker, topic: str) -> None:
    settings = ClientSettings(broker.bootstrap, max_in_flight_bytes=30_000, max_request_bytes=15_000)
    partition = TopicPartition(topic, 0)
    with Cluster(settings) as cluster:
        producer = cluster.init_producer_id()
        pipeline = cluster.pipeline()
        for place in range(20):
            values = numbered(10 * place, 10, 1000)
            pipeline.send({partition: [batch_of(values, producer=producer, sequence=10 * place)]})
        pipeline.finish()
        assert records_of(cluster.stream(partition, 0, 200)) == list(enumerate(numbered(0, 200, 1000)))


def test_a_pipeline_that_failed_takes_nothing_more(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer = cluster.init_producer_id()
    pipeline = cluster.pipeline()
    pipeline.send({partition: [batch_of(numbered(0, 1), producer=producer, sequence=0)]})
    pipeline.send({partition: [batch_of(numbered(0, 1), producer=producer, sequence=5)]})
    with pytest.raises(RequestRefused, match="OUT_OF_ORDER"):
        pipeline.finish()
    with pytest.raises(ClientError, match="failed before"):
        pipeline.send({partition: [batch_of(numbered(0, 1), producer=producer, sequence=1)]})


def test_acks_of_the_leader_and_of_nobody(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    assert cluster.produce({partition: [batch_of(numbered(0, 5))]}, acks=1) == {partition: Produced(0, 5)}
    assert cluster.produce({partition: [batch_of(numbered(5, 5))]}, acks=0) == {partition: Produced(-1, -1)}
    assert records_of(cluster.stream(partition, 0, 10)) == list(enumerate(numbered(0, 10)))


def test_a_batch_that_is_too_large_is_refused_with_the_reason(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(**{"max.message.bytes": "1000"})
    with pytest.raises(RequestRefused, match=r"max\.message\.bytes") as refused:
        cluster.produce({TopicPartition(name, 0): [batch_of(numbered(0, 1, 5000))]})
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


# Positions.


def test_positions_of_a_group_without_members(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(3)
    partitions = [TopicPartition(name, index) for index in range(3)]
    group = f"group-of-{name}"
    assert cluster.committed(group) == {}
    cluster.commit(group, {partitions[0]: 5, partitions[2]: 7}, metadata="batch 3")
    assert cluster.committed(group) == {partitions[0]: 5, partitions[2]: 7}
    assert cluster.committed(group, partitions[:2]) == {partitions[0]: 5}
    assert cluster.committed(group, []) == {}
    assert cluster.committed_with_metadata(group, partitions[:1]) == {partitions[0]: (5, "batch 3")}
    cluster.commit(group, {partitions[0]: 6, partitions[1]: 1}, metadata={partitions[1]: "first"})
    assert cluster.committed_with_metadata(group) == {
        partitions[0]: (6, ""),
        partitions[1]: (1, "first"),
        partitions[2]: (7, "batch 3"),
    }
    assert group in cluster.groups()
    cluster.delete_group(group)
    assert group not in cluster.groups()
    assert cluster.committed(group) == {}
    cluster.delete_group(group)


def test_a_text_without_a_position(cluster: Cluster, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    partition, other = TopicPartition(name, 0), TopicPartition(name, 1)
    group = f"group-of-{name}"
    cluster.commit(group, {partition: NO_POSITION}, metadata="a note", retention_ms=600_000)
    assert cluster.committed(group) == {}
    assert cluster.committed_with_metadata(group) == {partition: (NO_POSITION, "a note")}
    assert cluster.committed_with_metadata(group, [partition, other]) == {partition: (NO_POSITION, "a note")}
    cluster.delete_group(group)


def test_a_position_in_a_topic_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic, match="no-such-topic-0"):
        cluster.commit("some-group", {TopicPartition("no-such-topic", 0): 1})


# The connection.


def test_a_broker_that_is_not_there_is_named(broker: RunningBroker) -> None:
    settings = ClientSettings("127.0.0.1:1", retry_timeout_ms=100, retry_backoff_ms=10)
    with Cluster(settings) as cluster, pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1.*given up after"):
        cluster.topics()


def test_one_bootstrap_server_of_several_is_enough(broker: RunningBroker, topic: str) -> None:
    with Cluster(ClientSettings(f"127.0.0.1:1,{broker.bootstrap}")) as cluster:
        assert topic in cluster.topics()


def test_a_closed_client_says_so(broker: RunningBroker, topic: str) -> None:
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        cluster.topics()
    with pytest.raises(ClientError, match="closed"):
        cluster.topics()


@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_topic_without_transactions_is_the_same_for_every_reader(
    cluster: Cluster, topic: str, isolation: Isolation
) -> None:
    partition = TopicPartition(topic, 0)
    values = fill(cluster, partition, batches=5, per_batch=10)
    assert cluster.list_offsets({partition: LATEST}, isolation)[partition].offset == 50
    assert records_of(cluster.stream(partition, 0, 50, isolation=isolation)) == list(enumerate(values))
