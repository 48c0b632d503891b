"""Meanings and contradictions of options, and the errors for unknown ones."""

import pickle
import re

import pytest

from cordwood.client.answers import Isolation
from cordwood.model.identifiers import TopicPartition
from cordwood.spark.options import names as option_names
from cordwood.spark.source.boundaries import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    NoLaterRecord,
    Partitions,
    Pattern,
    Topics,
)
from cordwood.spark.source.kafka_keys import OF_PRODUCERS, REFUSED, WITHOUT_EFFECT, Key
from cordwood.spark.source.options import OptionsError, SourceOptions, check_options, read_options

ENOUGH = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return read_options({**ENOUGH, **options}, streaming=False)


def stream(**options: str) -> SourceOptions:
    return read_options({**ENOUGH, **options}, streaming=True)


def problems(options: dict[str, str], *, streaming: bool) -> str:
    with pytest.raises(OptionsError) as refused:
        read_options(options, streaming=streaming)
    return str(refused.value)


def test_servers_and_a_topic_are_enough() -> None:
    options = batch()
    assert options.subscription == Topics(("orders",))
    assert (options.starting, options.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.fail_on_data_loss
    assert not options.extra_columns
    assert options.reports_progress
    assert (options.progress_group, options.group_prefix) == (None, "spark")


def test_a_stream_begins_at_the_end() -> None:
    assert stream().starting is Edge.LATEST


def test_names_are_taken_in_any_case() -> None:
    assert batch(STARTINGOFFSETS="EARLIEST", IncludeHeaders="True").extra_columns == {"headers"}


def test_options_travel() -> None:
    options = stream(startingOffsets='{"orders": {"0": 5}}', maxBytesPerTrigger="64m")
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_can_be_subscribed_to() -> None:
    servers = {"kafka.bootstrap.servers": "a:1,b:2"}
    assert read_options({**servers, "subscribe": " a, b ,a,"}, streaming=True).subscription == Topics(("a", "b"))
    assert read_options({**servers, "subscribePattern": "o.*"}, streaming=True).subscription == Pattern("o.*")
    internal = {**servers, "subscribePattern": ".*", "kafka.exclude.internal.topics": "false"}
    assert read_options(internal, streaming=True).subscription == Pattern(".*", exclude_internal=False)
    assigned = read_options({**servers, "assign": '{"a": [1]}'}, streaming=True).subscription
    assert assigned == Partitions(frozenset({TopicPartition("a", 1)}))


def test_a_pattern_matches_whole_names() -> None:
    assert Pattern("orders").matches("orders")
    assert not Pattern("orders").matches("orders-2")


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "earliest"}, Edge.EARLIEST),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, AtOffsets({TopicPartition("orders", 0): -1})),
        ({"startingTimestamp": "1000"}, AtTime(1000)),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 7}}'}, AtTimes({TopicPartition("orders", 0): 7})),
        ({"startingOffsets": "group", "group": "billing"}, AtGroup("billing")),
        ({"startingOffsets": "group", "kafka.group.id": "billing"}, AtGroup("billing")),
    ],
)
def test_where_to_begin(options: dict[str, str], starting: object) -> None:
    assert stream(**options).starting == starting


def test_where_to_end() -> None:
    assert batch(endingOffsets="latest").ending is Edge.LATEST
    assert batch(endingTimestamp="5").ending == AtTime(5)
    assert batch(endingOffsetsByTimestamp='{"orders": {"0": 7}}').ending == AtTimes({TopicPartition("orders", 0): 7})
    assert batch(endingOffsets='{"orders": {"0": -1}}').ending == AtOffsets({TopicPartition("orders", 0): -1})


def test_limits_of_a_trigger() -> None:
    options = stream(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="2m", maxBytesPerTrigger="1k"
    )
    assert options.limits.max_offsets == 100
    assert options.limits.min_offsets == 10
    assert options.limits.max_delay_ms == 120_000
    assert options.limits.max_bytes == 1024


def test_kafka_keys_reach_the_client() -> None:
    options = stream(
        **{
            "kafka.request.timeout.ms": "1000",
            "kafka.default.api.timeout.ms": "2000",
            "kafka.retry.backoff.ms": "3",
            "kafka.retry.backoff.max.ms": "4",
            "kafka.max.partition.fetch.bytes": "5000",
            "kafka.fetch.max.wait.ms": "6",
            "kafka.receive.buffer.bytes": "-1",
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_committed",
            "kafka.security.protocol": "PLAINTEXT",
            "kafka.check.crcs": "true",
            "kafka.allow.auto.create.topics": "false",
            "kafkaConsumer.pollTimeoutMs": "7000",
        }
    )
    client = options.client
    assert (client.request_timeout_ms, client.retry_timeout_ms) == (1000, 2000)
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == (3, 4)
    assert (client.fetch_max_bytes, client.fetch_max_wait_ms) == (5000, 6)
    assert client.client_id == "me"
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fetching.retry_timeout_ms == 7000


