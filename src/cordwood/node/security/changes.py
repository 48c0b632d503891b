"""The changes that requests make, for the security trail: which resources, as each API's request and answer tell it.

An API belongs here if a right of its entry in the table of rights (`requests/rights.py`) is to create, delete or alter
something; a test compares the two. Metadata, which may create topics, tells its changes itself, for its answer does not
say which topics are new; and so do those of delegation tokens, whose requests name a token by its secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from cordwood.cluster.planner.configs import AlterOperation, ResourceType
from cordwood.model.acls import THE_CLUSTER, Acl, Pattern, Permission
from cordwood.model.credentials import ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.broker_settings import broker_setting
from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS
from cordwood.model.settings.setting import HIDDEN
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS
from cordwood.security.trail.port import Changed
from cordwood.wire.apis import ApiKey

Values = Mapping[str, Any]
"""The fields of an answer, or of an element of it."""

Changes = Callable[[Any, Values], Iterator[Changed]]
"""The changes of a request, by its body and its answer."""

CHANGING: Final = frozenset({Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS})
"""An API that needs such a right changes something."""

_OF_RESOURCES: Final = {ResourceType.TOPIC: ResourceKind.TOPIC, ResourceType.GROUP: ResourceKind.GROUP}


def _error(values: Values) -> int:
    return int(values.get("error_code", 0))


def _topic(operation: Operation, name: str, error: int, change: str = "") -> Changed:
    return Changed(operation, ResourceKind.TOPIC, name, error, change)


def _cluster(error: int, change: str) -> Changed:
    return Changed(Operation.ALTER, ResourceKind.CLUSTER, THE_CLUSTER, error, change)


def _by_outcome(
    operation: Operation, topic: str, partitions: Iterable[tuple[int, str]], kind: ResourceKind = ResourceKind.TOPIC
) -> Iterator[Changed]:
    """One change for all partitions of a topic that had the same outcome: error code and words of each."""
    outcomes: dict[int, list[str]] = {}
    for error, words in partitions:
        outcomes.setdefault(error, []).append(words)
    for error, told in outcomes.items():
        yield Changed(operation, kind, topic, error, ", ".join(told))


# Topics


def _create_topics(body: Any, answer: Values) -> Iterator[Changed]:
    if body.validate_only:
        return
    asked = {topic.name: topic for topic in body.topics}
    for each in answer["topics"]:
        topic = asked[each["name"]]
        settings = "".join(f", {_setting(TOPIC_SETTINGS, c.name, c.value)}" for c in topic.configs)
        partitions = each.get("num_partitions", topic.num_partitions)
        yield _topic(Operation.CREATE, topic.name, _error(each), f"{partitions} partitions{settings}")


def _delete_topics(_: Any, answer: Values) -> Iterator[Changed]:
    for each in answer["responses"]:
        yield _topic(Operation.DELETE, each["name"] or f"id {each['topic_id']}", _error(each))


def _create_partitions(body: Any, answer: Values) -> Iterator[Changed]:
    if body.validate_only:
        return
    counts = {topic.name: topic.count for topic in body.topics}
    for each in answer["results"]:
        yield _topic(Operation.ALTER, each["name"], _error(each), f"{counts[each['name']]} partitions")


def _delete_records(body: Any, answer: Values) -> Iterator[Changed]:
    offsets = {(topic.name, each.partition_index): each.offset for topic in body.topics for each in topic.partitions}

    def one(topic: str, each: Values) -> str:
        index = each["partition_index"]
        until = each["low_watermark"] if not _error(each) else offsets[topic, index]
        return f"partition {index} before offset {until}"

    for topic in answer["topics"]:
        told = ((_error(each), one(topic["name"], each)) for each in topic["partitions"])
        yield from _by_outcome(Operation.DELETE, topic["name"], told)


# Groups


def _delete_groups(_: Any, answer: Values) -> Iterator[Changed]:
    for each in answer["results"]:
        yield Changed(Operation.DELETE, ResourceKind.GROUP, each["group_id"], _error(each))


def _delete_offsets(body: Any, answer: Values) -> Iterator[Changed]:
    if _error(answer):
        yield Changed(Operation.DELETE, ResourceKind.GROUP, body.group_id, _error(answer), "positions")
    for topic in answer["topics"]:
        told = ((_error(each), f"{topic['name']}-{each['partition_index']}") for each in topic["partitions"])
        for each in _by_outcome(Operation.DELETE, body.group_id, told, ResourceKind.GROUP):
            yield each._replace(change=f"positions in {each.change}")


# Settings


def _setting(table: Mapping[str, Any], name: str, value: str | None) -> str:
    """A setting's new value. The value of a name that nobody knows may be a mistyped secret."""
    setting = table.get(name) or broker_setting(name)
    if value is None:
        return f"{name} unset"
    return f"{name}={HIDDEN if setting is None else setting.shown(value)}"


