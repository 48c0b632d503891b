"""The raw client when brokers die, topics go, and logs have holes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.broker_process import BrokerProcess
from tests.conftest import await_topic
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client.cluster import LATEST, Cluster, Isolation, OffsetRange, Produced
from cordwood.client.errors import BrokerUnreachable, OffsetOutOfRange, UnknownTopic
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.records.build import build_batch
from cordwood.segments.checkpoint_witness import witness_path
from cordwood.segments.offset_checkpoint import CLEANER_FILE

PATIENT_MS = 120_000


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker to kill and start again. Compacts as soon as it can, so that its logs have holes."""
    settings = {
        "log.cleaner.backoff.ms": "50",
        "log.retention.check.interval.ms": "50",
        "log.flush.offset.checkpoint.interval.ms": "50",
    }
    with BrokerProcess(tmp_path_factory.mktemp("mortal") / "data", settings=settings, keep_port=True) as process:
        yield process


@pytest.fixture
def settings(process: BrokerProcess) -> ClientSettings:
    return ClientSettings(process.bootstrap, retry_timeout_ms=PATIENT_MS)


@pytest.fixture
def cluster(settings: ClientSettings) -> Iterator[Cluster]:
    with Cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def admin(process: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 0})


def new_topic(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new], operation_timeout=20)[name].result(timeout=120)
    await_topic(admin, name, partitions)
    return name


def numbered(start: int, count: int, size: int = 100) -> list[bytes]:
    return [f"{number:010d}".encode().ljust(size, b".") for number in range(start, start + count)]


def fill(cluster: Cluster, partition: TopicPartition, count: int) -> list[bytes]:
    values = numbered(0, count)
    cluster.produce({partition: [batch_of(values[place : place + 10]) for place in range(0, count, 10)]})
    return values


class Restart(threading.Thread):
    """Starts the broker again after a moment, while the client is trying."""

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__()
        self._process = process

    def run(self) -> None:
        time.sleep(0.5)
        self._process.start()


@pytest.mark.landing
def test_a_stream_goes_on_when_the_broker_is_killed_and_comes_back(
    process: BrokerProcess, cluster: Cluster, admin: AdminClient
) -> None:
    partition = TopicPartition(new_topic(admin, "killed-while-read"), 0)
    values = fill(cluster, partition, 1000)
    stream = cluster.stream(partition, 0, 1000, max_bytes=10_000)
    answers = [next(stream) for _ in range(3)]
    process.kill()
    restart = Restart(process)
    restart.start()
    answers += stream
    restart.join()
    assert records_of(answers) == list(enumerate(values))


def test_a_pipeline_goes_on_when_the_broker_is_killed_and_stores_every_batch_once(
    process: BrokerProcess, cluster: Cluster, admin: AdminClient
) -> None:
    name = new_topic(admin, "killed-while-written", partitions=3)
    partitions = [TopicPartition(name, index) for index in range(3)]
    producer = cluster.init_producer_id()
    pipeline = cluster.pipeline()
    restart = Restart(process)
    for place in range(60):
        values = numbered(10 * place, 10)
        batch = batch_of(values, producer=producer, sequence=10 * place)
        pipeline.send({partition: [batch] for partition in partitions})
        if place == 30:
            # Some batches are on their way now, and their outcome is unknown.
            process.kill()
            restart.start()
    assert pipeline.finish() == {partition: Produced(0, 600) for partition in partitions}
    restart.join()
    for partition in partitions:
        assert records_of(cluster.stream(partition, 0, 600)) == list(enumerate(numbered(0, 600)))


def test_every_other_call_outlives_a_restart_too(process: BrokerProcess, cluster: Cluster, admin: AdminClient) -> None:
    partition = TopicPartition(new_topic(admin, "killed-while-asked"), 0)
    fill(cluster, partition, 100)
    cluster.commit("outliving", {partition: 5})
    process.kill()
    restart = Restart(process)
    restart.start()
    assert cluster.committed("outliving") == {partition: 5}
    restart.join()
    process.kill()
    restart = Restart(process)
    restart.start()
    assert cluster.list_offsets({partition: LATEST})[partition].offset == 100
    restart.join()


