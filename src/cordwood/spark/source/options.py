"""The options of a read, checked and turned into values.

Owns what an option means and which options contradict each other. All mistakes are found here, on the driver, before
anything runs, and are reported at once, each with what to do about it. Values are plain and picklable: they travel to
the planner process and to the executors.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cordwood.client.answers import EARLIEST, LATEST, Isolation
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.model.quantities import duration_ms
from cordwood.security.connection_settings import PLAIN_TEXT, Security
from cordwood.spark.options import names as names
from cordwood.spark.options.names import did_you_mean
from cordwood.spark.options.quantities import MAX_INT, one_of, size_bytes, whole_number, yes_or_no
from cordwood.spark.options.security import SECURITY_KEYS, security_of
from cordwood.spark.source.boundaries import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Boundary,
    Edge,
    NoLaterRecord,
    Partitions,
    Pattern,
    Subscription,
    Topics,
)
from cordwood.spark.source.kafka_keys import ALWAYS, REFUSED, Key, why_without_effect
from cordwood.spark.source.offsets import parse_offsets, parse_partitions, parse_timestamps

T = TypeVar("T")

NO_GROUP = "none"
DEFAULT_GROUP_PREFIX = "spark"
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_POLL_TIMEOUT_MS = 120_000
_KEYS = frozenset((*(key.value for key in Key), *SECURITY_KEYS))
"""The keys that are implemented, without `kafka.`."""


class OptionsError(ValueError):
    """The options cannot be obeyed. The message has one line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join([f"{len(problems)} problem(s) with the options of format cordwood:", *problems]))
        self.problems = problems


@dataclass(frozen=True)
class TriggerLimits:
    """The size of a micro-batch. None: no such limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    max_bytes: int | None = None


@dataclass(frozen=True)
class TaskSizes:
    """The division of a batch into tasks. None: no such wish."""

    min_tasks: int | None = None
    max_records: int | None = None
    whole_partitions: bool = False
    """One task reads all records of a partition, in offset order."""


@dataclass(frozen=True)
class SourceOptions:
    """A read, as its options describe it."""

    client: ClientSettings
    """Settings for the driver: offsets, metadata, positions."""
    fetching: ClientSettings
    """Settings for tasks, which wait longer for a broker that is away, since a failed task may cost the query."""
    subscription: Subscription
    starting: Boundary
    ending: Boundary
    no_later_record: NoLaterRecord
    stop_at: Mapping[TopicPartition, int]
    """The offsets at which a stream stops reading. Of the topics that are named here, it reads no other partitions."""
    continue_at: Mapping[TopicPartition, int]
    """The positions that take the place of those in the topics of `stop_at`, once all of these are reached: the next
    query of the checkpoint reads on there."""
    isolation: Isolation
    fail_on_data_loss: bool
    extra_columns: frozenset[str]
    """Columns that a read has only on request."""
    task_sizes: TaskSizes
    limits: TriggerLimits
    progress_group: str | None
    """The group that was named for progress; None: it is named after the query, with `group_prefix`."""
    reports_progress: bool
    group_prefix: str
    warnings: tuple[str, ...] = ()

    def logging_in(self, security: Security) -> "SourceOptions":
        """The options with another log-in."""
        return replace(
            self,
            client=replace(self.client, security=security),
            fetching=replace(self.fetching, security=security),
        )


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parses the options. Raises OptionsError with all problems."""
    return _Reading(given, streaming=streaming).finish()


def check_options(given: Mapping[str, str]) -> frozenset[str]:
    """Checks options at load(), before it is known whether a batch or a stream reads: they must be right for one of
    them. Returns the requested extra columns."""
    try:
        return read_options(given, streaming=True).extra_columns
    except OptionsError as as_stream:
        try:
            return read_options(given, streaming=False).extra_columns
        except OptionsError as as_batch:
            # Problems of both kinds are errors; the others depend on the kind that the query turns out to be.
            both = [problem for problem in as_batch.problems if problem in as_stream.problems]
            raise OptionsError(both or as_batch.problems) from None


