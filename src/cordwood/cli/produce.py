"""`cordwood produce`."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TopicName,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.cli.terminal.record_text import (
    Headers,
    OutgoingRecord,
    bytes_as_given,
    headers_from_options,
    record_from_json,
)
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from cordwood.administration.connection import Connection


_RECORDS_PER_POLL = 1000
"""The number of records between two counts of acknowledgements; a call for every record would be most of the work."""

_POLL_S = 0.1


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


ACK_MEANINGS = {
    Acks.NONE: "not acknowledged (acks=0): records may be lost without a word",
    Acks.LEADER: "acknowledged by the leader (acks=1)",
    Acks.ALL: "acknowledged by every in-sync replica (acks=all)",
}


def produce(
    topic: TopicName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE", help="The records' values. Without any, each line of stdin.", show_default=False
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="The text between key and value in a line."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be given several times."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="The partition to write to. Without it the key decides."),
    ] = None,
    tombstone: Annotated[
        bool,
        typer.Option("--tombstone", help="Write one record with the key and no value: compaction removes the key."),
    ] = False,
    json_input: Annotated[
        bool,
        typer.Option(
            "--json-input", help='Each line is an object with "value" and, optionally, "key", "headers", "partition".'
        ),
    ] = False,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Which replicas must have a record before it is acknowledged.")
    ] = (Acks.ALL),
    compression: Annotated[Compression, typer.Option("--compression", help="How batches are compressed.")] = (
        Compression.NONE
    ),
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Append records to a topic.

    Values are arguments or lines of stdin. Records of one key go to one partition, which is the Java client's choice
    (murmur2), and are in order there. With acks=all the producer is idempotent: retries leave no duplicates.
    """
    if key is not None and (key_separator is not None or json_input):
        raise Failure("USAGE", "--key excludes --key-separator and --json-input", "give one", ExitCode.USAGE)
    if key_separator == "":
        raise Failure("USAGE", "a key separator cannot be empty", "an example: -K :", ExitCode.USAGE)
    if json_input and (key_separator is not None or values):
        raise Failure("USAGE", "--json-input reads lines of stdin only", "see --help", ExitCode.USAGE)
    if tombstone and (key is None or values):
        raise Failure("USAGE", "a tombstone has a key and no value", "give --key, and no VALUE", ExitCode.USAGE)

    headers = headers_from_options(header)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    _require_topic(connection, topic, partition)
    key_bytes = None if key is None else bytes_as_given(key)
    if tombstone:
        records: Iterable[OutgoingRecord] = [OutgoingRecord(key_bytes, None)]
    else:
        lines = map(bytes_as_given, values) if values else _stdin_lines()
        records = _records(lines, key_bytes, key_separator, json_input=json_input)
    sending = _Sending(connection, topic, acks, compression)
    try:
        sending.send_all(records, headers, partition)
    finally:
        # Records read before bad input or Ctrl-C are written all the same: the summary counts them.
        sending.finish(as_json=as_json)


def _require_topic(connection: "Connection", topic: str, partition: int | None) -> None:
    """Fails early, with similar names, unless the topic exists or the broker creates topics on first use."""
    from confluent_kafka.admin import ConfigResource

    from cordwood.administration.connection import no_such_partition
    from cordwood.administration.topic.view import partition_indexes, settings_of

    try:
        indexes = partition_indexes(connection, topic)
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_FOUND:
            raise
        metadata = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(metadata.brokers))))
        automatic = settings_of(connection, resource).get("auto.create.topics.enable")
        if automatic is None or automatic.value != "true":
            raise
        remark(f"There is no topic {topic} yet: the broker creates it now (auto.create.topics.enable).")
        return
    if partition is not None and partition not in indexes:
        raise no_such_partition(topic, partition, indexes)


def _stdin_lines() -> Iterator[bytes]:
    """The lines of stdin as bytes: a record may be no UTF-8, and may have carriage returns within it."""
    if sys.stdin.isatty():
        remark("Each line is a record; Ctrl-D ends the input.")
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _records(
    lines: Iterable[bytes], key: bytes | None, key_separator: str | None, *, json_input: bool
) -> Iterator[OutgoingRecord]:
    separator = None if key_separator is None else bytes_as_given(key_separator)
    for line in lines:
        if json_input:
            if line.strip():
                yield record_from_json(line.decode("utf-8", "surrogateescape"))
        elif separator is not None:
            before, found, after = line.partition(separator)
            if not found:
                shown = line[:80].decode("utf-8", "replace")
                raise Failure(
                    "INVALID_INPUT",
                    f"no key separator {key_separator!r} in {shown!r}",
                    "the lines before this one were written",
                )
            yield OutgoingRecord(before, after)
        else:
            yield OutgoingRecord(key, line)


