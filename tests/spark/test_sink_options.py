"""Options of a write: some are obeyed, others refused, and every refusal names its option."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from cordwood.records.batch import Codec
from cordwood.spark.checkpoints.owner import Owner, write_owner
from cordwood.spark.sink.options import (
    SINK_OPTIONS,
    Guarantee,
    OlderBatches,
    SinkOptionError,
    SinkOptions,
    UnknownQuery,
    parse_sink_options,
)
from cordwood.spark.sink.producer_keys import REFUSED_KEYS, SUPPORTED_KEYS, WITHOUT_EFFECT, why_without_effect
from cordwood.spark.sink.stream_writer import StreamSink, stream_writer

pytestmark = pytest.mark.landing

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(options: dict[str, str] | None = None, *, streaming: bool = True) -> SinkOptions:
    return parse_sink_options(SERVERS | (options or {}), streaming=streaming)


def refusal(options: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(SinkOptionError) as caught:
        parse(options, streaming=streaming)
    return str(caught.value)


def test_without_options_a_write_is_exactly_once() -> None:
    options = parse()
    assert options.guarantee is Guarantee.MICRO_BATCH
    assert options.acks == -1
    assert options.idempotent
    assert options.codec is Codec.NONE
    assert options.older_batches is OlderBatches.FAIL
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_of_options_have_no_case() -> None:
    options = parse({"ExactlyOnce": "FALSE", "KAFKA.acks": "1", "kafka.Linger.MS": "7"})
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert options.acks == 1
    assert not options.idempotent
    assert options.linger_ms == 7


def test_settings_of_the_producer_reach_the_client() -> None:
    options = parse(
        {
            "kafka.client.id": "enricher",
            "kafka.request.timeout.ms": "1000",
            "kafka.delivery.timeout.ms": "2000",
            "kafka.retry.backoff.ms": "3",
            "kafka.retry.backoff.max.ms": "4",
            "kafka.max.request.size": "5000",
            "kafka.batch.size": "9000",
            "kafka.buffer.memory": "60000",
            "kafka.max.block.ms": "70",
            "kafka.transaction.timeout.ms": "8000",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "9",
            "kafka.compression.gzip.level": "1",
            "kafka.send.buffer.bytes": "10",
            "kafka.receive.buffer.bytes": "11",
        }
    )
    client = options.client
    assert (client.client_id, client.request_timeout_ms, client.retry_timeout_ms) == ("enricher", 1000, 2000)
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == (3, 4)
    assert (client.max_request_bytes, client.max_in_flight_bytes) == (5000, 60000)
    assert (client.send_buffer_bytes, client.receive_buffer_bytes) == (10, 11)
    assert options.batch_bytes == 5000, "no batch is larger than a request"
    assert (options.metadata_wait_ms, options.transaction_timeout_ms) == (70, 8000)
    assert (options.codec, options.codec_level) == (Codec.ZSTD, 9)


def test_brokers_have_to_be_named() -> None:
    with pytest.raises(SinkOptionError, match=r"kafka\.bootstrap\.servers"):
        parse_sink_options({}, streaming=False)


@pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
def test_a_key_that_spark_s_own_sink_cannot_take_is_refused_with_the_reason(key: str) -> None:
    message = refusal({f"kafka.{key}": "x"})
    assert f"'{key}'" in message
    assert REFUSED_KEYS[key] in message


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_a_key_that_is_not_obeyed_is_taken_with_a_warning(key: str) -> None:
    name = key + "something" if key.endswith(".") else key
    assert parse({f"kafka.{name}": "x"}).warnings == (f"kafka.{name} has no effect: {WITHOUT_EFFECT[key]}",)


def test_no_key_is_both_obeyed_and_not() -> None:
    assert not SUPPORTED_KEYS.keys() & (REFUSED_KEYS.keys() | WITHOUT_EFFECT.keys())
    assert not any(why_without_effect(key) for key in (*SUPPORTED_KEYS, *REFUSED_KEYS))


@pytest.mark.parametrize(
    ("name", "value"),
    [("kafka.acks", "1"), ("kafka.acks", "0"), ("kafka.enable.idempotence", "false"), ("kafka.retries", "0")],
)
def test_settings_of_a_query_that_was_at_least_once_give_way_with_a_warning(name: str, value: str) -> None:
    options = parse({name: value})
    assert options.warnings == (f"{name}={value} has no effect: a write is exactly once; exactlyOnce=false obeys it",)
    assert (options.acks, options.idempotent) == (-1, True)
    assert parse({name: value, "exactlyOnce": "false", "kafka.enable.idempotence": "false"}).warnings == ()


def test_a_misspelt_option_is_refused_with_a_guess() -> None:
    assert "did you mean 'exactlyOnce'" in refusal({"exactlyonc": "false"})
    assert "did you mean 'kafka.linger.ms'" in refusal({"kafka.lingerms": "1"})
    assert "'frobnicate'" in refusal({"frobnicate": "1"})


def test_what_spark_and_the_source_add_is_passed_over() -> None:
    assert parse({"checkpointLocation": "/tmp/x", "queryName": "q", "subscribe": "orders"}).topic is None


def test_a_path_is_refused_with_what_to_write_instead() -> None:
    assert 'option("topic"' in refusal({"path": "/tmp/x"})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"kafka.acks": "1", "exactlyOnce": "true"}, ("kafka.acks=1", "exactlyOnce=true")),
        ({"kafka.acks": "0", "exactlyOnce": "task"}, ("kafka.acks=0", "exactlyOnce=task")),
        (
            {"kafka.enable.idempotence": "false", "exactlyOnce": "true"},
            ("kafka.enable.idempotence=false", "exactlyOnce=true"),
        ),
        (
            {"kafka.enable.idempotence": "true", "kafka.acks": "1", "exactlyOnce": "false"},
            ("kafka.enable.idempotence=true", "kafka.acks=1"),
        ),
        ({"kafka.retries": "0", "exactlyOnce": "true"}, ("kafka.retries=0", "kafka.enable.idempotence")),
        ({"batchId": "7"}, ("batchId",)),
    ],
)
def test_contradictions_name_both_options(options: dict[str, str], names: tuple[str, ...]) -> None:
    message = refusal(options)
    for name in names:
        assert name in message


def test_a_numbered_batch_needs_a_family_and_exactly_once() -> None:
    assert parse({"family": "daily", "batchId": "20261115"}, streaming=False).batch_id == 20261115
    assert "'family'" in refusal({"batchId": "7"}, streaming=False)
    contradiction = {"batchId": "7", "family": "daily", "exactlyOnce": "false"}
    assert "exactlyOnce=false" in refusal(contradiction, streaming=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.acks", "2"),
        ("kafka.linger.ms", "-1"),
        ("kafka.linger.ms", "soon"),
        ("kafka.compression.type", "brotli"),
        ("kafka.compression.zstd.level", "23"),
        ("kafka.max.in.flight.requests.per.connection", "6"),
        ("kafka.enable.idempotence", "maybe"),
        ("exactlyOnce", "perhaps"),
        ("olderBatches", "ignore"),
        ("family", "a/b"),
        ("family", ""),
        ("topic", " "),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name: str, value: str) -> None:
    assert f"'{name}" in refusal({name: value})


def test_the_documentation_lists_what_is_obeyed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    for key, meaning in SUPPORTED_KEYS.items():
        assert f"| `kafka.{key}` | {meaning} |" in page
    for option in SINK_OPTIONS:
        assert f"| `{option}` |" in page


def test_a_query_that_wrote_with_another_sink_until_now_goes_on_here(tmp_path: Path) -> None:
    """The checkpoint is Spark's, without a file of this sink."""
    schema = StructType().add("value", "string")

    def unknown(checkpoint: str, **more: str) -> UnknownQuery:
        given = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "checkpointLocation": checkpoint, **more}
        writer = stream_writer(given, schema, overwrite=False)
        assert isinstance(writer, StreamSink)
        return writer._options.unknown_query

    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "7").write_text("v1\n{}")
    assert unknown(str(tmp_path)) is UnknownQuery.FAIL  # its metadata is lost: the owner of the batches is unknown
    (tmp_path / "metadata").write_text('{"id": "q1"}')
    assert unknown(str(tmp_path)) is UnknownQuery.BEGIN
    assert unknown(str(tmp_path), unknownQuery="fail") is UnknownQuery.FAIL
    assert unknown("s3a://bucket/checkpoint") is UnknownQuery.FAIL
    write_owner(tmp_path, Owner("q1", "q1"))
    assert unknown(str(tmp_path)) is UnknownQuery.FAIL