def test_a_transaction_is_ended_though_no_broker_can_be_reached_at_first(
    process: BrokerProcess, settings: ClientSettings, admin: AdminClient
) -> None:
    partition = TopicPartition(new_topic(admin, "killed-while-ended"), 0)
    with Cluster(settings) as cluster:
        producer = cluster.init_producer_id("outliving")
        batch = batch_of([b"one"], producer=producer, sequence=0, transactional=True)
        cluster.produce({partition: [batch]}, transactional_id="outliving")
    process.kill()
    restart = Restart(process)
    restart.start()
    with Cluster(settings) as cluster:  # without a connection that might still look open
        cluster.end_transaction("outliving", producer, commit=True)
        restart.join()
        answers = cluster.stream(partition, 0, 1, isolation=Isolation.READ_COMMITTED)
        assert records_of(answers, committed=True) == [(0, b"one")]


def test_a_broker_that_does_not_come_back_is_named_with_what_was_asked(
    process: BrokerProcess, admin: AdminClient
) -> None:
    partition = TopicPartition(new_topic(admin, "killed-for-good"), 0)
    impatient = ClientSettings(process.bootstrap, retry_timeout_ms=300)
    with Cluster(impatient) as cluster:
        fill(cluster, partition, 100)
        stream = cluster.stream(partition, 0, 100, max_bytes=1_000)
        next(stream)
        process.kill()
        try:
            with pytest.raises(BrokerUnreachable, match=rf"{process.bootstrap}.*given up after \d+ attempts"):
                list(stream)
        finally:
            process.start()


def test_a_topic_that_is_deleted_while_it_is_read_is_told(cluster: Cluster, admin: AdminClient) -> None:
    name = new_topic(admin, "deleted-while-read")
    partition = TopicPartition(name, 0)
    fill(cluster, partition, 1000)
    stream = cluster.stream(partition, 0, 1000, max_bytes=10_000)
    next(stream)
    admin.delete_topics([name], operation_timeout=20)[name].result(timeout=120)
    with pytest.raises(UnknownTopic, match=f"{name} does not exist"):
        list(stream)


def test_a_topic_that_is_created_again_is_not_read_on_in_the_middle(cluster: Cluster, admin: AdminClient) -> None:
    name = new_topic(admin, "replaced-while-read")
    partition = TopicPartition(name, 0)
    fill(cluster, partition, 1000)
    stream = cluster.stream(partition, 0, 1000, max_bytes=10_000)
    next(stream)
    admin.delete_topics([name], operation_timeout=20)[name].result(timeout=120)
    new_topic(admin, name)
    with Cluster(cluster.settings) as other:
        fill(other, partition, 1000)
    with pytest.raises(UnknownTopic, match=f"{name} was deleted and created again"):
        list(stream)
    # A new stream reads the new topic, and a write goes there.
    assert len(records_of(cluster.stream(partition, 0, 1000))) == 1000
    assert cluster.produce({partition: [batch_of([b"new"])]}) == {partition: Produced(1000, 1001)}


def test_a_topic_that_is_deleted_while_it_is_written_is_told(cluster: Cluster, admin: AdminClient) -> None:
    name = new_topic(admin, "deleted-while-written")
    partition = TopicPartition(name, 0)
    fill(cluster, partition, 10)
    admin.delete_topics([name], operation_timeout=20)[name].result(timeout=120)
    with pytest.raises(UnknownTopic, match=f"{name} does not exist"):
        fill(cluster, partition, 10)


def test_partitions_that_are_added_are_found(cluster: Cluster, admin: AdminClient) -> None:
    name = new_topic(admin, "grown")
    fill(cluster, TopicPartition(name, 0), 10)
    admin.create_partitions([NewPartitions(name, 3)])[name].result(timeout=120)
    eventually(lambda: len(cluster.topics([name])[name].partitions), to_be=3, what="three partitions")
    added = TopicPartition(name, 2)
    assert cluster.produce({added: [batch_of([b"new"])]}) == {added: Produced(0, 1)}


