"""Kafka's own dump tool reads the files of a segment that we wrote, and finds what is in them. Needs Java and Maven."""

import base64
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.kafka_peer import KafkaJars, install_kafka
from benchmarks.maven import PeerUnavailable

from cordwood.groups.consumer.member import ClassicPart, Current, MemberState, Profile
from cordwood.groups.consumer.partition_sets import NOTHING, share_of
from cordwood.groups.consumer.records import (
    CURRENT_TYPE,
    EXPRESSION_TYPE,
    MEMBER_TYPE,
    Resolution,
    encode_consumer_key,
    encode_current,
    encode_profile,
    encode_resolution,
)
from cordwood.groups.state.offset_records import Position
from cordwood.groups.state.offset_records import encode_key as encode_position_key
from cordwood.groups.state.offset_records import encode_value as encode_position
from cordwood.log.files.memory_filesystem import MemoryFilesystem
from cordwood.model.identifiers import TopicId, TopicPartition
from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.records.control import (
    LeaderChange,
    TransactionMarker,
    build_leader_change,
    build_transaction_marker,
)
from cordwood.records.records import records_in
from cordwood.segments.filesystem import File
from cordwood.segments.names import Suffix, segment_file
from cordwood.segments.producer_snapshot import ProducerSnapshotEntry, encode_snapshot
from cordwood.segments.rebuild import RebuiltSegment, rebuild
from cordwood.segments.scan import SegmentScan
from cordwood.transactions.families_records import Memory, family_record
from cordwood.transactions.log_records import encode_key, record_of
from cordwood.transactions.transaction import State, Transaction

