"""Records as text and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cli.terminal.record_text import (
    OutgoingRecord,
    bytes_as_json,
    bytes_from_json,
    headers_from_options,
    readable,
    record_from_json,
)
from cordwood.model.failure import Failure
from cordwood.model.timestamps import parse_time_ms, time_in_words

anything = st.none() | st.binary(max_size=40)


@given(
    key=anything,
    value=anything,
    headers=st.lists(st.tuples(st.text(max_size=8), anything), max_size=3),
    partition=st.none() | st.integers(0, 99),
    timestamp_ms=st.none() | st.integers(0, 2**62),
)
def test_what_consume_writes_produce_reads_back_to_the_same_bytes(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    line = json.dumps(
        {
            "topic": "ignored",
            "offset": 5,
            "key": bytes_as_json(key),
            "value": bytes_as_json(value),
            "headers": [[name, bytes_as_json(content)] for name, content in headers],
            "partition": partition,
            "timestamp_ms": timestamp_ms,
        }
    )
    assert record_from_json(line) == OutgoingRecord(key, value, tuple(headers), partition, timestamp_ms)


def test_other_json_values_are_kept_as_json() -> None:
    record = record_from_json('{"key": 7, "value": {"amount": 3}, "headers": {"trace": "1"}}')
    assert record == OutgoingRecord(b"7", b'{"amount":3}', (("trace", b"1"),))


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"key": "k"}',
        '{"value": "v", "headers": "h"}',
        '{"value": "v", "headers": [["only a name"]]}',
        '{"value": {"base64": "?"}}',
        '{"value": {"base64": 1}}',
        '{"value": "v", "partition": "0"}',
        '{"value": "v", "timestamp_ms": true}',
        '{"value": "v", "timestamp_ms": 9223372036854775808}',
        '{"value": "v", "partition": 2147483648}',
        '{"value": "\\ud800"}',
        '{"value": ["\\ud800"]}',
        '{"value": "v", "headers": {"\\ud800": "1"}}',
        '{"value": ' + "9" * 5000 + "}",
        '{"value": ' + "[" * 100_000,
    ],
)
def test_a_line_that_is_no_record_is_refused_with_a_reason(line: str) -> None:
    with pytest.raises(Failure) as caught:
        record_from_json(line)
    assert caught.value.code == "INVALID_INPUT"
    assert caught.value.message


def test_a_header_may_have_no_value() -> None:
    given = ["a=1", "b", "c=", "d=\udcff"]
    assert headers_from_options(given) == (("a", b"1"), ("b", None), ("c", b""), ("d", b"\xff"))
    with pytest.raises(Failure):
        headers_from_options(["=1"])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "(null)"),
        (b"plain", "plain"),
        ("grün".encode(), "grün"),
        (b"a\nb\t", r"a\nb\t"),
        (b"\xff\x00", r"\xff\x00"),
    ],
)
def test_bytes_are_readable_on_one_line(data: bytes | None, text: str) -> None:
    assert readable(data) == text


@given(st.integers(0, 4_102_444_800_000))
def test_a_time_that_was_printed_can_be_given_back(timestamp_ms: int) -> None:
    assert parse_time_ms(time_in_words(timestamp_ms)) == timestamp_ms
    assert parse_time_ms(str(timestamp_ms)) == timestamp_ms


def test_times_without_a_zone_are_utc_and_absent_times_are_a_dash() -> None:
    assert parse_time_ms("1970-01-01T00:00:01") == 1000
    assert parse_time_ms("1970-01-01T01:00:01+01:00") == 1000
    assert time_in_words(-1) == "-"
    assert time_in_words(2**62) == f"{2**62} ms"
    for text in ("soon", str(2**63), "9" * 5000):
        with pytest.raises(ValueError):
            parse_time_ms(text)


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00+14:00", "1969-12-31T23:59:59.999Z"])
def test_times_before_1970_are_the_beginning_of_time(text: str) -> None:
    assert parse_time_ms(text) == 0


def test_text_that_is_base64_by_chance_stays_text() -> None:
    assert bytes_from_json("aGk=") == b"aGk="