_HOW: Final = {AlterOperation.APPEND: "+", AlterOperation.SUBTRACT: "-"}
_TABLES: Final[Mapping[int, Mapping[str, Any]]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.GROUP: ONE_GROUP_SETTINGS,
}
"""Looked up by the number in the request, which may stand for nothing."""


def _alter_configs(body: Any, answer: Values) -> Iterator[Changed]:
    if body.validate_only:
        return
    asked = {(each.resource_type, each.resource_name): each.configs for each in body.resources}
    for each in answer["responses"]:
        number, name = each["resource_type"], each["resource_name"]
        kind = _OF_RESOURCES.get(number, ResourceKind.CLUSTER)
        told = ", ".join(_altered(number, config) for config in asked[number, name])
        if kind is ResourceKind.CLUSTER:
            told, name = f"broker {name or '(all)'}: {told}", THE_CLUSTER
        yield Changed(Operation.ALTER_CONFIGS, kind, name, _error(each), told)


def _altered(resource_type: int, config: Any) -> str:
    how = getattr(config, "config_operation", AlterOperation.SET)
    if how == AlterOperation.DELETE:
        return f"{config.name} unset"
    if resource_type == ResourceType.BROKER_LOGGER:
        return f"{config.name}={config.value}"
    return _HOW.get(how, "") + _setting(_TABLES.get(resource_type, {}), config.name, config.value)


# Rules and users


def _create_acls(body: Any, answer: Values) -> Iterator[Changed]:
    for asked, each in zip(body.creations, answer["results"], strict=True):
        rule = _rule(asked.resource_type, asked.resource_pattern_type, asked.resource_name, asked)
        yield _cluster(_error(each), f"rule added: {rule}")


def _delete_acls(_: Any, answer: Values) -> Iterator[Changed]:
    for found in answer["filter_results"]:
        if _error(found):
            yield _cluster(_error(found), "rules removed: none")
        for each in found["matching_acls"]:
            rule = Acl(
                each["resource_type"],
                each["pattern_type"],
                each["resource_name"],
                each["principal"],
                each["host"],
                each["operation"],
                each["permission_type"],
            )
            yield _cluster(_error(each), f"rule removed: {rule}")


def _rule(kind: int, pattern: int, name: str, asked: Any) -> str:
    try:
        return str(
            Acl(
                ResourceKind(kind),
                Pattern(pattern),
                name,
                asked.principal,
                asked.host,
                Operation(asked.operation),
                Permission(asked.permission_type),
            )
        )
    except ValueError:
        return f"for {asked.principal}, with a number that stands for nothing"


def _alter_users(body: Any, answer: Values) -> Iterator[Changed]:
    told: dict[str, list[str]] = {}
    for each in body.deletions:
        told.setdefault(each.name, []).append(f"{_mechanism(each.mechanism)} removed")
    for each in body.upsertions:
        told.setdefault(each.name, []).append(f"{_mechanism(each.mechanism)} set, {each.iterations} iterations")
    for each in answer["results"]:
        name = each["user"]
        yield Changed(Operation.ALTER, ResourceKind.USER, name, _error(each), ", ".join(told[name]))


def _alter_quotas(body: Any, answer: Values) -> Iterator[Changed]:
    if body.validate_only:
        return
    for asked, each in zip(body.entries, answer["entries"], strict=True):
        whom = ", ".join(f"{part.entity_type} {part.entity_name or '<default>'}" for part in asked.entity)
        told = ", ".join(f"{op.key} removed" if op.remove else f"{op.key}={op.value:g}" for op in asked.ops)
        change = f"quotas of {whom}: {told}"
        yield Changed(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER, THE_CLUSTER, _error(each), change)


def _mechanism(number: int) -> str:
    try:
        return ScramMechanism(number).sasl_name
    except ValueError:
        return f"mechanism {number}"


# The cluster


def _elect_leaders(body: Any, answer: Values) -> Iterator[Changed]:
    how = "unclean leader" if body.election_type else "preferred leader"
    if body.begin_anew:
        how = f"begun anew at broker {body.leader}"
    for topic in answer["replica_election_results"]:
        told = ((_error(each), f"partition {each['partition_id']}: {how}") for each in topic["partition_result"])
        yield from _by_outcome(Operation.ALTER, topic["topic"], told)