NOW_MS = 1_700_000_000_000
BASE_OFFSET = 1000
CODEC_NAMES = {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
TOOL_CLASSES = ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments")
"""Kafka 4.2 moved it."""

PRODUCERS = [
    ProducerSnapshotEntry(7, 0, 99, 1234, 9, NOW_MS, -1, -1),
    ProducerSnapshotEntry(8, 1, -1, -1, 0, NOW_MS + 5, 5, 1100),
]


class WrittenSegment(NamedTuple):
    directory: Path
    file: File
    rebuilt: RebuiltSegment

    def path(self, suffix: Suffix) -> str:
        offset = self.rebuilt.next_offset if suffix == Suffix.SNAPSHOT else BASE_OFFSET
        return segment_file(str(self.directory), offset, suffix)


@pytest.fixture(scope="module")
def kafka() -> KafkaJars:
    try:
        return install_kafka()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka is not to be had: {reason}")


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> WrittenSegment:
    """Batches of every codec, an aborted transaction, a leader change, a compacted batch and an emptied one."""
    file = MemoryFilesystem().open("log", create=True)
    offset = BASE_OFFSET

    def append(batch: bytearray, count: int) -> None:
        nonlocal offset
        file.append(batch)
        offset += count

    for number in range(60):
        count = number % 4 + 1
        rows = [
            (NOW_MS + number * 10 + place, b"key-%d" % place, b"v" * (50 * number), (("h", b"x"), ("n", None)))
            for place in range(count)
        ]
        batch = build_batch(
            rows,
            base_offset=offset,
            codec=list(Codec)[number % 5],
            leader_epoch=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=offset - BASE_OFFSET,
            transactional=number >= 50,
        )
        append(batch, count)
    aborted = TransactionMarker(committed=False, coordinator_epoch=3)
    append(
        build_transaction_marker(
            aborted, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS + 700, base_offset=offset, leader_epoch=1
        ),
        1,
    )
    change = LeaderChange(1, (1, 2), (1,))
    append(build_leader_change(change, timestamp_ms=NOW_MS + 701, base_offset=offset, leader_epoch=2), 1)
    survivors = [(NOW_MS + 800, b"tombstone", None, ()), (NOW_MS + 790, b"kept", b"value", ())]
    append(
        build_batch(
            survivors, base_offset=offset, offset_deltas=[2, 5], last_offset_delta=8, delete_horizon_ms=NOW_MS + 10**6
        ),
        9,
    )
    append(build_batch([], base_offset=offset, last_offset_delta=3, leader_epoch=2), 4)

    rebuilt = rebuild(file, BASE_OFFSET, interval_bytes=512)
    assert rebuilt.invalid is None
    written = WrittenSegment(tmp_path_factory.mktemp("orders-0"), file, rebuilt)
    for suffix, content in {
        Suffix.LOG: file.read(0, file.size),
        Suffix.INDEX: rebuilt.indexes.offsets.to_bytes(),
        Suffix.TIME_INDEX: rebuilt.indexes.times.to_bytes(),
        Suffix.TXN_INDEX: rebuilt.transactions.to_bytes(),
        Suffix.SNAPSHOT: encode_snapshot(PRODUCERS),
    }.items():
        Path(written.path(suffix)).write_bytes(content)
    return written


def dump(kafka: KafkaJars, path: str, *options: str) -> list[str]:
    """The tool's lines for one file, also those on standard error: there it says what does not fit together."""
    for tool_class in TOOL_CLASSES:
        done = subprocess.run(
            kafka.command(tool_class, *options, "--files", path, jvm_flags=["-Xmx128m"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if "ClassNotFoundException" not in done.stdout:
            assert done.returncode == 0, done.stdout
            # Java names the options that it was given by the environment.
            return [line for line in done.stdout.splitlines() if not line.startswith("NOTE: Picked up")]
    raise AssertionError(f"Kafka {kafka.version} has no dump tool")


@pytest.mark.timeout(660)
def test_the_tool_finds_every_batch_and_record_of_the_log(kafka: KafkaJars, segment: WrittenSegment) -> None:
    lines = dump(kafka, segment.path(Suffix.LOG), "--deep-iteration", "--print-data-log")
    assert lines[1] == f"Log starting offset: {BASE_OFFSET}"
    found = iter(lines[2:])
    scan = SegmentScan(segment.file, BASE_OFFSET)
    for position, header in scan:
        horizon = "empty" if header.delete_horizon_ms is None else f"[{header.delete_horizon_ms}]"
        assert next(found) == (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {str(header.transactional).lower()} isControl: {str(header.control).lower()} "
            f"deleteHorizonMs: OptionalLong{'.' if horizon == 'empty' else ''}{horizon} position: {position} "
            f"CreateTime: {header.max_timestamp} size: {header.size} magic: 2 "
            f"compresscodec: {CODEC_NAMES[Codec(header.codec)]} crc: {header.crc} isvalid: true"
        )
        for record in records_in(scan.batch):
            line = next(found)
            assert line.startswith(f"| offset: {record.offset} CreateTime: {record.timestamp_ms} ")
            if not header.control:
                assert record.key is not None
                names = ",".join(name for name, _ in record.headers)
                assert f"headerKeys: [{names}] key: {record.key.decode()}" in line
                if record.value is not None:
                    assert line.endswith(f" payload: {record.value.decode()}")
    # What it warns of: a log that does not begin at 0, and the two gaps of the compacted batch.
    assert list(found)[1:] == [
        f"  -1 is followed by {BASE_OFFSET}",
        "  1151 is followed by 1154",
        "  1154 is followed by 1157",
    ]
    text = "\n".join(lines)
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in text
    assert (
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":2}],'
        '"grantingVoters":[{"voterId":1}]}'
    ) in text


@pytest.mark.timeout(660)
def test_the_tool_finds_every_entry_of_the_offset_index(kafka: KafkaJars, segment: WrittenSegment) -> None:
    lines = dump(kafka, segment.path(Suffix.INDEX))
    entries = segment.rebuilt.indexes.offsets.entries()
    assert len(entries) > 10
    assert lines[1:] == [f"offset: {BASE_OFFSET + offset} position: {position}" for offset, position in entries]
    assert "passed sanity check" in dump(kafka, segment.path(Suffix.INDEX), "--index-sanity-check")[1]


@pytest.mark.timeout(660)
def test_the_tool_finds_every_entry_of_the_time_index(kafka: KafkaJars, segment: WrittenSegment) -> None:
    lines = dump(kafka, segment.path(Suffix.TIME_INDEX))
    entries = segment.rebuilt.indexes.times.entries()
    assert len(entries) > 10
    assert lines[1:] == [f"timestamp: {timestamp} offset: {BASE_OFFSET + offset}" for timestamp, offset in entries]
    assert "passed sanity check" in dump(kafka, segment.path(Suffix.TIME_INDEX), "--index-sanity-check")[1]


@pytest.mark.timeout(660)
def test_the_tool_finds_the_aborted_transaction_and_the_producers(kafka: KafkaJars, segment: WrittenSegment) -> None:
    (aborted,) = segment.rebuilt.transactions.entries()
    assert dump(kafka, segment.path(Suffix.TXN_INDEX))[1:] == [
        f"version: 0 producerId: 7 firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
        f"lastStableOffset: {aborted.last_offset + 1}"
    ]
    first, second = dump(kafka, segment.path(Suffix.SNAPSHOT))[1:]
    assert first == (
        f"producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {NOW_MS} firstSequence: 90 lastSequence: 99 lastOffset: 1234 offsetDelta: 9 "
        f"timestamp: {NOW_MS}"
    )
    assert re.match(
        r"producerId: 8 producerEpoch: 1 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong\[1100\]", second
    )


@pytest.mark.timeout(660)
def test_the_tool_would_have_complained(kafka: KafkaJars, segment: WrittenSegment, tmp_path: Path) -> None:
    """That nothing was found above means something: on an index that is wrong by a byte the tool speaks up."""
    log = segment.file.read(0, segment.file.size)
    index = bytearray(segment.rebuilt.indexes.offsets.to_bytes())
    index[3] -= 1  # the first entry's offset
    Path(segment_file(str(tmp_path), BASE_OFFSET, Suffix.LOG)).write_bytes(log)
    path = segment_file(str(tmp_path), BASE_OFFSET, Suffix.INDEX)
    Path(path).write_bytes(index)
    assert "Mismatches in" in "\n".join(dump(kafka, path))


@pytest.mark.timeout(660)
def test_the_tool_understands_the_records_of_transactions(kafka: KafkaJars, tmp_path: Path) -> None:
    """Those of __transaction_state, with everything in them, also the fields and the records that are ours."""
    partitions = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 2)})
    transaction = Transaction(
        "writer",
        7,
        4,
        60_000,
        State.PREPARE_COMMIT,
        NOW_MS + 1,
        partitions,
        NOW_MS,
        5,
        6,
        2,
        last_producer_epoch=3,
        batch_id=41,
    )
    empty = Transaction("reader", 8, 0, 1000, State.EMPTY, NOW_MS)
    family = family_record("query", Memory(41, NOW_MS))
    records = [record_of(transaction), record_of(empty), (encode_key("gone"), None), family]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(NOW_MS, key, value, ()) for key, value in records]))
    lines = [line for line in dump(kafka, str(path), "--transaction-log-decoder") if line.startswith("| offset")]
    assert len(lines) == 4
    for wanted in ('"transactionalId":"writer"', '"producerId":7', '"previousProducerId":5', '"nextProducerId":6'):
        assert wanted in lines[0].replace(" ", "")
    for wanted in ('"transactionStatus":2', '"clientTransactionVersion":2', '"topic":"bills","partitionIds":[2]'):
        assert wanted in lines[0].replace(" ", "")
    assert '"transactionPartitions":null' in lines[1].replace(" ", "")
    assert '"transactionalId":"gone"' in lines[2].replace(" ", "")