class _Sending:
    """Records on their way: counts acknowledged records by partition, and keeps the first error."""

    def __init__(self, connection: "Connection", topic: str, acks: Acks, compression: Compression) -> None:
        self._connection = connection
        self._topic = topic
        self._acks = acks
        self._producer = connection.producer(
            {
                "acks": acks.value,
                "enable.idempotence": acks is Acks.ALL,
                "compression.type": compression.value,
                "partitioner": "murmur2_random",
                "message.timeout.ms": max(1000, int(connection.timeout_s * 1000)),
                "linger.ms": 5,
            }
        )
        self._written: Counter[int] = Counter()
        self._first_offsets: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}
        self._failed = 0
        self._first_error: KafkaError | None = None
        self._fatal: KafkaError | None = None

    def send_all(self, records: Iterable[OutgoingRecord], headers: Headers, partition: int | None) -> None:
        """Sends all records. A million lines are usual input: the work for each of them is small."""
        from confluent_kafka import KafkaException

        produce, topic, delivered = self._producer.produce, self._topic, self._delivered
        usual = _arguments(OutgoingRecord(None, None), headers, partition)
        for number, record in enumerate(records):
            key, value, own_headers, own_partition, timestamp_ms = record
            if own_headers or own_partition is not None or timestamp_ms is not None:
                arguments = _arguments(record, headers, partition)
            else:
                arguments = usual
            while True:
                try:
                    produce(topic, value, key, on_delivery=delivered, **arguments)
                    break
                except BufferError:
                    self._poll(0.1)  # the producer's queue is full: the input waits
                except KafkaException as error:
                    raise self._connection.failure_of(error) from error
            if number % _RECORDS_PER_POLL == 0:
                self._poll(0)

    def _poll(self, timeout_s: float) -> None:
        """Handles delivery reports. An error after which the producer writes nothing more, such as the lack of a right,
        is kept: librdkafka then reports its records as purged."""
        from confluent_kafka import KafkaException

        from cordwood.administration.connection import kafka_error

        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._fatal = self._fatal or kafka_error(error)

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or error
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        self._written[partition] += 1
        if offset is not None and offset >= 0:
            if offset < self._first_offsets.setdefault(partition, offset):
                self._first_offsets[partition] = offset
            if offset > self._last_offsets.get(partition, -1):
                self._last_offsets[partition] = offset

    def finish(self, *, as_json: bool) -> None:
        """Waits for the acknowledgements and reports them. Raises Failure if a record was not written."""

        # Not `flush`: where it meets a fatal error, confluent-kafka 2.16 leaves it with a SystemError.
        deadline = time.monotonic() + self._connection.timeout_s + 1
        while len(self._producer) and time.monotonic() < deadline:
            self._poll(_POLL_S)
        written = sum(self._written.values())
        if as_json:
            print_json(
                {
                    "topic": self._topic,
                    "written": written,
                    "failed": self._failed + len(self._producer),
                    "acks": self._acks.value,
                    "partitions": {
                        str(index): {
                            "written": count,
                            "first_offset": self._first_offsets.get(index),
                            "last_offset": self._last_offsets.get(index),
                        }
                        for index, count in sorted(self._written.items())
                    },
                }
            )
        else:
            say(f"{count_in_words(written, 'record')} written to {self._topic}, {ACK_MEANINGS[self._acks]}")
            for index, first in sorted(self._first_offsets.items()):
                say(f"  partition {index}: {_offset_range(first, self._last_offsets[index])}")
        if self._first_error is not None:
            failure = self._connection.failure_of(self._fatal or self._first_error)
            if failure.code == "REQUEST_TIMED_OUT":
                failure = self._connection.without_leader(self._topic) or failure
            if failure.code == "CLUSTER_AUTHORIZATION_FAILED":
                # The broker asks whether the user may write any topic: the first request does not name this one.
                failure.hint = f"`cordwood acl add USER --producer --topic {self._topic}` gives a user what it needs"
            failure.message = f"{count_in_words(self._failed, 'record')} not written: {failure.message}"
            raise failure
        if len(self._producer):
            raise self._connection.without_leader(self._topic) or self._connection.no_answer()


def _arguments(record: OutgoingRecord, headers: Headers, partition: int | None) -> dict[str, Any]:
    """The fields of a record besides its key and value; most records have none."""
    arguments: dict[str, Any] = {}
    if headers or record.headers:
        arguments["headers"] = [*record.headers, *headers]
    chosen = partition if partition is not None else record.partition
    if chosen is not None:
        arguments["partition"] = chosen
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    return arguments


def _offset_range(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