def _reassign(body: Any, answer: Values) -> Iterator[Changed]:
    wanted = {(topic.name, each.partition_index): each.replicas for topic in body.topics for each in topic.partitions}

    def one(topic: str, each: Values) -> str:
        index = each["partition_index"]
        replicas = wanted[topic, index]
        to = "its move ends" if replicas is None else f"to brokers {' '.join(map(str, replicas))}"
        return f"partition {index}: {to}"

    for topic in answer["responses"]:
        told = ((_error(each), one(topic["name"], each)) for each in topic["partitions"])
        yield from _by_outcome(Operation.ALTER, topic["name"], told)


def _move_logs(body: Any, answer: Values) -> Iterator[Changed]:
    paths = {
        (topic.name, index): each.path for each in body.dirs for topic in each.topics for index in topic.partitions
    }
    for topic in answer["results"]:
        name = topic["topic_name"]
        told = (
            (_error(each), f"partition {each['partition_index']} to {paths[name, each['partition_index']]}")
            for each in topic["partitions"]
        )
        yield from _by_outcome(Operation.ALTER, name, told)


def _update_features(body: Any, answer: Values) -> Iterator[Changed]:
    if getattr(body, "validate_only", False):
        return
    for each in body.feature_updates:
        yield _cluster(_error(answer), f"{each.feature} {each.max_version_level}")


def _unregister(body: Any, answer: Values) -> Iterator[Changed]:
    yield _cluster(_error(answer), f"broker {body.broker_id} unregistered")


def _write_markers(body: Any, answer: Values) -> Iterator[Changed]:
    ends = {marker.producer_id: marker.transaction_result for marker in body.markers}
    for marker in answer["markers"]:
        producer_id = marker["producer_id"]
        how = f"{'commit' if ends[producer_id] else 'abort'} of producer id {producer_id}"
        for topic in marker["topics"]:
            told = ((_error(each), f"partition {each['partition_index']}: {how}") for each in topic["partitions"])
            yield from _by_outcome(Operation.ALTER, topic["name"], told)


def _interrupted_records(body: Any) -> Iterator[Changed]:
    for topic in body.topics:
        yield _topic(Operation.DELETE, topic.name, ErrorCode.REQUEST_TIMED_OUT, "records")


def _interrupted_groups(body: Any) -> Iterator[Changed]:
    for name in body.groups_names:
        yield Changed(Operation.DELETE, ResourceKind.GROUP, name, ErrorCode.REQUEST_TIMED_OUT)


def _interrupted_offsets(body: Any) -> Iterator[Changed]:
    yield Changed(Operation.DELETE, ResourceKind.GROUP, body.group_id, ErrorCode.REQUEST_TIMED_OUT, "positions")


def _interrupted_moves(body: Any) -> Iterator[Changed]:
    for each in body.dirs:
        for topic in each.topics:
            yield _topic(Operation.ALTER, topic.name, ErrorCode.REQUEST_TIMED_OUT, f"to {each.path}")


def _interrupted_elections(body: Any) -> Iterator[Changed]:
    if body.topic_partitions is None:
        yield _cluster(ErrorCode.REQUEST_TIMED_OUT, "leaders elected, everywhere")
    for topic in body.topic_partitions or ():
        yield _topic(Operation.ALTER, topic.topic, ErrorCode.REQUEST_TIMED_OUT, "leaders elected")


INTERRUPTED: Final[Mapping[int, Callable[[Any], Iterator[Changed]]]] = {
    ApiKey.DELETE_RECORDS: _interrupted_records,
    ApiKey.DELETE_GROUPS: _interrupted_groups,
    ApiKey.OFFSET_DELETE: _interrupted_offsets,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _interrupted_moves,
    ApiKey.ELECT_LEADERS: _interrupted_elections,
}
"""The changes that may have been made, by the body alone, where a request is dropped with its connection between two
steps. Requests of all other APIs change nothing before their last step, and are answered whether or not the client is
still there."""

CHANGES: Final[Mapping[int, Changes]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _delete_offsets,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_users,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _move_logs,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister,
    ApiKey.WRITE_TXN_MARKERS: _write_markers,
}
"""By the key of the API."""

TOLD_BY_HANDLERS: Final = (
    ApiKey.METADATA,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)
"""The APIs whose handlers tell their changes themselves."""
