"""Checkpoint files of offsets, and partition.metadata: Kafka's text, whole or refused."""

import uuid

import pytest

from cordwood.model.identifiers import TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.segments.offset_checkpoint import decode_offsets, encode_offsets
from cordwood.segments.partition_metadata import (
    PartitionMetadata,
    TopicDescription,
    decode_partition_metadata,
    encode_partition_metadata,
    parse_topic_id,
    topic_id_text,
)

OFFSETS = {TopicPartition("orders", 1): 7, TopicPartition("orders", 0): 12345678901, TopicPartition("a.b-c", 10): 0}
TOPIC_ID = uuid.UUID("5ba1bd61-1c1c-4e4b-8e3b-0b27df4f9ee0")
DESCRIBED = PartitionMetadata(TOPIC_ID, TopicDescription(12, {"retention.ms": "60000"}), 3)


def test_offsets_are_text_sorted_by_partition() -> None:
    assert encode_offsets(OFFSETS) == b"0\n3\na.b-c 10 0\norders 0 12345678901\norders 1 7\n"
    assert encode_offsets({}) == b"0\n0\n"


def test_offsets_are_read_back_in_any_order() -> None:
    assert decode_offsets(encode_offsets(OFFSETS)) == OFFSETS
    assert decode_offsets(b"0\n2\nb 0 1\na 0 2\n") == {TopicPartition("b", 0): 1, TopicPartition("a", 0): 2}


def test_a_file_cut_anywhere_is_refused() -> None:
    whole = encode_offsets(OFFSETS)
    for cut in range(len(whole)):
        with pytest.raises(DamagedCheckpoint):
            decode_offsets(whole[:cut])


@pytest.mark.parametrize(
    "line", ["a 0", "a 0 1 2", "a x 1", "a 0 x", "a -1 5", "a 0 -5", " 0 1", "a 0 1\na 0 2", "a 0 ²", "a 0 1_0"]
)
def test_lines_that_are_no_entry_are_refused(line: str) -> None:
    with pytest.raises(DamagedCheckpoint):
        decode_offsets(f"0\n{line.count(chr(10)) + 1}\n{line}\n".encode())


def test_partition_metadata_holds_the_topic_id_as_kafka_writes_it() -> None:
    data = encode_partition_metadata(DESCRIBED)
    kafkas = b"version: 0\ntopic_id: W6G9YRwcTkuOOwsn30-e4A"
    assert data.startswith(kafkas + b'\npartition: 3\npartitions: 12\nsettings: {"retention.ms": "60000"}\nchecksum: ')
    assert decode_partition_metadata(data) == DESCRIBED
    earlier = kafkas + b"\nchecksum: a014946b\n"
    for content in (kafkas, kafkas + b"\n", earlier):
        assert decode_partition_metadata(content) == PartitionMetadata(TOPIC_ID)
    assert parse_topic_id(topic_id_text(TOPIC_ID)) == TOPIC_ID


def test_no_flipped_bit_makes_partition_metadata_name_another_topic() -> None:
    data = encode_partition_metadata(DESCRIBED)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedCheckpoint):
            decode_partition_metadata(flipped)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 1\ntopic_id: W6G9YRwcTkuOOwsn30-e4A",
        "version: 0\ntopic_id: W6G9YRwcTkuOOwsn30-e4",
        "version: 0\ntopic_id: W6G9YRwcTkuOOwsn30-e4A\nmore: x",
        "version: 0\ntopic_id: ??????????????????????",
        "version 0\ntopic_id W6G9YRwcTkuOOwsn30-e4A",
        "\xff",
    ],
)
def test_partition_metadata_without_a_topic_id_is_refused(text: str) -> None:
    with pytest.raises(DamagedCheckpoint):
        decode_partition_metadata(text.encode("latin-1"))