def compacted_topic(admin: AdminClient, name: str) -> TopicPartition:
    """A topic whose segments are rolled and compacted as soon as the broker looks."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.0",
        "delete.retention.ms": "0",
    }
    return TopicPartition(new_topic(admin, name, 1, **config), 0)


def records_left(cluster: Cluster, partition: TopicPartition, start: int, end: int) -> set[int]:
    """The offsets of this range that still have a record."""
    answer = cluster.fetch(partition, start, max_wait_ms=0)
    return {offset for offset, _ in records_of([answer])} & set(range(start, end))


def test_holes_of_a_compacted_log_are_no_loss(cluster: Cluster, admin: AdminClient) -> None:
    partition = compacted_topic(admin, "compacted")
    for place in range(5):
        values = numbered(10 * place, 10)
        cluster.produce({partition: [batch_of(values, key=b"same")]})
        time.sleep(0.25)
        cluster.produce({partition: [batch_of([b"other"], key=f"key {place}".encode())]})
    eventually(lambda: len(records_of([cluster.fetch(partition, 0)])) < 16, what="compaction")
    end = cluster.list_offsets({partition: LATEST})[partition].offset
    for start in (0, 3, 15, 40):
        offsets = [offset for offset, _ in records_of(cluster.stream(partition, start, end))]
        assert offsets == sorted(offsets)
        assert offsets[-1] == end - 1


def test_a_hole_at_the_end_of_the_log_ends_a_range(
    process: BrokerProcess, cluster: Cluster, admin: AdminClient
) -> None:
    """The log has a record, then tombstones, which compaction removes in time. The active segment is empty then, so the
    log has nothing from offset 1 to its end."""
    partition = compacted_topic(admin, "hollow")
    kept = batch_of([b"kept"], key=b"kept")
    gone = build_batch([(int(time.time() * 1000), b"gone", None, ())] * 10)
    cluster.produce({partition: [kept, gone, gone]})
    eventually(lambda: not records_left(cluster, partition, 1, 20), what="compaction of all but one tombstone")
    # A tombstone goes only at a second compaction, and a log is compacted again only for new records, unless the broker
    # has lost the files that record its compactions.
    process.stop()
    (process.data_dir / CLEANER_FILE).unlink()
    Path(witness_path(str(process.data_dir / CLEANER_FILE))).unlink()
    process.start()
    eventually(lambda: not records_left(cluster, partition, 1, 21), what="a log with nothing at its end")
    with Cluster(ClientSettings(process.bootstrap, fetch_max_wait_ms=10)) as hasty:
        for isolation in Isolation:
            for start, end in ((0, 21), (1, 21), (0, 20), (20, 21)):
                found = records_of(hasty.stream(partition, start, end, isolation=isolation))
                assert found == ([(0, b"kept")] if start == 0 else [])


def test_many_ranges_are_read_in_a_few_requests(cluster: Cluster, admin: AdminClient) -> None:
    name = new_topic(admin, "many-ranges", partitions=40)
    partitions = [TopicPartition(name, index) for index in range(40)]
    values = {partition: numbered(1000 * partition.partition, 30) for partition in partitions}
    cluster.produce(
        {partition: [batch_of(of[:10]), batch_of(of[10:20]), batch_of(of[20:])] for partition, of in values.items()}
    )
    ranges = [OffsetRange(partition, partition.partition % 7, 30) for partition in partitions]
    ranges += [OffsetRange(partitions[3], 0, 5), OffsetRange(partitions[3], 5, 5), OffsetRange(partitions[3], 5, 30)]
    for max_bytes in (None, 1, 300_000):
        for wanted, stream in zip(ranges, cluster.streams(ranges, max_bytes=max_bytes), strict=True):
            partition, start, end = wanted
            found = [each for each in records_of(stream) if start <= each[0] < end]
            assert found == [(offset, values[partition][offset]) for offset in range(start, end)]


def test_trouble_with_one_of_many_ranges_is_its_own(
    process: BrokerProcess, cluster: Cluster, admin: AdminClient
) -> None:
    name = new_topic(admin, "many-ranges-in-trouble", partitions=30)
    partitions = [TopicPartition(name, index) for index in range(30)]
    cluster.produce({partition: [batch_of([b"one"]), batch_of([b"two"])] for partition in partitions})
    ranges = [OffsetRange(partition, 0, 2) for partition in partitions]
    ranges[4] = OffsetRange(partitions[4], 5, 9)
    ranges[7] = OffsetRange(TopicPartition("no-such-topic", 0), 0, 9)
    raised: list[type[Exception]] = []
    found = 0
    for place, stream in enumerate(cluster.streams(ranges)):
        if place == 12:
            process.kill()
            process.start()
        if place == 20:
            stream.close()
        try:
            found += len(records_of(stream))
        except (OffsetOutOfRange, UnknownTopic) as error:
            raised.append(type(error))
    assert raised == [OffsetOutOfRange, UnknownTopic]
    assert found == 2 * 27
