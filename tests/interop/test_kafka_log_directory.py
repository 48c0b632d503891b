"""The files of a real Kafka broker, read and made again by our code: byte for byte the same. Needs Java and Maven."""

from pathlib import Path

import pytest
from benchmarks.kafka_peer import KafkaBroker, install_kafka
from benchmarks.maven import PeerUnavailable
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.model.identifiers import TopicPartition
from cordwood.records.records import records_in
from cordwood.segments.filesystem import File
from cordwood.segments.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from cordwood.segments.leader_epochs import LeaderEpochs
from cordwood.segments.names import Stage, Suffix, parse_segment_file, segment_file
from cordwood.segments.offset_checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE, decode_offsets, encode_offsets
from cordwood.segments.partition_metadata import FILE_NAME as PARTITION_METADATA_FILE
from cordwood.segments.partition_metadata import decode_partition_metadata, encode_partition_metadata
from cordwood.segments.producer_snapshot import decode_snapshot, encode_snapshot
from cordwood.segments.rebuild import rebuild
from cordwood.segments.scan import SegmentScan
from cordwood.segments.transaction_index import OpenTransactions

pytestmark = pytest.mark.timeout(720)

PARTITION = TopicPartition("orders", 0)
INDEX_INTERVAL_BYTES = 512
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 40


def produced() -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % number, b"%s %d " % (codec.encode(), number) * 20) for codec in CODECS for number in range(40)]


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a Kafka broker leaves behind: several segments, every codec, committed and aborted transactions."""
    try:
        jars = install_kafka()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka is not to be had: {reason}")
    settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    broker = KafkaBroker(jars, tmp_path_factory.mktemp("kafka"), heap="256m", settings=settings)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        # A full index begins a new segment.
        config = {"segment.index.bytes": "48", "index.interval.bytes": str(INDEX_INTERVAL_BYTES)}
        admin.create_topics([NewTopic("orders", 1, 1, config=config)])["orders"].result(60)
        for codec in CODECS:
            common = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "batch.num.messages": 7}
            producer = Producer({**common, "enable.idempotence": True})
            for key, value in produced():
                if value.startswith(codec.encode()):
                    producer.produce("orders", value, key, headers={"codec": codec}, partition=0)
            assert producer.flush(60) == 0
        transactional = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        transactional.init_transactions(60)
        for finish in (transactional.commit_transaction, transactional.abort_transaction):
            transactional.begin_transaction()
            for number in range(10):
                transactional.produce("orders", b"in a transaction", b"%d" % number, partition=0)
            transactional.flush(60)
            finish(60)
    return broker.log_directory


@pytest.fixture(scope="module")
def partition_directory(data_directory: Path) -> Path:
    return data_directory / str(PARTITION)


def loaded(path: Path) -> File:
    file = MemoryFilesystem().open("log", create=True)
    file.append(path.read_bytes())
    return file


def base_offsets(partition_directory: Path) -> list[int]:
    names = [parse_segment_file(path.name) for path in sorted(partition_directory.iterdir())]
    return [name.base_offset for name in names if name and name[1:] == (Suffix.LOG, Stage.LIVE)]


def test_the_log_is_walked_to_its_end_and_every_record_is_found(partition_directory: Path) -> None:
    found: list[tuple[bytes | None, bytes | None]] = []
    codecs = set()
    next_offset = 0
    for base_offset in base_offsets(partition_directory):
        assert base_offset == next_offset
        file = loaded(Path(segment_file(str(partition_directory), base_offset, Suffix.LOG)))
        scan = SegmentScan(file, base_offset, contiguous=True)
        for _, header in scan:
            codecs.add(header.codec)
            if not header.transactional:
                found += [(record.key, record.value) for record in records_in(scan.batch)]
        assert scan.invalid is None
        next_offset = scan.next_offset
    assert found == produced()
    assert codecs == {0, 1, 2, 3, 4}


def test_its_indexes_made_again_by_us_are_the_same_bytes(partition_directory: Path) -> None:
    pending = OpenTransactions()
    segments = base_offsets(partition_directory)
    assert len(segments) > 1
    aborted = 0
    for base_offset in segments:

        def content(suffix: Suffix, base_offset: int = base_offset) -> bytes:
            path = Path(segment_file(str(partition_directory), base_offset, suffix))
            return path.read_bytes() if path.exists() else b""

        file = loaded(Path(segment_file(str(partition_directory), base_offset, Suffix.LOG)))
        rebuilt = rebuild(file, base_offset, interval_bytes=INDEX_INTERVAL_BYTES, open_transactions=pending)
        assert rebuilt.indexes.offsets.to_bytes() == content(Suffix.INDEX)
        assert rebuilt.indexes.times.to_bytes() == content(Suffix.TIME_INDEX)
        assert rebuilt.transactions.to_bytes() == content(Suffix.TXN_INDEX)
        aborted += len(rebuilt.transactions)
    assert aborted == 1


def test_its_producer_snapshots_are_understood(partition_directory: Path) -> None:
    snapshots = sorted(partition_directory.glob("*.snapshot"))
    data = snapshots[-1].read_bytes()
    producers = decode_snapshot(data)
    assert encode_snapshot(producers) == data
    assert len(producers) == len(CODECS) + 1
    assert all(producer.transaction_first_offset == -1 for producer in producers)
    assert sorted(producer.last_sequence for producer in producers)[-len(CODECS) :] == [RECORDS_PER_CODEC - 1] * 5


def test_its_checkpoints_are_understood(data_directory: Path, partition_directory: Path) -> None:
    epochs = (partition_directory / LEADER_EPOCHS_FILE).read_bytes()
    assert LeaderEpochs.from_bytes(epochs).to_bytes() == epochs
    assert LeaderEpochs.from_bytes(epochs).entries == ((0, 0),)
    metadata = (partition_directory / PARTITION_METADATA_FILE).read_bytes()
    assert encode_partition_metadata(decode_partition_metadata(metadata)).startswith(metadata)
    recovery_points = decode_offsets((data_directory / RECOVERY_POINT_FILE).read_bytes())
    assert recovery_points[PARTITION] > len(produced())
    assert decode_offsets(encode_offsets(recovery_points)) == recovery_points
    assert decode_offsets((data_directory / LOG_START_FILE).read_bytes()).get(PARTITION, 0) == 0