class _Reading:
    """Takes options one by one and collects their problems."""

    def __init__(self, given: Mapping[str, str], *, streaming: bool) -> None:
        self._given = {name.lower(): text for name, text in given.items()}
        self._streaming = streaming
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def finish(self) -> SourceOptions:
        self._check_names()
        client, fetching = self._clients()
        subscription = self._subscription()
        starting = self._starting()
        ending = self._ending()
        self._check_order(starting, ending)
        stop_at = self._offsets_only(names.STOP_AT_OFFSETS)
        continue_at = self._offsets_only(names.CONTINUE_AT_OFFSETS)
        self._check_going_over(subscription, stop_at, continue_at)
        group, reports = self._progress_group()
        options = SourceOptions(
            client=client,
            fetching=fetching,
            subscription=subscription,
            starting=starting,
            ending=ending,
            no_later_record=self._no_later_record(),
            stop_at=stop_at,
            continue_at=continue_at,
            isolation=self._isolation(),
            fail_on_data_loss=self._take(names.FAIL_ON_DATA_LOSS, yes_or_no, True),
            extra_columns=self._extra_columns(),
            task_sizes=self._task_sizes(),
            limits=self._limits(),
            progress_group=group,
            reports_progress=reports,
            group_prefix=self._take(names.GROUP_ID_PREFIX, _not_empty, DEFAULT_GROUP_PREFIX),
            warnings=tuple(self._warnings),
        )
        if self._problems:
            raise OptionsError(self._problems)
        return options

    def _task_sizes(self) -> TaskSizes:
        sizes = TaskSizes(
            min_tasks=self._take(names.MIN_PARTITIONS, _positive, None),
            max_records=self._take(names.MAX_RECORDS_PER_PARTITION, _positive, None),
            whole_partitions=self._take(names.WHOLE_PARTITIONS, yes_or_no, False),
        )
        if sizes.whole_partitions and (sizes.min_tasks or sizes.max_records):
            self._problems.append(
                f"{names.WHOLE_PARTITIONS} leaves partitions whole, and {names.MIN_PARTITIONS} and "
                f"{names.MAX_RECORDS_PER_PARTITION} cut them: use one of them"
            )
        return sizes

    def _extra_columns(self) -> frozenset[str]:
        return frozenset(
            column
            for option, columns in names.EXTRA_COLUMNS.items()
            if self._take(option, yes_or_no, False)
            for column in columns
        )

    # Taking options

    def _text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def _has(self, name: str) -> bool:
        return name.lower() in self._given

    def _take(self, name: str, parse: Callable[[str], T], default: T) -> T:
        text = self._text(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as failure:
            self._problems.append(f"{name}: {failure}.")
            return default

    def _take_key(self, key: Key, parse: Callable[[str], T], default: T) -> T:
        return self._take(f"kafka.{key.value}", parse, default)

    def _exclusive(self, *options: str) -> list[str]:
        """The options that are given; more than one of them is a contradiction."""
        found = [name for name in options if self._has(name)]
        if len(found) > 1:
            self._problems.append(f"{' and '.join(found)} contradict each other: keep one of them.")
        return found

    def _first(self, *options: str) -> list[str]:
        """The first of these options that is given. Later ones have no effect, as in Spark's Kafka source."""
        found = [name for name in options if self._has(name)]
        if len(found) > 1:
            self._warnings.append(f"{' and '.join(found[1:])} have no effect beside {found[0]}")
        return found[:1]

    # Names

    def _check_names(self) -> None:
        for name in self._given:
            if name.startswith("kafka."):
                self._check_key(name.removeprefix("kafka."))
            elif name in names.SPELLING:
                spelling = names.SPELLING[name]
                if spelling in names.REFUSED:
                    self._problems.append(f"{spelling} is not supported: {names.REFUSED[spelling]}.")
                elif spelling in names.WITHOUT_EFFECT:
                    self._warnings.append(f"{spelling} has no effect: {names.WITHOUT_EFFECT[spelling]}")
            else:
                known = [*names.OPTIONS, *(f"kafka.{key}" for key in _KEYS)]
                self._problems.append(f"{name} is not an option.{did_you_mean(name, known)}")
        given = [name for name in names.STREAMING_ONLY if self._has(name)]
        if given and not self._streaming:
            self._warnings.append(f"{', '.join(given)} have no effect on a batch read")

    def _check_key(self, name: str) -> None:
        if name in _KEYS:
            return
        reason = why_without_effect(name)
        if reason is not None:
            self._warnings.append(f"kafka.{name} has no effect: {reason}")
        elif name in REFUSED:
            self._problems.append(f"kafka.{name} is not supported: {REFUSED[name]}.")
        else:
            near = did_you_mean(f"kafka.{name}", [f"kafka.{key}" for key in _KEYS])
            self._problems.append(f"kafka.{name} is not a setting of Kafka's consumer.{near}")

    # The cluster

    def _clients(self) -> tuple[ClientSettings, ClientSettings]:
        for key, (value, reason) in ALWAYS.items():
            given = self._text(f"kafka.{key.value}")
            if given is not None and given.strip().lower() != value:
                self._warnings.append(f"kafka.{key.value}={given} has no effect: {reason}")
        security = self._security()
        servers = self._text(f"kafka.{Key.BOOTSTRAP_SERVERS.value}")
        if not servers:
            self._problems.append("kafka.bootstrap.servers is missing: say where the brokers are, as host:9092.")
        numbers = {
            "request_timeout_ms": self._take_key(Key.REQUEST_TIMEOUT_MS, _positive_int, None),
            "retry_timeout_ms": self._take_key(Key.DEFAULT_API_TIMEOUT_MS, _positive_int, None),
            "retry_backoff_ms": self._take_key(
                Key.RETRY_BACKOFF_MS,
                _positive_int,
                self._take(names.FETCH_OFFSET_RETRY_INTERVAL_MS, _positive_int, None),
            ),
            "retry_backoff_max_ms": self._take_key(Key.RETRY_BACKOFF_MAX_MS, _positive_int, None),
            "fetch_max_bytes": self._take_key(Key.MAX_PARTITION_FETCH_BYTES, _positive_int, None),
            "fetch_max_wait_ms": self._take_key(Key.FETCH_MAX_WAIT_MS, _positive_int, None),
            "receive_buffer_bytes": self._take_key(Key.RECEIVE_BUFFER_BYTES, _size_or_system, None),
        }
        given_numbers: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        client_id = self._take_key(Key.CLIENT_ID, _not_empty, "cordwood-spark")
        self._take(names.FETCH_OFFSET_RETRIES, _positive, None)
        poll_timeout_ms = self._take(names.POLL_TIMEOUT_MS, _positive, None) or DEFAULT_POLL_TIMEOUT_MS
        try:
            client = ClientSettings(servers or "missing", client_id=client_id, security=security, **given_numbers)
        except ValueError as failure:
            self._problems.append(f"kafka.bootstrap.servers: {failure}.")
            client = ClientSettings("missing")
        waiting_ms = max(client.retry_timeout_ms, poll_timeout_ms)
        return client, replace(client, retry_timeout_ms=waiting_ms)

    def _security(self) -> Security:
        try:
            return security_of(self._given)
        except ValueError as failure:
            self._problems.append(f"the connection's settings (kafka.*): {failure}.")
            return PLAIN_TEXT

    def _isolation(self) -> Isolation:
        def parse(text: str) -> Isolation:
            return Isolation[one_of(text, ("read_uncommitted", "read_committed")).upper()]

        return self._take_key(Key.ISOLATION_LEVEL, parse, Isolation.READ_UNCOMMITTED)

    # The records

    def _subscription(self) -> Subscription:
        choices = (names.SUBSCRIBE, names.SUBSCRIBE_PATTERN, names.ASSIGN)
        found = self._exclusive(*choices)
        if not found:
            self._problems.append(f"What to read is missing: give one of {', '.join(choices)}.")
        exclude_internal = self._take_key(Key.EXCLUDE_INTERNAL_TOPICS, yes_or_no, True)
        nothing = Topics(())
        if names.SUBSCRIBE in found:
            return self._take(names.SUBSCRIBE, _topics, nothing)
        if names.SUBSCRIBE_PATTERN in found:
            text = self._take(names.SUBSCRIBE_PATTERN, _pattern, "")
            return Pattern(text, exclude_internal=exclude_internal)
        if names.ASSIGN in found:
            return Partitions(self._take(names.ASSIGN, parse_partitions, frozenset()))
        return nothing

    def _starting(self) -> Boundary:
        default: Boundary = Edge.LATEST if self._streaming else Edge.EARLIEST
        found = self._first(names.STARTING_TIMESTAMP, names.STARTING_OFFSETS_BY_TIMESTAMP, names.STARTING_OFFSETS)
        if names.GROUP in self._given and (self._text(names.STARTING_OFFSETS) or "").strip().lower() != "group":
            self._problems.append(
                f"{names.GROUP} is used only with {names.STARTING_OFFSETS}=group; for the group to which progress is"
                f" committed use {names.PROGRESS_GROUP}."
            )
        if names.STARTING_TIMESTAMP in found:
            return self._take(names.STARTING_TIMESTAMP, _at_time, default)
        if names.STARTING_OFFSETS_BY_TIMESTAMP in found:
            return self._take(names.STARTING_OFFSETS_BY_TIMESTAMP, _at_times, default)
        boundary = self._take(names.STARTING_OFFSETS, self._starting_offsets, default)
        if not self._streaming:
            if boundary is Edge.LATEST:
                self._problems.append(f"{names.STARTING_OFFSETS}=latest leaves a batch read nothing to read.")
            elif isinstance(boundary, AtOffsets) and LATEST in boundary.positions.values():
                self._problems.append(f"{names.STARTING_OFFSETS}: -1 (latest) leaves a batch read nothing to read.")
        return boundary

    def _starting_offsets(self, text: str) -> Boundary:
        said = text.strip().lower()
        if said in ("earliest", "latest"):
            return Edge(said)
        if said == "group":
            group = self._text(names.GROUP) or self._text(f"kafka.{Key.GROUP_ID.value}") or ""
            if not group.strip():
                raise ValueError(f"'group' needs the group's name in the option {names.GROUP}")
            return AtGroup(group.strip())
        if not text.strip().startswith("{"):
            raise ValueError(f"expected earliest, latest, group or JSON, found {text!r}")
        return AtOffsets(parse_offsets(text))

    def _ending(self) -> Boundary:
        default: Boundary = Edge.LATEST
        choices = (names.ENDING_TIMESTAMP, names.ENDING_OFFSETS_BY_TIMESTAMP, names.ENDING_OFFSETS)
        if self._streaming:
            for name in filter(self._has, choices):
                self._problems.append(f"{name} has no meaning for a stream, which has no end: remove it.")
            return default
        found = self._first(*choices)
        if names.ENDING_TIMESTAMP in found:
            return self._take(names.ENDING_TIMESTAMP, _at_time, default)
        if names.ENDING_OFFSETS_BY_TIMESTAMP in found:
            return self._take(names.ENDING_OFFSETS_BY_TIMESTAMP, _at_times, default)
        return self._take(names.ENDING_OFFSETS, _ending_offsets, default)

    def _check_order(self, starting: Boundary, ending: Boundary) -> None:
        pairs: list[tuple[str, int, int]] = []
        option = ""
        if isinstance(starting, AtTime) and isinstance(ending, AtTime):
            option = f"{names.STARTING_TIMESTAMP} and {names.ENDING_TIMESTAMP}"
            pairs = [("all partitions", starting.timestamp_ms, ending.timestamp_ms)]
        elif isinstance(starting, AtTimes) and isinstance(ending, AtTimes):
            option = f"{names.STARTING_OFFSETS_BY_TIMESTAMP} and {names.ENDING_OFFSETS_BY_TIMESTAMP}"
            pairs = _common(starting.timestamps_ms, ending.timestamps_ms)
        elif isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
            option = f"{names.STARTING_OFFSETS} and {names.ENDING_OFFSETS}"
            pairs = [pair for pair in _common(starting.positions, ending.positions) if min(pair[1:]) >= 0]
        for what, start, end in pairs:
            if start > end:
                self._problems.append(f"{option} contradict each other for {what}: {start} is after {end}.")

    def _offsets_only(self, name: str) -> Mapping[TopicPartition, int]:
        def parse(text: str) -> Mapping[TopicPartition, int]:
            positions = parse_offsets(text)
            if any(offset < 0 for offset in positions.values()):
                raise ValueError("-1 and -2 name no fixed offset: use 0 or more")
            return positions

        nowhere: Mapping[TopicPartition, int] = {}
        return self._take(name, parse, nowhere)

    def _check_going_over(
        self,
        subscription: Subscription,
        stop_at: Mapping[TopicPartition, int],
        continue_at: Mapping[TopicPartition, int],
    ) -> None:
        read = set(subscription.names) if isinstance(subscription, Topics) else None
        if stop_at and read is None:
            self._problems.append(f"{names.STOP_AT_OFFSETS} is for topics that are named with {names.SUBSCRIBE}.")
        elif stop_at and not {topic for topic, _ in stop_at} <= (read or set()):
            self._problems.append(f"{names.STOP_AT_OFFSETS} names a topic that {names.SUBSCRIBE} does not.")
        if continue_at and not stop_at:
            self._problems.append(f"{names.CONTINUE_AT_OFFSETS} is for queries with {names.STOP_AT_OFFSETS}.")
        elif any(name.topic in (read or ()) and stop_at.get(name) != offset for name, offset in continue_at.items()):
            self._problems.append(
                f"{names.CONTINUE_AT_OFFSETS} names a topic that the query reads already: the next query reads it."
            )

    def _no_later_record(self) -> NoLaterRecord:
        def parse(text: str) -> NoLaterRecord:
            return NoLaterRecord(one_of(text, ("error", "latest")))

        timed = self._has(names.STARTING_TIMESTAMP) or self._has(names.STARTING_OFFSETS_BY_TIMESTAMP)
        if self._has(names.STARTING_STRATEGY) and not timed:
            self._warnings.append(f"{names.STARTING_STRATEGY} has no effect without a starting timestamp")
        return self._take(names.STARTING_STRATEGY, parse, NoLaterRecord.ERROR)

    # The way of reading

    def _limits(self) -> TriggerLimits:
        limits = TriggerLimits(
            max_offsets=self._take(names.MAX_OFFSETS_PER_TRIGGER, _positive, None),
            min_offsets=self._take(names.MIN_OFFSETS_PER_TRIGGER, _positive, None),
            max_delay_ms=self._take(names.MAX_TRIGGER_DELAY, duration_ms, DEFAULT_TRIGGER_DELAY_MS),
            max_bytes=self._take(names.MAX_BYTES_PER_TRIGGER, size_bytes, None),
        )
        if limits.max_offsets is not None and limits.min_offsets is not None:
            most, least = limits.max_offsets, limits.min_offsets
            if least > most:
                self._problems.append(
                    f"{names.MIN_OFFSETS_PER_TRIGGER} and {names.MAX_OFFSETS_PER_TRIGGER} contradict each other:"
                    f" {least} is more than {most}."
                )
        if self._has(names.MAX_TRIGGER_DELAY) and limits.min_offsets is None:
            self._warnings.append(f"{names.MAX_TRIGGER_DELAY} has no effect without {names.MIN_OFFSETS_PER_TRIGGER}")
        return limits

    def _progress_group(self) -> tuple[str | None, bool]:
        group_id = f"kafka.{Key.GROUP_ID.value}"
        found = self._exclusive(names.PROGRESS_GROUP, group_id)
        if found and self._has(names.GROUP_ID_PREFIX):
            self._warnings.append(f"{names.GROUP_ID_PREFIX} has no effect beside {found[0]}")
        group = self._take(found[0], _not_empty, None) if found else None
        if group is not None and names.PROGRESS_GROUP in found and group.lower() == NO_GROUP:
            return None, False
        return group, True


def _positive(text: str) -> int | None:
    return whole_number(text, at_least=1)


def _positive_int(text: str) -> int | None:
    return whole_number(text, at_least=1, at_most=MAX_INT)


def _size_or_system(text: str) -> int | None:
    """A size; None for Kafka's -1, which leaves it to the system."""
    return whole_number(text, at_least=-1, at_most=MAX_INT)


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _topics(text: str) -> Topics:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError("it names no topic")
    return Topics(topics)


def _pattern(text: str) -> str:
    pattern = _not_empty(text)
    try:
        re.compile(pattern)
    except re.error as failure:
        raise ValueError(f"{pattern!r} is not a regular expression: {failure}") from None
    return pattern


def _at_time(text: str) -> Boundary:
    return AtTime(whole_number(text, at_least=0))


def _at_times(text: str) -> Boundary:
    return AtTimes(parse_timestamps(text))


def _ending_offsets(text: str) -> Boundary:
    said = text.strip().lower()
    if said == "latest":
        return Edge.LATEST
    if said == "earliest":
        raise ValueError("'earliest' leaves nothing to read: use latest or JSON")
    if not text.strip().startswith("{"):
        raise ValueError(f"expected latest or JSON, found {text!r}")
    positions = parse_offsets(text)
    if EARLIEST in positions.values():
        raise ValueError("-2 (earliest) leaves nothing to read: use an offset, or -1 for the latest")
    return AtOffsets(positions)


def _common(starts: Mapping[T, int], ends: Mapping[T, int]) -> list[tuple[str, int, int]]:
    return [(str(name), start, ends[name]) for name, start in starts.items() if name in ends]
