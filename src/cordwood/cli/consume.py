"""`cordwood consume`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.administration.topic.reading import damaged, open_consumer, reads_on
from cordwood.administration.topic.starting_point import StartingPoint
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TopicName,
    checked_name,
)
from cordwood.cli.terminal.output import print_json_line, remark
from cordwood.cli.terminal.record_text import bytes_as_json, readable
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words
from cordwood.model.timestamps import time_in_words

if TYPE_CHECKING:
    from confluent_kafka import Message

    from cordwood.administration.connection import Connection

_BATCH = 500
_POLL_S = 0.2


def consume(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-f",
            metavar="WHERE",
            help="`beginning`, `end`, an offset, `-N` for the last N records of each partition, `@TIME` (ISO 8601 or "
            "milliseconds) or `committed`. Default: beginning; with --group, committed "
            "(the beginning where the group has committed nothing).",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, help="Only this partition; may be given several times.", show_default=False
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many records.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--exit-at-end", help="At the end: wait for new records, or stop."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            callback=checked_name,
            help="Start at this group's committed position, and commit the position after the printed records.",
        ),
    ] = None,
    show_key: Annotated[bool, typer.Option("--key", "-k", help="Print the key before the value.")] = False,
    show_headers: Annotated[bool, typer.Option("--headers", "-H", help="Print the headers too.")] = False,
    show_position: Annotated[
        bool, typer.Option("--position", "-o", help="Print partition and offset: a record's permanent address.")
    ] = False,
    show_time: Annotated[bool, typer.Option("--time", "-T", help="Print the timestamp.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Read a topic's records, from anywhere in its history.

    Prints one value a line and stops at the end, like `cat`; --follow goes on, like `tail -f`. Reading removes nothing:
    every reader has its own position. Records of one partition come in order; between partitions there is no order.
    With --json each line is an object that `cordwood produce --json-input` takes.
    """
    where = StartingPoint.parse(start or ("committed" if group is not None else "beginning"))
    if where.kind == "committed" and group is None:
        raise Failure("USAGE", "--from committed needs --group", "name the group that committed", ExitCode.USAGE)
    from cordwood.administration.connection import no_such_partition
    from cordwood.administration.topic.view import partition_indexes

    connection = connect(bootstrap_servers, timeout_s, client_config)
    indexes = partition_indexes(connection, topic)
    for chosen in partition or ():
        if chosen not in indexes:
            raise no_such_partition(topic, chosen, indexes)
    reading = _Reading(
        connection,
        topic,
        sorted(set(partition)) if partition else indexes,
        group=group,
        line_of=_Line(show_position, show_time, show_key, show_headers) if not as_json else None,
    )
    try:
        reading.run(where, follow=follow, max_messages=max_messages)
    except KeyboardInterrupt:
        if not follow:
            raise  # with --follow Ctrl-C is the usual end, and no error
    finally:
        reading.close()
    if not quiet and not as_json:
        remark(reading.summary())


class _Line:
    """Prints a record for people: the chosen fields, then the value as it is, separated by tabs."""

    def __init__(self, position: bool, time: bool, key: bool, headers: bool) -> None:
        self._position = position
        self._time = time
        self._key = key
        self._headers = headers
        # The usual case: the work for each of a million records is small.
        self._value_only = not (position or time or key or headers or sys.stdout.isatty())

    def write(self, message: "Message") -> None:
        if self._value_only:
            value = message.value()
            if value is not None:
                sys.stdout.buffer.write(value + b"\n" if isinstance(value, bytes) else value.encode() + b"\n")
                return
        parts = []
        if self._position:
            parts.append(f"{message.partition()}:{message.offset()}")
        if self._time:
            parts.append(time_in_words(message.timestamp()[1]))
        if self._key:
            parts.append(readable(_bytes(message.key())))
        if self._headers:
            parts.append(",".join(f"{name}={readable(value)}" for name, value in _headers(message)) or "-")
        value = _bytes(message.value())
        if value is None or sys.stdout.isatty():
            # A record must not be able to steer the terminal of its reader.
            shown = readable(value).encode()
        else:
            # A pipe gets the written bytes, UTF-8 or not: the output is bytes, not text.
            shown = value
        sys.stdout.buffer.write("\t".join([*parts, ""]).encode() + shown + b"\n")


