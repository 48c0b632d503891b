"""kio as the second opinion on Kafka's messages: any entity it knows, drawn or random, as bytes and from bytes.

Strategies shrink and suit the few messages that are written by hand; `random_entity` is fast enough for all of them.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from cordwood.wire.apis import flexible

ALL_VERSIONS = [(key, version) for key, name in api_key_map.items() for version in sorted(schema_name_map[name])]
"""Every (API key, version) that kio has."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def versions_of(api_key: int) -> list[int]:
    return [version for key, version in ALL_VERSIONS if key == api_key]


@cache
def entity_type(api_key: int, version: int, kind: str) -> type:
    """The class of a request or response: `kind` is "request" or "response"."""
    name = api_key_map[api_key]
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    class_name = next(member for member in module.__dict__ if member.lower() == name.replace("_", "") + kind)
    found: type = getattr(module, class_name)
    return found


def encoded(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decoded(api_key: int, version: int, kind: str, body: bytes) -> Any:
    read: Callable[[bytes, int], tuple[Any, int]] = entity_reader(entity_type(api_key, version, kind))
    entity, size = read(body, 0)
    assert size == len(body)
    return entity


def request_frame(entity: Any, correlation_id: int = 7, client_id: str | None = "tester") -> bytes:
    """A request with its header, without a size prefix."""
    key, version = entity.__api_key__, entity.__version__
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id.encode()
    header = b"".join((key.to_bytes(2, "big"), version.to_bytes(2, "big"), correlation_id.to_bytes(4, "big"), name))
    return header + (b"\x00" if flexible(key, version) else b"") + encoded(entity)


def response_frame(entity: Any, correlation_id: int = 7) -> bytes:
    """A response with its size and header."""
    key, version = entity.__api_key__, entity.__version__
    tags = b"\x00" if flexible(key, version) and key != 18 else b""
    body = correlation_id.to_bytes(4, "big") + tags + encoded(entity)
    return len(body).to_bytes(4, "big") + body


def milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def epoch_ms(moment: datetime | None) -> int:
    return -1 if moment is None else round((moment - _EPOCH) / timedelta(milliseconds=1))


@cache
def requests(api_key: int, version: int) -> st.SearchStrategy[Any]:
    return entities(entity_type(api_key, version, "request"))


@cache
def responses(api_key: int, version: int) -> st.SearchStrategy[Any]:
    return entities(entity_type(api_key, version, "response"))


@cache
def entities(entity: type) -> st.SearchStrategy[Any]:
    """Any value of this class that its bytes can carry."""
    members = {field.name: _values(field.type, field.metadata.get("kafka_type", "")) for field in fields(entity)}
    return st.builds(entity, **members)


def _values(annotation: Any, kafka_type: str) -> st.SearchStrategy[Any]:
    if get_origin(annotation) is UnionType:
        (inner,) = (part for part in get_args(annotation) if part is not type(None))
        return st.none() | _values(inner, kafka_type)
    if get_origin(annotation) is tuple:
        return st.lists(_values(get_args(annotation)[0], kafka_type), max_size=3).map(tuple)
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return entities(annotation)
    return _PRIMITIVES[kafka_type]


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(max(low, -3), 40) | st.integers(low, high)


_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, signed=False),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=6) | st.sampled_from(["orders", "é" * 70, "x" * 200]),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=20) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 9000, b"r" * 20_000]),
    "uuid": st.uuids().filter(lambda value: value != UUID(int=0)),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": _integers(32).map(lambda value: timedelta(milliseconds=value)),
    "timedelta_i64": _integers(44).map(lambda value: timedelta(milliseconds=value)),
    "datetime_i64": st.integers(0, 4_000_000_000_000).map(lambda value: _EPOCH + timedelta(milliseconds=value)),
}


def random_entity(random: Random, entity: type) -> Any:
    """Some value of this class, with every field set."""
    return entity(
        **{
            field.name: _random_value(random, field.type, field.metadata.get("kafka_type", ""))
            for field in fields(entity)
        }
    )


def _random_value(random: Random, annotation: Any, kafka_type: str) -> Any:
    if get_origin(annotation) is UnionType:
        (inner,) = (part for part in get_args(annotation) if part is not type(None))
        return None if random.random() < 0.2 else _random_value(random, inner, kafka_type)
    if get_origin(annotation) is tuple:
        (element, _) = get_args(annotation)
        return tuple(_random_value(random, element, kafka_type) for _ in range(random.choice((0, 1, 1, 2, 3))))
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return random_entity(random, annotation)
    return _RANDOM[kafka_type](random)


def _random_integer(bits: int, *, signed: bool = True) -> Callable[[Random], int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda random: random.choice((low, 0, 1, high, random.randint(low, high)))


_RANDOM: dict[str, Callable[[Random], Any]] = {
    "int8": _random_integer(8),
    "int16": _random_integer(16),
    "int32": _random_integer(32),
    "int64": _random_integer(64),
    "uint16": _random_integer(16, signed=False),
    "bool": lambda random: random.random() < 0.5,
    "float64": lambda random: random.uniform(-1e9, 1e9),
    "string": lambda random: random.choice(("", "orders", "é" * 70, "x" * 200)),
    "bytes": lambda random: random.randbytes(random.choice((0, 1, 20, 127, 128))),
    "records": lambda random: random.randbytes(random.choice((0, 61, 127, 300))),
    "uuid": lambda random: UUID(int=random.getrandbits(128) | 1),
    "error_code": lambda random: random.choice(list(ErrorCode)),
    "timedelta_i32": lambda random: timedelta(milliseconds=_random_integer(32)(random)),
    "timedelta_i64": lambda random: timedelta(milliseconds=_random_integer(44)(random)),
    "datetime_i64": lambda random: _EPOCH + timedelta(milliseconds=random.randrange(4_000_000_000_000)),
}
