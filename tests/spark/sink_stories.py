"""Shared parts of the sink's tests: rows to write, readers of committed records, and questions about families."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition
from tests.interop.confluent_clients import read_some, read_to_end, reader

from cordwood.client.cluster import Cluster
from cordwood.client.families import FamilyDescription
from cordwood.client.settings import ClientSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


READ_COMMITTED = {"isolation.level": "read_committed"}


def committed(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """The records that a read_committed consumer sees. Writers have to pause: a topic that gets records faster than a
    fetch waits has no end."""
    return read_to_end(bootstrap, topic, range(partitions), config=READ_COMMITTED, timeout_s=60)


def wait_for_a_commit(bootstrap: str, topic: str, partitions: int, timeout_s: float) -> None:
    """Waits until a read_committed consumer sees a record, also of a query that goes on committing."""
    consumer = reader(bootstrap, READ_COMMITTED)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        read_some(consumer, 1, timeout_s)
    finally:
        consumer.close()


def values(messages: Sequence[Message]) -> list[str]:
    return sorted((message.value() or b"").decode() for message in messages)


def doubled(texts: Sequence[str]) -> list[str]:
    return sorted(text for text, count in Counter(texts).items() if count > 1)


def write(frame: "DataFrame", bootstrap: str, topic: str | None = None, **options: object) -> None:
    """Writes a DataFrame in a batch."""
    writer = frame.write.format("cordwood").mode("append").option("kafka.bootstrap.servers", bootstrap)
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def write_stream(
    frame: "DataFrame", bootstrap: str, topic: str | None, checkpoint: Path, **options: object
) -> "StreamingQuery":
    """Writes the present rows of a stream in micro-batches, and ends."""
    writer = frame.writeStream.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    return writer.start()


class Lines:
    """A directory of text files as a stream: each file is one micro-batch, its lines are the rows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._files = 0

    def add(self, lines: Sequence[str]) -> None:
        hidden = self.directory / f".{self._files:06d}.txt"
        hidden.write_text("\n".join(lines))
        # Spark takes the oldest file first, and files that are written together would be equally old.
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)
        hidden.rename(self.directory / f"{self._files:06d}.txt")
        self._files += 1

    def stream(self, spark: "SparkSession", **options: object) -> "DataFrame":
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load(str(self.directory))


def run_to_end(query: "StreamingQuery") -> None:
    assert query.awaitTermination(600), "the query did not end"


def families(bootstrap: str) -> dict[str, FamilyDescription]:
    with Cluster(ClientSettings(bootstrap)) as cluster:
        return {family.name: family for family in cluster.families()}


def query_id(checkpoint: Path) -> str:
    """The query's id in Spark's metadata."""
    found: dict[str, Any] = json.loads((checkpoint / "metadata").read_text())
    return str(found["id"])


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Removes a commit, as if the driver had died after the sink committed and before Spark wrote that down."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