def _write_json(message: "Message") -> None:
    kind, timestamp_ms = message.timestamp()
    print_json_line(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp_ms": timestamp_ms,
            "timestamp_type": {1: "CreateTime", 2: "LogAppendTime"}.get(kind),
            "key": bytes_as_json(_bytes(message.key())),
            "value": bytes_as_json(_bytes(message.value())),
            "headers": [[name, bytes_as_json(value)] for name, value in _headers(message)],
        }
    )


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(message: "Message") -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers()
    return list(headers or [])


class _Reading:
    """One pass over some partitions, from a starting point to the end or for ever."""

    def __init__(
        self, connection: "Connection", topic: str, partitions: list[int], *, group: str | None, line_of: _Line | None
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._partitions = partitions
        self._group = group
        self._line = line_of
        self._printed = 0
        self._ends: dict[int, int] = {}
        self._consumer = open_consumer(connection, group)

    def run(self, where: StartingPoint, *, follow: bool, max_messages: int | None) -> None:
        from confluent_kafka import TopicPartition

        if self._group is not None:
            self._require_group(self._group)
        starts = where.resolve(self._connection, self._consumer, self._topic, self._partitions)
        self._ends = {} if follow else {index: span.end for index, span in starts.items() if span.offset < span.end}
        reading = list(starts) if follow else list(self._ends)
        if not reading:
            return
        self._consumer.assign([TopicPartition(self._topic, index, starts[index].offset) for index in reading])
        unfinished = set(reading)
        heard_at = time.monotonic()
        while unfinished:
            wanted = _BATCH if max_messages is None else min(_BATCH, max_messages - self._printed)
            messages = self._connection.call(lambda wanted=wanted: self._consumer.consume(wanted, timeout=_POLL_S))  # type: ignore[misc]
            printed_before = self._printed
            reached = self._print(messages)
            if reached or self._printed > printed_before:
                heard_at = time.monotonic()
            elif not follow and time.monotonic() - heard_at > self._connection.timeout_s:
                raise self._connection.no_answer()
            if max_messages is not None and self._printed >= max_messages:
                return
            if not follow:
                unfinished -= reached

    def _require_group(self, group: str) -> None:
        """Raises Failure without a right to the group: librdkafka would ask for its positions until the timeout."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = ConsumerGroupTopicPartitions(group)
        self._connection.ask(lambda admin: admin.list_consumer_group_offsets([asked])[group])

    def _print(self, messages: "list[Message]") -> set[int]:
        """Prints records, commits them for the group, and returns the partitions that are read to their end."""
        reached: set[int] = set()
        positions: dict[int, int] = {}
        stopped: Failure | None = None
        write = _write_json if self._line is None else self._line.write
        for message in messages:
            index, offset = message.partition(), message.offset()
            assert index is not None
            if message.error() is not None:
                try:
                    if self._is_end(message):
                        reached.add(index)
                except Failure as failure:
                    stopped = failure
                    break
                continue
            assert offset is not None
            end = self._ends.get(index)
            if end is not None and offset >= end:
                reached.add(index)  # the record is younger than the read: only --follow prints it
                continue
            write(message)
            self._printed += 1
            positions[index] = offset + 1
            if offset + 1 == end:
                reached.add(index)
        sys.stdout.flush()
        if self._group is not None and positions:
            self._commit(positions)
        if stopped is not None:
            raise stopped
        return reached

    def _is_end(self, message: "Message") -> bool:
        from confluent_kafka import KafkaError

        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise Failure(
                "OFFSET_OUT_OF_RANGE",
                f"partition {message.partition()} does not have the next offset to read: {error.str()}",
                "`cordwood topic describe` shows where the partition starts and ends",
            )
        if error.code() in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG):
            raise damaged(self._connection, message)
        if reads_on(error):
            return False  # --follow outlives a restart of the broker
        raise self._connection.failure_of(error)

    def _commit(self, positions: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition(self._topic, index, offset) for index, offset in sorted(positions.items())]
        self._connection.call(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))

    def close(self) -> None:
        self._consumer.close()

    def summary(self) -> str:
        """The number of records that were read, and the scope of their order."""
        records = count_in_words(self._printed, "record")
        if len(self._partitions) == 1:
            return f"{records} of partition {self._partitions[0]}, in its order"
        return f"{records} of {len(self._partitions)} partitions: in order within each partition, not between them"