@pytest.mark.timeout(660)
def test_the_tool_understands_the_records_of_positions_and_expressions(kafka: KafkaJars, tmp_path: Path) -> None:
    """Those of __consumer_offsets that only the newest of its versions have."""
    profile = Profile(None, None, "client", "/127.0.0.1", frozenset(), 1000, None, "ord.*")
    classic = profile._replace(classic=ClassicPart(6000, (("range", b"metadata"), ("sticky", b"more"))))
    first, second = (share_of([(TopicId(int=77), number)]) for number in (0, 1))
    current = Current(4, 3, MemberState.STABLE, first | second, NOTHING, ((2, first), (4, second)))
    records = [
        (
            encode_position_key("group", TopicPartition("orders", 3)),
            encode_position(Position(7, 2, "note", NOW_MS, topic_id=TopicId(int=77))),
        ),
        (
            encode_consumer_key(EXPRESSION_TYPE, "group", "ord.*"),
            encode_resolution(Resolution(frozenset({"orders", "ord"}), 5, NOW_MS)),
        ),
        (encode_consumer_key(MEMBER_TYPE, "group", "member"), encode_profile(profile)),
        (encode_consumer_key(EXPRESSION_TYPE, "group", "old"), None),
        (encode_consumer_key(CURRENT_TYPE, "group", "member"), encode_current(current)),
        (encode_consumer_key(MEMBER_TYPE, "group", "classic"), encode_profile(classic)),
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(NOW_MS, key, value, ()) for key, value in records]))
    lines = [line for line in dump(kafka, str(path), "--offsets-decoder") if line.startswith("| offset")]
    found = [line[line.index("key: ") :].replace(" ", "") for line in lines]
    assert found[0] == (
        'key:{"type":"1","data":{"group":"group","topic":"orders","partition":3}}payload:{"version":"4","data":'
        f'{{"offset":7,"leaderEpoch":2,"metadata":"note","commitTimestamp":{NOW_MS},"topicId":"AAAAAAAAAAAAAAAAAAAATQ"}}}}'
    )
    assert found[1] == (
        'key:{"type":"16","data":{"groupId":"group","regularExpression":"ord.*"}}payload:{"version":"0","data":'
        f'{{"topics":["ord","orders"],"version":5,"timestamp":{NOW_MS}}}}}'
    )
    assert '"subscribedTopicNames":[],"subscribedTopicRegex":"ord.*"' in found[2]
    assert found[3] == 'key:{"type":"16","data":{"groupId":"group","regularExpression":"old"}}payload:<DELETE>'
    assert '"memberEpoch":4,"previousMemberEpoch":3,"state":0' in found[4]
    assert '"partitions":[0,1],"assignmentEpochs":[2,4]' in found[4]
    names = [('"name":"range"', "metadata"), ('"name":"sticky"', "more")]
    assert '"classicMemberMetadata":{"sessionTimeoutMs":6000,"supportedProtocols":[' in found[5]
    for name, metadata in names:
        assert f'{name},"metadata":"{base64.b64encode(metadata.encode()).decode()}"' in found[5]