def test_the_group_of_progress() -> None:
    assert stream(progressGroup="mine").progress_group == "mine"
    assert stream(**{"kafka.group.id": "mine"}).progress_group == "mine"
    assert stream(groupIdPrefix="team").group_prefix == "team"
    assert not stream(progressGroup="none").reports_progress


@pytest.mark.parametrize(
    ("options", "both"),
    [
        ({"subscribePattern": "o.*"}, ("subscribe", "subscribePattern")),
        ({"assign": '{"orders": [0]}'}, ("subscribe", "assign")),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")),
        ({"progressGroup": "a", "kafka.group.id": "b"}, ("progressGroup", "kafka.group.id")),
    ],
)
def test_contradictions_name_both(options: dict[str, str], both: tuple[str, str]) -> None:
    said = problems({**ENOUGH, **options}, streaming=True)
    line = next(line for line in said.splitlines() if "contradict" in line)
    assert all(re.search(rf"\b{re.escape(name)}\b", line) for name in both)


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "2", "endingTimestamp": "1"},
        {"startingOffsets": '{"orders": {"0": 2}}', "endingOffsets": '{"orders": {"0": 1}}'},
        {
            "startingOffsetsByTimestamp": '{"orders": {"0": 2}}',
            "endingOffsetsByTimestamp": '{"orders": {"0": 1}}',
        },
    ],
)
def test_a_beginning_after_its_end_is_a_contradiction(options: dict[str, str]) -> None:
    said = problems({**ENOUGH, **options}, streaming=False)
    assert "contradict" in said
    assert all(name in said for name in options)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("startingTimestamp", str(2**63), "expected 9223372036854775807 or less"),
        ("endingTimestamp", str(2**63), "expected 9223372036854775807 or less"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 9223372036854775808}}', "too large for orders-0"),
        ("startingOffsets", '{"orders": {"0": 9223372036854775808}}', "too large for orders-0"),
        ("startingOffsets", '{"a": ' * 3000 + "1" + "}" * 3000, "too deep"),
        ("kafka.request.timeout.ms", str(2**31), "expected 2147483647 or less"),
        ("kafka.fetch.max.wait.ms", str(2**31), "expected 2147483647 or less"),
        ("kafka.max.partition.fetch.bytes", str(2**31), "expected 2147483647 or less"),
        ("kafka.receive.buffer.bytes", str(2**31), "expected 2147483647 or less"),
    ],
)
def test_numbers_that_the_protocol_has_no_room_for_are_refused(option: str, value: str, said: str) -> None:
    problem = next(line for line in problems({**ENOUGH, option: value}, streaming=False).splitlines() if option in line)
    assert said in problem


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves a batch read nothing"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "-1 (latest) leaves a batch read nothing"),
        ({"endingOffsets": "earliest"}, "endingOffsets: 'earliest' leaves nothing to read"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "-2 (earliest) leaves nothing to read"),
    ],
)
def test_a_batch_that_could_read_nothing_is_refused(options: dict[str, str], said: str) -> None:
    assert said in problems({**ENOUGH, **options}, streaming=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stopAtOffsets": '{"orders": {"0": -1}}'}, "stopAtOffsets: -1 and -2 name no fixed offset"),
        ({"stopAtOffsets": '{"payments": {"0": 1}}'}, "stopAtOffsets names a topic that subscribe does not"),
        ({"continueAtOffsets": '{"payments": {"0": 1}}'}, "continueAtOffsets is for queries with stopAtOffsets"),
        (
            {"stopAtOffsets": '{"orders": {"0": 1}}', "continueAtOffsets": '{"orders": {"0": 2}}'},
            "continueAtOffsets names a topic that the query reads already",
        ),
    ],
)
def test_a_stream_that_could_not_go_over_is_refused(options: dict[str, str], said: str) -> None:
    assert said in problems({**ENOUGH, **options}, streaming=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert f"{name} has no meaning for a stream" in problems({**ENOUGH, name: "1"}, streaming=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "host:port"}, "kafka.bootstrap.servers: "),
        ({"subscribe": " , "}, "subscribe: it names no topic"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: expected true or false, found 'maybe'"),
        ({"minPartitions": "0"}, "minPartitions: expected 1 or more, found 0"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger: expected a whole number, found 'many'"),
        ({"maxTriggerDelay": "5 weeks"}, "maxTriggerDelay: 'weeks' is not a unit of time"),
        ({"maxBytesPerTrigger": "5 crates"}, "maxBytesPerTrigger: 'crates' is not a unit of size"),
        ({"startingOffsets": "begin"}, "startingOffsets: expected earliest, latest, group or JSON, found 'begin'"),
        ({"startingOffsets": "group"}, "'group' needs the group's name in the option group"),
        ({"group": "billing"}, "group is used only with startingOffsets=group"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy: expected error or latest"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level: expected read_uncommitted or read_committed"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol='TLS': it is one of PLAINTEXT, SSL"),
        ({"kafka.ssl.trustore.location": "x"}, "Did you mean kafka.ssl.truststore.location"),
        ({"path": "x"}, "path is not supported: there is no path to load from"),
        ({"startingOffset": "earliest"}, "startingoffset is not an option. Did you mean startingOffsets"),
        ({"kafka.isolation.lvl": "x"}, "Did you mean kafka.isolation.level"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(options: dict[str, str], said: str) -> None:
    found = problems({**{name.lower(): text for name, text in ENOUGH.items()}, **options}, streaming=True)
    assert said in found


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = problems({"failOnDataLoss": "x", "nonsense": "y"}, streaming=True)
    assert said.count("\n") == 4
    for part in ("failOnDataLoss", "nonsense", "kafka.bootstrap.servers", "subscribe"):
        assert part in said


def test_a_pattern_that_is_no_expression_is_refused() -> None:
    said = problems({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, streaming=True)
    assert "subscribePattern: '(' is not a regular expression" in said


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_kafka_key_that_spark_s_own_source_refuses_is_refused_with_a_reason(name: str) -> None:
    said = problems({**ENOUGH, f"kafka.{name}": "x"}, streaming=True)
    assert re.search(rf"^kafka\.{re.escape(name)} is not supported: .{{10}}", said, re.MULTILINE)


@pytest.mark.parametrize("name", sorted({*WITHOUT_EFFECT, *OF_PRODUCERS, "ssl.cipher.suites", "sasl.login.class"}))
def test_every_other_kafka_key_is_taken_with_a_warning_that_says_why_it_has_no_effect(name: str) -> None:
    (warning,) = stream(**{f"kafka.{name}": "x"}).warnings
    assert re.match(rf"kafka\.{re.escape(name)} has no effect: .{{10}}", warning)


def test_no_key_is_both_implemented_and_refused() -> None:
    sets = [{key.value for key in Key}, set(REFUSED), set(WITHOUT_EFFECT), set(OF_PRODUCERS)]
    assert sum(map(len, sets)) == len(set().union(*sets))
    assert not set(option_names.OPTIONS) & set(option_names.REFUSED)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"fetchOffset.numRetries": "3"}, "fetchOffset.numRetries has no effect: attempts are bounded by time"),
        ({"kafka.max.poll.records": "500"}, "kafka.max.poll.records has no effect: records come as whole batches"),
        ({"kafka.check.crcs": "false"}, "kafka.check.crcs=false has no effect: checksums are always checked"),
        ({"kafka.allow.auto.create.topics": "true"}, "has no effect: reading never creates a topic"),
        ({"topic": "x"}, "topic has no effect: it names the topic of a write; a read uses subscribe"),
        ({"groupIdPrefix": "a", "kafka.group.id": "b"}, "groupIdPrefix has no effect beside kafka.group.id"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "1"},
            "startingOffsets have no effect beside startingTimestamp",
        ),
    ],
)
def test_options_of_spark_s_own_source_are_taken_with_a_warning(options: dict[str, str], warning: str) -> None:
    (said,) = stream(**options).warnings
    assert warning in said


