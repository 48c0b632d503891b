"""Batches of ours read by other clients' record code, and theirs by ours: kafka-python's and aiokafka's, no broker."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from cordwood.model.settings.topic_settings import TopicSettings
from cordwood.records.batch import Codec, read_header
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.control import TransactionMarker, build_transaction_marker
from cordwood.records.records import records_in
from cordwood.records.validate import check_client_batch

pytestmark = pytest.mark.landing

NOW_MS = 1_700_000_000_000

RECORDS: list[NewRecord] = [
    (NOW_MS, b"key", b"value", ()),
    (NOW_MS + 300, None, b"no key", ()),
    (NOW_MS - 70, b"tombstone", None, ()),
    (NOW_MS, b"", b"", (("name", b"value"), ("null", None), ("naïve ✓", b""))),
    (NOW_MS + 2**33, b"k" * 200, b"large " * 20_000, ()),
    *[(NOW_MS + number, b"%d" % number, b"value %d" % number, ()) for number in range(200)],
]


class Client(NamedTuple):
    name: str
    module: Any
    codecs: tuple[Codec, ...]


CLIENTS = [
    # kafka-python needs one more library for snappy; aiokafka and the Java tools cover that codec.
    Client("kafka-python", kafka_python_records, (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)),
    Client("aiokafka", aiokafka_records, tuple(Codec)),
]
CASES = [pytest.param(client, codec, id=f"{client.name}-{codec.name}") for client in CLIENTS for codec in client.codecs]


def plain(records: Iterable[Any]) -> list[NewRecord]:
    """A client's record objects as the tuples that build_batch takes."""
    return [
        (record.timestamp, record.key, record.value, tuple((name, value) for name, value in record.headers))
        for record in records
    ]


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_clients_read_what_we_build(client: Client, codec: Codec) -> None:
    batch = client.module.DefaultRecordBatch(bytes(build_batch(RECORDS, base_offset=1000, codec=codec)))
    assert batch.validate_crc()
    assert batch.next_offset == 1000 + len(RECORDS)
    records = list(batch)
    assert plain(records) == RECORDS
    assert [record.offset for record in records] == list(range(1000, 1000 + len(RECORDS)))


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_we_read_what_clients_build(client: Client, codec: Codec) -> None:
    builder = client.module.DefaultRecordBatchBuilder(2, codec.value, 0, 4000, 3, 17, 10**7)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(offset, timestamp, key, value, list(headers))
    built = bytearray(builder.build())
    header = check_client_batch(memoryview(built), TopicSettings(message_timestamp_after_max_ms=2**40), NOW_MS)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, 17)
    assert header.codec == codec
    assert [record[1:] for record in records_in(built)] == RECORDS


@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
def test_uncompressed_batches_are_the_same_bytes(client: Client) -> None:
    builder = client.module.DefaultRecordBatchBuilder(2, 0, 1, 4000, 3, 17, 10**7)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(offset, timestamp, key, value, list(headers))
    ours = build_batch(RECORDS, producer_id=4000, producer_epoch=3, base_sequence=17, transactional=True)
    theirs = bytearray(builder.build())
    theirs[12:16] = ours[12:16]  # the leader epoch: clients leave 0 or -1, the broker sets it
    assert ours == theirs


@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
@pytest.mark.parametrize("committed", [True, False])
def test_clients_know_a_transaction_marker(client: Client, committed: bool) -> None:
    data = build_transaction_marker(
        TransactionMarker(committed, 5), producer_id=7, producer_epoch=3, timestamp_ms=NOW_MS, base_offset=40
    )
    batch = client.module.DefaultRecordBatch(bytes(data))
    assert batch.is_control_batch
    assert batch.is_transactional
    (record,) = list(batch)
    assert record.offset == 40
    assert bytes(record.key) == (b"\x00\x00\x00\x01" if committed else b"\x00\x00\x00\x00")
    assert read_header(data).producer_id == batch.producer_id == 7


@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
def test_gaps_left_by_compaction_are_read_as_gaps(client: Client) -> None:
    kept = [RECORDS[0], RECORDS[2], RECORDS[3]]
    data = build_batch(kept, base_offset=50, offset_deltas=[1, 4, 8], last_offset_delta=9)
    batch = client.module.DefaultRecordBatch(bytes(data))
    assert [record.offset for record in batch] == [51, 54, 58]
    assert batch.next_offset == 60
