"""The checkpoint files of a data directory: one offset per partition.

`recovery-point-offset-checkpoint` (below it everything is fsynced), `log-start-offset-checkpoint` (where readable
history begins), `cleaner-offset-checkpoint` (up to where the log is compacted) and `replication-offset-checkpoint` (the
high watermark of replicated partitions). Kafka's text format: version 0, count, then lines "topic partition offset".

`high-watermark-epoch-checkpoint` is our own, with one number more in each line: the high watermark, and the leader
epoch in which the replica knew it.
"""

from collections.abc import Iterable, Mapping

from cordwood.model.identifiers import TopicPartition
from cordwood.records.batch import Buffer
from cordwood.segments.checkpoint_text import decode_lines, encode_lines, number
from cordwood.segments.damaged import DamagedCheckpoint

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
WATERMARK_EPOCH_FILE = "high-watermark-epoch-checkpoint"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of a checkpoint file, sorted so that equal maps give equal files."""
    return encode_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(data: Buffer) -> dict[TopicPartition, int]:
    """The offset of every partition. DamagedCheckpoint if the file is not whole."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in decode_lines(data, 3):
        key = TopicPartition(topic, number(partition))
        if not topic or key.partition < 0 or number(offset) < 0 or key in offsets:
            raise DamagedCheckpoint(f"checkpoint: not an entry: {topic!r} {partition} {offset}")
        offsets[key] = number(offset)
    return offsets


def encode_watermark_epochs(known: Iterable[tuple[TopicPartition, int, int]]) -> bytes:
    """The content of the file of partitions, their high watermarks, and the leader epochs of these."""
    return encode_lines([f"{name.topic} {name.partition} {offset} {epoch}" for name, offset, epoch in sorted(known)])


def decode_watermark_epochs(data: Buffer) -> dict[TopicPartition, tuple[int, int]]:
    """The high watermark of every partition, and its leader epoch. DamagedCheckpoint if the file is not whole."""
    return {
        TopicPartition(topic, number(partition)): (number(offset), number(epoch))
        for topic, partition, offset, epoch in decode_lines(data, 4)
    }
