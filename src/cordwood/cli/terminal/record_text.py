"""Records as text: the JSON form that `consume --json` writes and `produce --json-input` reads, and back.

Bytes that are UTF-8 are JSON strings; other bytes are `{"base64": "..."}`; null is null. The output of `consume` gives
the same bytes again in `produce`.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from cordwood.cli.terminal.options import checked_name
from cordwood.model.failure import ExitCode, Failure

Headers = tuple[tuple[str, bytes | None], ...]


class OutgoingRecord(NamedTuple):
    """A record to produce. The producer chooses a partition or a timestamp that is None."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def bytes_as_given(text: str) -> bytes:
    """The bytes of an argument or of a line of stdin, unchanged even if they are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def bytes_as_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_from_json(value: Any) -> bytes | None:
    """The bytes that a JSON value stands for; values that are no strings are kept as their JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise bad_input(f"not base64: {value['base64']!r}") from error
    return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise bad_input(
            f'not UTF-8: {text[:80]!r}; bytes that are no text are written as {{"base64": "..."}}'
        ) from error


def record_from_json(line: str) -> OutgoingRecord:
    """The record that a line of JSON describes. Its topic and offset, which say where it was read, are ignored."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad_input(f"not JSON: {line[:80]!r}: {error}") from error
    if not isinstance(fields, dict) or "value" not in fields:
        raise bad_input(f'not an object with a "value": {line[:80]!r}')
    partition, timestamp_ms = fields.get("partition"), fields.get("timestamp_ms")
    for name, number, bits in (("partition", partition, 31), ("timestamp_ms", timestamp_ms, 63)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise bad_input(f"{name} is not a number: {number!r}")
        if number is not None and number.bit_length() > bits:
            raise bad_input(f"{name} is too large a number")
    return OutgoingRecord(
        key=bytes_from_json(fields.get("key")),
        value=bytes_from_json(fields["value"]),
        headers=_headers_from_json(fields.get("headers")),
        partition=partition,
        timestamp_ms=timestamp_ms,
    )


def _headers_from_json(headers: Any) -> Headers:
    if headers is None:
        return ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise bad_input("headers are neither an object nor a list of [name, value] pairs")
    for name, _ in pairs:
        _utf8(name)  # a lone surrogate would end the process: librdkafka's client does not check
    return tuple((name, bytes_from_json(value)) for name, value in pairs)


def headers_from_options(texts: list[str] | None) -> Headers:
    """The headers that options like `["trace=1", "flag"]` give: a header without `=` has no value."""
    headers = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name:
            raise Failure("USAGE", f"{text!r} is not NAME=VALUE", "an example: --header trace=42", ExitCode.USAGE)
        checked_name(name)
        headers.append((name, bytes_as_given(value) if equals else None))
    return tuple(headers)


def readable(data: bytes | None) -> str:
    """Bytes on one line of a terminal: UTF-8 as text, other bytes as escapes, None as `(null)`."""
    if data is None:
        return "(null)"
    text = data.decode("utf-8", errors="backslashreplace")
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def bad_input(message: str) -> Failure:
    return Failure("INVALID_INPUT", message, "`cordwood produce --help` describes the lines")
