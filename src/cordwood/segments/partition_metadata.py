"""`partition.metadata`: which topic a partition's directory belongs to, by id.

A deleted topic's name may be used again; the id tells the old directory from the new topic's. The third line is a
checksum of the two before it, so that a flipped bit is never taken for the id of another topic. Kafka reads two lines
and ignores the third; files of Kafka's, which have two, are read as well.
"""

import base64
import binascii
import uuid
import zlib

from cordwood.model.identifiers import TopicId
from cordwood.records.batch import Buffer
from cordwood.segments.damaged import DamagedCheckpoint

FILE_NAME = "partition.metadata"


def topic_id_text(topic_id: TopicId) -> str:
    """A topic id as Kafka writes it: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """The id that this text stands for; ValueError if none."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r}")
    return uuid.UUID(bytes=raw)


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """The content of the file."""
    lines = f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode("ascii")
    return lines + f"checksum: {zlib.crc32(lines):08x}\n".encode("ascii")


def decode_partition_metadata(data: Buffer) -> TopicId:
    """The topic id in the file. DamagedCheckpoint if it has none that can be believed."""
    try:
        lines = bytes(data).decode("ascii").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if line)
        if fields.keys() - {"checksum"} != {"version", "topic_id"} or fields["version"] != "0":
            raise ValueError("expected version 0 and a topic_id")
        topic_id = parse_topic_id(fields["topic_id"])
        if "checksum" in fields and bytes(data) != encode_partition_metadata(topic_id):
            raise ValueError("the checksum is not that of the topic id")
        return topic_id
    except ValueError as error:
        raise DamagedCheckpoint(f"partition.metadata: {error}") from None
