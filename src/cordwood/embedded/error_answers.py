"""Answers that refuse a whole request with one error code, for any API, made from the message schemas.

The rows of a request (topics, partitions, groups, keys) come back in the answer, each with the code: clients look up
the rows that they asked for. All other fields have their defaults, or say "unknown".
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import Entity, Field, Struct, load

_CODES: Final = frozenset({"error_code", "partition_error_code"})
_ROWS: Final = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("resources", "topics", "groups_names", "creations"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "transaction_states": ("transactional_ids",),
}
"""Arrays of answers whose array in the request has another name. All other arrays have the same name in both."""
_IDENTITY: Final = {
    "group_id": ("group_id",),
    "group_instance_id": ("group_instance_id",),
    "index": ("index",),
    "key": ("key",),
    "member_id": ("member_id",),
    "name": ("name",),
    "partition_id": ("partition_id",),
    "partition_index": ("partition_index", "partition"),
    "partition": ("partition",),
    "producer_id": ("producer_id",),
    "resource_name": ("resource_name",),
    "resource_type": ("resource_type",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "transactional_id": ("transactional_id",),
}
"""The fields that identify a row, with their names in requests."""
_UNKNOWN: Final = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
}
_ONLY_ON_TOP: Final = {
    ApiKey.FETCH: frozenset(
        {
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        }
    ),
    ApiKey.METADATA: frozenset({ErrorCode.REBOOTSTRAP_REQUIRED}),
}
"""APIs with few uses of the top-level error code: with any other code there, clients would not read the rows."""

_NAMES_OF_TOPICS: Final = ("name", "topic", "topic_name")
_TOPICS: Final = ("topics", "topic_data", "topic_partitions", "topic_names", "v3_and_below_topics")
_ROWS_WITH_TOPICS: Final = ("transactions", "groups", "markers")
_PARTITIONS: Final = ("partitions", "partition_data", "partition_indexes")


def refusal(api_key: int, request: Entity, code: int) -> dict[str, Any]:
    """The values of the answer, for `encode_response`."""
    on_top = _ONLY_ON_TOP.get(ApiKey(api_key))
    values = _filled(load(APIS[api_key].name)["response"].body, request, code)
    if api_key == ApiKey.DESCRIBE_LOG_DIRS:
        # The rows of this answer are directories, which a request does not name.
        values["results"] = [{"error_code": code}]
    if api_key == ApiKey.ALTER_REPLICA_LOG_DIRS:
        # The rows of this answer are topics, which a request names by directory.
        values["results"] = [
            {
                "topic_name": topic.name,
                "partitions": [{"partition_index": index, "error_code": code} for index in topic.partitions],
            }
            for directory in getattr(request, "dirs", ())
            for topic in directory.topics
        ]
    if api_key == ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        # The rows of this answer are users, whom a request names in two arrays.
        named = [row.name for array in ("deletions", "upsertions") for row in getattr(request, array, ())]
        values["results"] = [{"user": name, "error_code": code} for name in dict.fromkeys(named)]
    if on_top is not None:
        if code in on_top:
            return {"error_code": code}
        values.pop("error_code", None)
    return values


def _filled(struct: Struct, asked: Entity, code: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in struct.fields:
        if field.name in _CODES:
            values[field.name] = code
        elif field.is_array and field.struct is not None:
            values[field.name] = list(_rows(field, field.struct, asked, code))
        elif field.name in _UNKNOWN:
            values[field.name] = _UNKNOWN[field.name]
    return values


def _rows(field: Field, struct: Struct, asked: Entity, code: int) -> Iterator[dict[str, Any]]:
    if not _has_code(struct):
        return
    identity = [inner for inner in struct.fields if inner.name in _IDENTITY and not inner.is_array]
    for row in _first_of(asked, _ROWS.get(field.name, (field.name,))):
        if isinstance(row, Entity):
            values = _filled(struct, row, code)
            for inner in identity:
                for name in _IDENTITY[inner.name]:
                    if hasattr(row, name):
                        values[inner.name] = getattr(row, name)
        else:
            # The row is only a name or a number: it goes into the identifying fields of its type.
            wanted = "string" if isinstance(row, str) else "int32"
            values = _filled(struct, Entity(), code)
            values.update((inner.name, row) for inner in identity if inner.type == wanted)
        yield values


def _has_code(struct: Struct) -> bool:
    return any(
        field.name in _CODES or (field.struct is not None and _has_code(field.struct)) for field in struct.fields
    )


def _first_of(entity: Entity, names: Sequence[str]) -> Sequence[Any]:
    return next((rows for name in names if (rows := getattr(entity, name, None))), ())


def names_topics(api_key: int) -> bool:
    """True if requests of this API name topics."""
    fields = load(APIS[api_key].name)["request"].body.fields
    nested = [
        inner for field in fields if field.name in _ROWS_WITH_TOPICS and field.struct for inner in field.struct[0]
    ]
    return any(field.name in _TOPICS for field in (*fields, *nested))


def named_partitions(
    request: Entity, topic_name: Callable[[TopicId], str | None]
) -> Iterator[tuple[str | None, int | None]]:
    """The topics that a request names, each with its partitions; None for a topic without."""
    for field in _TOPICS:
        for row in getattr(request, field, None) or ():
            if isinstance(row, str):
                yield row, None
                continue
            name = next((name for field in _NAMES_OF_TOPICS if (name := getattr(row, field, None))), None)
            if not name and getattr(row, "topic_id", None):
                name = topic_name(row.topic_id)
            partitions = _first_of(row, _PARTITIONS)
            if not partitions:
                yield name, None
            for partition in partitions:
                yield name, partition if isinstance(partition, int) else _index_of(partition)
    for field in _ROWS_WITH_TOPICS:
        for row in getattr(request, field, None) or ():
            if isinstance(row, Entity):
                yield from named_partitions(row, topic_name)


def _index_of(partition: Entity) -> int:
    names = ("index", "partition_index", "partition")
    return int(next(getattr(partition, name) for name in names if hasattr(partition, name)))