def test_where_several_options_say_where_to_begin_or_end_the_same_one_counts_as_in_spark_s_own_source() -> None:
    by_partition = '{"orders": {"0": 7}}'
    assert batch(startingTimestamp="1", startingOffsetsByTimestamp=by_partition).starting == AtTime(1)
    assert batch(startingOffsets="earliest", startingOffsetsByTimestamp=by_partition).starting == AtTimes(
        {TopicPartition("orders", 0): 7}
    )
    assert batch(endingOffsets="latest", endingTimestamp="1").ending == AtTime(1)


def test_the_pause_between_attempts_has_two_names() -> None:
    assert stream(**{"fetchOffset.retryIntervalMs": "7"}).client.retry_backoff_ms == 7
    assert stream(**{"fetchOffset.retryIntervalMs": "7", "kafka.retry.backoff.ms": "8"}).client.retry_backoff_ms == 8


def test_what_has_no_effect_is_a_warning() -> None:
    assert "maxOffsetsPerTrigger have no effect on a batch read" in batch(maxOffsetsPerTrigger="5").warnings[0]
    assert "groupIdPrefix have no effect on a batch read" in batch(groupIdPrefix="team").warnings[0]
    assert "progressGroup have no effect on a batch read" in batch(progressGroup="mine").warnings[0]
    assert not stream(progressGroup="mine").warnings
    assert "maxTriggerDelay has no effect" in stream(maxTriggerDelay="5s").warnings[0]
    assert (
        "startingOffsetsByTimestampStrategy has no effect"
        in stream(startingOffsetsByTimestampStrategy="latest").warnings[0]
    )
    assert (
        stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest").no_later_record
        is NoLaterRecord.LATEST
    )


def test_at_load_options_must_be_right_for_a_batch_or_for_a_stream() -> None:
    assert not check_options({**ENOUGH, "endingOffsets": "latest"})
    assert check_options({**ENOUGH, "startingOffsets": "latest", "includeHeaders": "true"})
    with pytest.raises(OptionsError) as refused:
        check_options({**ENOUGH, "endingOffsets": "latest", "nonsense": "1"})
    assert refused.value.problems == ["nonsense is not an option."]
