"""The widest request of each API: as many array elements as asked for, about things that exist where that costs more.

For `benchmarks.stalls`, which sends them to a broker, and for the test that counts what each of them costs in a turn.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

GROUP: Final = "stalls"
TOPIC_RESOURCE: Final = 2

Fields = dict[str, Any]

_KEYS: Final = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
_RULE: Final = {
    "resource_type": TOPIC_RESOURCE,
    "resource_name": "n",
    "principal": "User:n",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_RULE_FILTER: Final = {"resource_type_filter": TOPIC_RESOURCE, "operation": 3, "permission_type": 3}


class Stage(NamedTuple):
    """The topic that requests are about."""

    topic: str
    partitions: int
    topic_id: Any = None

    def indexes(self, count: int) -> list[int]:
        return [number % self.partitions for number in range(count)]


class Wide(NamedTuple):
    version: int
    fields: Callable[[int, Stage], Fields]
    """Of a request with at most so many elements."""


def _names(count: int, start: str = "n") -> list[str]:
    return [f"{start}{number}" for number in range(count)]


def _by_partition(field: str, **each: Any) -> Callable[[int, Stage], list[Fields]]:
    """One topic with all other elements as its partitions."""

    def topics(count: int, stage: Stage) -> list[Fields]:
        return [
            {"name": stage.topic, "partitions": [{field: index, **each} for index in stage.indexes(count - 1)]},
        ]

    return topics


def _numbers(count: int, stage: Stage, name: str = "name", numbers: str = "partitions") -> list[Fields]:
    return [{name: stage.topic, numbers: stage.indexes(count - 1)}]


def _smallest_batch() -> bytes:
    return bytes(build_batch([(1, None, b"v", ())]))


def _produce(count: int, stage: Stage) -> Fields:
    batch = _smallest_batch()
    data = [{"index": index, "records": batch} for index in stage.indexes(count - 1)]
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": stage.topic, "partition_data": data}]}


def _fetch(count: int, stage: Stage, *, session_epoch: int = -1) -> Fields:
    each = {"partition_max_bytes": 1000, "current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    indexes = stage.indexes(count - 1) if session_epoch else range(count - 1)
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 10_000_000,
        "session_id": 0,
        "session_epoch": session_epoch,
        "topics": [
            {
                "topic": stage.topic,
                "partitions": [{"partition": index, "fetch_offset": 0, **each} for index in indexes],
            }
        ],
        "rack_id": "",
    }


def fetch_session(count: int, stage: Stage) -> Fields:
    """A reader that wants to be remembered, with partitions of which most are not there."""
    return _fetch(count, stage, session_epoch=0)


def _list_offsets(count: int, stage: Stage) -> Fields:
    topics = _by_partition("partition_index", current_leader_epoch=-1, timestamp=-1)(count, stage)
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


def _commit(count: int, stage: Stage) -> Fields:
    each = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": GROUP,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": _by_partition("partition_index", **each)(count, stage),
    }


def _commit_in_transaction(count: int, stage: Stage) -> Fields:
    return {**_commit(count, stage), "transactional_id": "stalls", "producer_id": 1, "producer_epoch": 0}


def _create_topics(count: int, stage: Stage) -> Fields:
    each = {"num_partitions": 1, "replication_factor": 1}
    return {"topics": [{"name": name, **each} for name in _names(count)], "timeout_ms": 1000, "validate_only": False}


def _alter(count: int, stage: Stage) -> Fields:
    configs = [{"name": "retention.ms", "value": "1"}]
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs} for name in _names(count // 2)
    ]
    return {"resources": resources, "validate_only": False}


def _add_partitions(count: int, stage: Stage) -> Fields:
    return {
        "v3_and_below_transactional_id": "stalls",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": _numbers(count, stage),
    }


def _markers(count: int, stage: Stage) -> Fields:
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    topics = [{"name": stage.topic, "partition_indexes": stage.indexes(count - 2)}]
    return {"markers": [{**marker, "topics": topics}]}


def _heartbeat(count: int, stage: Stage) -> Fields:
    return {
        "group_id": "stalls-consumers",
        "member_id": "member",
        "member_epoch": 1,
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [{"topic_id": stage.topic_id, "partitions": stage.indexes(count - 1)}],
    }


def _sync(count: int, stage: Stage) -> Fields:
    assignments = [{"member_id": name, "assignment": b""} for name in _names(count)]
    return {
        "group_id": GROUP,
        "generation_id": 1,
        "member_id": "member",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
    }


def _join(count: int, stage: Stage) -> Fields:
    return {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": b""} for name in _names(count)],
    }


def _decide(count: int, stage: Stage) -> Fields:
    winners = [{"transactional_id": name, "producer_id": 1, "producer_epoch": 0} for name in _names(count)]
    return {"family": "stalls", "batch_id": 0, "commit": True, "winners": winners}


def _offset_fetch(count: int, stage: Stage) -> Fields:
    group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": None}
    return {"groups": [group] * count, "require_stable": False}


def _epochs(count: int, stage: Stage) -> Fields:
    partitions = [{"partition": index, "current_leader_epoch": -1, "leader_epoch": 0} for index in stage.indexes(count)]
    return {"replica_id": -1, "topics": [{"topic": stage.topic, "partitions": partitions[1:]}]}


def _describe_configs(count: int, stage: Stage) -> Fields:
    asked = {"resource_type": TOPIC_RESOURCE, "configuration_keys": None}
    return {"resources": [{**asked, "resource_name": name} for name in _names(count)]}


def _watch_report(count: int, stage: Stage) -> Fields:
    indexes = stage.indexes(max(count // 2 - 2, 1))
    positions = [{"partition": index, "position": 1} for index in indexes]
    rates = [{"partition": index, "bytes_per_second": 1.0} for index in indexes]
    return {
        "broker_id": 1,
        "broker_epoch": 1,
        "valid_for_ms": 1000,
        "groups": [{"group_id": GROUP, "topics": [{"topic_id": stage.topic_id, "partitions": positions}]}],
        "traffic": [{"topic_id": stage.topic_id, "partitions": rates}],
    }


WIDE: Final[dict[ApiKey, Wide]] = {
    ApiKey.PRODUCE: Wide(9, _produce),
    ApiKey.FETCH: Wide(12, _fetch),
    ApiKey.LIST_OFFSETS: Wide(7, _list_offsets),
    ApiKey.METADATA: Wide(
        9, lambda count, _: {"topics": [{"name": name} for name in _names(count)], "allow_auto_topic_creation": False}
    ),
    ApiKey.OFFSET_COMMIT: Wide(8, _commit),
    ApiKey.OFFSET_FETCH: Wide(8, _offset_fetch),
    ApiKey.FIND_COORDINATOR: Wide(4, lambda count, _: {"key_type": 0, "coordinator_keys": _names(count)}),
    ApiKey.JOIN_GROUP: Wide(9, _join),
    ApiKey.LEAVE_GROUP: Wide(
        5, lambda count, _: {"group_id": GROUP, "members": [{"member_id": name} for name in _names(count)]}
    ),
    ApiKey.SYNC_GROUP: Wide(5, _sync),
    ApiKey.DESCRIBE_GROUPS: Wide(5, lambda count, _: {"groups": _names(count)}),
    ApiKey.LIST_GROUPS: Wide(5, lambda count, _: {"states_filter": _names(count), "types_filter": []}),
    ApiKey.CREATE_TOPICS: Wide(7, _create_topics),
    ApiKey.DELETE_TOPICS: Wide(4, lambda count, _: {"topic_names": _names(count, "gone"), "timeout_ms": 1000}),
    ApiKey.DELETE_RECORDS: Wide(
        2,
        lambda count, stage: {"topics": _by_partition("partition_index", offset=-1)(count, stage), "timeout_ms": 1000},
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Wide(4, _epochs),
    ApiKey.ADD_PARTITIONS_TO_TXN: Wide(3, _add_partitions),
    ApiKey.WRITE_TXN_MARKERS: Wide(1, _markers),
    ApiKey.WATCH_REPORT: Wide(0, _watch_report),
    ApiKey.TXN_OFFSET_COMMIT: Wide(3, _commit_in_transaction),
    ApiKey.CREATE_ACLS: Wide(3, lambda count, _: {"creations": [_RULE] * count}),
    ApiKey.DELETE_ACLS: Wide(3, lambda count, _: {"filters": [_RULE_FILTER] * count}),
    ApiKey.DESCRIBE_CONFIGS: Wide(4, _describe_configs),
    ApiKey.ALTER_CONFIGS: Wide(2, _alter),
    ApiKey.ELECT_LEADERS: Wide(
        2,
        lambda count, stage: {"election_type": 0, "topic_partitions": _numbers(count, stage, "topic")},
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Wide(1, _alter),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Wide(
        2, lambda count, stage: {"dirs": [{"path": "/elsewhere", "topics": _numbers(count - 1, stage, "name")}]}
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Wide(2, lambda count, stage: {"topics": _numbers(count, stage, "topic")}),
    ApiKey.CREATE_PARTITIONS: Wide(
        3, lambda count, _: {"topics": [{"name": name, "count": 2} for name in _names(count)], "timeout_ms": 1000}
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Wide(
        1,
        lambda count, stage: {
            "topics": _by_partition("partition_index", replicas=None)(count, stage),
            "timeout_ms": 1000,
        },
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Wide(
        0, lambda count, stage: {"topics": _numbers(count, stage, numbers="partition_indexes"), "timeout_ms": 1000}
    ),
    ApiKey.DELETE_GROUPS: Wide(2, lambda count, _: {"groups_names": _names(count)}),
    ApiKey.OFFSET_DELETE: Wide(
        0, lambda count, stage: {"group_id": GROUP, "topics": _by_partition("partition_index")(count, stage)}
    ),
    ApiKey.DESCRIBE_PRODUCERS: Wide(
        0, lambda count, stage: {"topics": _numbers(count, stage, numbers="partition_indexes")}
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Wide(0, lambda count, _: {"transactional_ids": _names(count)}),
    ApiKey.LIST_TRANSACTIONS: Wide(0, lambda count, _: {"state_filters": _names(count), "producer_id_filters": []}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Wide(0, _heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Wide(0, lambda count, _: {"group_ids": _names(count)}),
    ApiKey.LIST_CONFIG_RESOURCES: Wide(1, lambda count, _: {"resource_types": [2] * count}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Wide(
        0, lambda count, _: {"topics": [{"name": name} for name in _names(count)], "response_partition_limit": 2000}
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Wide(
        0, lambda count, _: {"users": [{"name": name} for name in _names(count)]}
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Wide(
        0, lambda count, _: {"deletions": [], "upsertions": [{"name": name, **_KEYS} for name in _names(count)]}
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Wide(
        1,
        lambda count, _: {
            "components": [{"entity_type": "user", "match_type": 0, "match": name} for name in _names(count)],
            "strict": False,
        },
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Wide(
        3,
        lambda n, s: {
            "renewers": [{"principal_type": "User", "principal_name": f"u{number}"} for number in range(n)],
            "max_lifetime_ms": -1,
        },
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Wide(
        3,
        lambda n, s: {"owners": [{"principal_type": "User", "principal_name": f"u{number}"} for number in range(n)]},
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Wide(
        1,
        lambda count, _: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": name}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
                for name in _names(count)
            ],
            "validate_only": False,
        },
    ),
    ApiKey.UPDATE_FEATURES: Wide(
        1,
        lambda count, _: {
            "feature_updates": [{"feature": name, "max_version_level": 1, "upgrade_type": 1} for name in _names(count)],
            "timeout_ms": 1000,
            "validate_only": True,
        },
    ),
    ApiKey.FAMILY_DECIDE: Wide(0, _decide),
    ApiKey.FAMILY_LIST: Wide(0, lambda count, _: {"families": _names(count)}),
    ApiKey.DAMAGE_LIST: Wide(0, lambda count, _: {"topics": _names(count)}),
}
"""By API: all that take an array."""
