"""`partition.metadata`: the topic of a partition's directory, and a description of the topic.

A deleted topic's name may be used again; the id tells the old directory from the new topic's. A topic that the metadata
has lost is rebuilt from the number of partitions and the topic's own settings: partitions without records have no
directory, and with fewer partitions a key's records would go to another partition.

The last line is a checksum of the lines before it, so that a flipped bit is never taken for the id of another topic.
Kafka reads two lines and ignores the rest. Kafka's own files, with two lines, and files of an earlier version, without
a description, are read as well.
"""

import base64
import binascii
import json
import uuid
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedCheckpoint

FILE_NAME = "partition.metadata"

_KAFKAS = {"version", "topic_id"}


class TopicDescription(NamedTuple):
    """The facts that rebuild a topic, besides its name and id."""

    partition_count: int
    overrides: Mapping[str, str]
    """The settings that were set on the topic itself."""


class PartitionMetadata(NamedTuple):
    topic_id: TopicId
    description: TopicDescription | None = None
    """None: the file is Kafka's, or an earlier version's."""
    partition: int | None = None
    """The number of the partition: the id is the same in all directories of a topic. None: as for the description."""


def topic_id_text(topic_id: TopicId) -> str:
    """A topic id as Kafka writes it: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """The topic id in this text. Raises ValueError for other texts."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r}")
    return uuid.UUID(bytes=raw)


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """The content of the file."""
    fields = {"version": "0", "topic_id": topic_id_text(metadata.topic_id)}
    if metadata.partition is not None:
        fields["partition"] = str(metadata.partition)
    if metadata.description is not None:
        fields["partitions"] = str(metadata.description.partition_count)
        fields["settings"] = json.dumps(dict(metadata.description.overrides), sort_keys=True)
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items()).encode("ascii")
    return lines + f"checksum: {zlib.crc32(lines):08x}\n".encode("ascii")


def decode_partition_metadata(data: Buffer) -> PartitionMetadata:
    """The content of the file. Raises DamagedCheckpoint if its topic id is missing or damaged."""
    try:
        lines = bytes(data).decode("ascii").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if line)
        if not fields.keys() >= _KAFKAS or fields["version"] != "0":
            raise ValueError("expected version 0 and a topic_id")
        number = int(fields["partition"]) if "partition" in fields else None
        metadata = PartitionMetadata(parse_topic_id(fields["topic_id"]), _description(fields), number)
        if fields.keys() != _KAFKAS and bytes(data) != encode_partition_metadata(metadata):
            raise ValueError("the checksum is not that of the lines before it")
        return metadata
    except (ValueError, AttributeError) as error:
        raise DamagedCheckpoint(f"partition.metadata: {error}") from None


def _description(fields: Mapping[str, str]) -> TopicDescription | None:
    if "partitions" not in fields or "settings" not in fields:
        return None
    return TopicDescription(int(fields["partitions"]), dict(json.loads(fields["settings"]).items()))
