"""Hostile requests of every API and version, made from their schemas: each array in turn as wide as it may be, filled
with names that exist or do not, that repeat or differ, and with the longest strings.

For `benchmarks.stalls`, which sends them to a broker, and for the test that counts what each of them costs in a turn.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from benchmarks.wide_requests import GROUP, Stage
from cordwood.records.build import build_batch
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.primitives import LONGEST_STRING
from cordwood.wire.encoding.schema import Field, Struct, load
from cordwood.wire.widths import MAX_BYTES_WITHOUT_RECORDS, max_elements

STORED: Final = 200
"""Things of each kind that are stored before: topics with long lists, groups with positions, transactional ids."""

MAX_BYTES: Final = MAX_BYTES_WITHOUT_RECORDS - 64 * 1024
"""Of one request: long strings make it narrower."""

THROTTLED: Final = "leader.replication.throttled.replicas"
LONG_LIST: Final = ",".join(f"{number % 7}:{number}" for number in range(4500))
"""A list of nearly as many parts as a value has room for."""


_LONGEST: Final = "\u00e9" * (LONGEST_STRING // 2)
"""Letters of two bytes: these take longest to read."""


class Content(Enum):
    """The names in a request."""

    REPEATED = "one that exists, repeated"
    STORED = "all that are stored"
    UNKNOWN = "none that exist"
    LONGEST = "the longest strings"


DESTRUCTIVE: Final = frozenset({ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS})
"""APIs that would take the stage away: they name nothing that exists."""


class Hostile(NamedTuple):
    key: ApiKey
    version: int
    path: tuple[str, ...]
    """The array that is wide; empty: the request has none."""
    content: Content

    def __str__(self) -> str:
        return f"{APIS[self.key].name} v{self.version} {'.'.join(self.path) or 'no array'}: {self.content.value}"


_NUMBERS: Final[dict[str, Any]] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "committed_offset": 1,
    "config_operation": 2,
    "count": 2,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "generation_id": 1,
    "generation_id_or_member_epoch": -1,
    "last_fetched_epoch": -1,
    "max_bytes": 10_000_000,
    "max_version_level": 1,
    "max_wait_ms": 0,
    "member_epoch": 1,
    "num_partitions": -1,
    "offset": -1,
    "operation": 3,
    "partition_max_bytes": 1000,
    "permission_type": 3,
    "producer_id": 1,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "response_partition_limit": 2000,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1000,
    "timestamp": -1,
    "transaction_timeout_ms": 60_000,
    "upgrade_type": 1,
    "validate_only": True,
}
"""Values of numbers, by the name of their field; others have their default."""

_PARTITION_FIELDS: Final = ("partition", "partitions", "partition_index", "partition_indexes", "index")
_SETTING_PATHS: Final = ("configs", "configuration_keys")
_FIXED_TEXTS: Final = {"protocol_type": "consumer", "protocol_name": "range", "host": "*", "principal": "User:n"}


def hostile_requests(key: ApiKey, versions: range, contents: tuple[Content, ...] = tuple(Content)) -> Iterator[Hostile]:
    """Every array of every version, with each content."""
    body = load(APIS[key].name)["request"].body
    for version in versions:
        for path in list(_arrays(body, version, ())) or [()]:
            for content in contents:
                if key not in DESTRUCTIVE or content in (Content.UNKNOWN, Content.LONGEST):
                    yield Hostile(key, version, path, content)


def fields_of(
    hostile: Hostile, stage: Stage, elements: int | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """The body of the request, with as many elements as it may have, or with so many."""
    body = load(APIS[hostile.key].name)["request"].body
    wide = hostile.path
    # Arrays around the wide one, beside it and in each of its elements have one element each.
    within = sum(path[: len(wide)] == wide and path != wide for path in _arrays(body, hostile.version, ()))
    others = sum(path[: len(wide)] != wide for path in _arrays(body, hostile.version, ()))
    most = max_elements(hostile.key) if elements is None else elements
    return _Maker(hostile, stage, max((most - others) // (1 + within), 0), max_bytes).body(body)


def _arrays(struct: Struct, version: int, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in struct.fields:
        if version in field.versions:
            here = (*path, field.name)
            if field.is_array:
                yield here
            if field.struct is not None:
                yield from _arrays(field.struct, version, here)


class _Maker:
    def __init__(self, hostile: Hostile, stage: Stage, width: int, max_bytes: int) -> None:
        self._hostile = hostile
        self._stage = stage
        self._left_bytes = max_bytes
        self._width = width
        self._number = 0
        """Counts the elements of the wide array: names differ by it."""
        self._batch = bytes(build_batch([(1, None, b"v", ())]))

    def body(self, struct: Struct, path: tuple[str, ...] = ()) -> dict[str, Any]:
        version = self._hostile.version
        return {
            field.name: self._value(field, (*path, field.name))
            for field in struct.fields
            if version in field.versions and field.tag is None
        }

    def _value(self, field: Field, path: tuple[str, ...]) -> Any:
        if not field.is_array:
            return self._one(field, path)
        elements = []
        if path != self._hostile.path:
            return [self._one(field, path)]
        for number in range(self._width):
            self._number = number
            if self._left_bytes <= 0:
                break
            elements.append(self._one(field, path))
        self._number = 0
        return elements

    def _one(self, field: Field, path: tuple[str, ...]) -> Any:
        if field.struct is not None:
            return self.body(field.struct, path)
        if field.type == "string":
            return self._text(field, path)
        if field.type == "records":
            return self._batch
        if field.type == "bytes":
            return b"x" * (1000 if self._hostile.content is Content.LONGEST else 10)
        if field.type == "uuid":
            return self._stage.topic_id
        if field.name in _PARTITION_FIELDS:
            return self._number % self._stage.partitions
        if field.name in ("broker_ids", "replicas"):
            return 1 + self._number
        if field.name in _NUMBERS:
            return _NUMBERS[field.name]
        return 0 if field.is_array else field.default

    def _text(self, field: Field, path: tuple[str, ...]) -> str | None:
        if field.name in _FIXED_TEXTS:
            return _FIXED_TEXTS[field.name]
        if field.name == "value":
            self._left_bytes -= len(LONG_LIST)
            return LONG_LIST
        content, number = self._hostile.content, self._number
        is_setting = any(part in _SETTING_PATHS for part in path) and field.name in ("name", "configuration_keys")
        # Only names within the wide array are long: the others would be refused first.
        in_wide = path[: len(self._hostile.path)] == self._hostile.path
        if content is Content.LONGEST and in_wide and (not is_setting or path == self._hostile.path):
            text = _LONGEST[: -len(str(number))] + str(number)
        elif is_setting:
            text = THROTTLED if number == 0 else f"retention.{number}.ms"
        elif content is Content.REPEATED or not in_wide:
            text = self._existing(field)
        elif content is Content.STORED:
            text = f"stored{number % STORED}"
        else:
            text = f"n{number}"
        self._left_bytes -= 2 * len(text) if content is Content.LONGEST else len(text)
        return text

    def _existing(self, field: Field) -> str:
        name = field.name
        if "group" in name or "transactional" in name or name in ("key", "coordinator_keys", "family", "families"):
            return GROUP
        return self._stage.topic
