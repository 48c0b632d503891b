"""Requests of every API that name given resources: to learn what an answer tells those who lack a right."""

from __future__ import annotations

from typing import Any, NamedTuple

from cordwood.cluster.planner.configs import ResourceType
from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import Field, Struct, load

SET = 0
PREFERRED = 0
ADMIN = {"timeout_ms": 1000}


class Names(NamedTuple):
    """The resources that a request names."""

    topic: str
    topic_id: TopicId
    new_topic: str
    group: str
    watching_group: str
    """A group of the consumer protocol."""
    transactional_id: str
    family: str
    batch: bytes
    """A batch of records that the topic would take."""
    transactional_batch: bytes
    """The same in a transaction."""


Values = dict[str, Any]


def requests_of(key: ApiKey, version: int, names: Names) -> list[Values]:
    """One request or more of the API; each right that the API needs in this version is needed by one of them."""
    body = load(APIS[key].name)["request"].body
    return [_fitting(body, values) for values in _requests_of(key, version, names)]


def _fitting(body: Struct, values: Values) -> Values:
    """The values without those for which the request has no field."""
    fields = {field.name: field for field in body.fields}
    return {name: _fitting_value(fields[name], value) for name, value in values.items() if name in fields}


def _fitting_value(field: Field, value: Any) -> Any:
    if field.struct is None or value is None:
        return value
    return [_fitting(field.struct, each) for each in value] if field.is_array else _fitting(field.struct, value)


def _requests_of(key: ApiKey, version: int, names: Names) -> list[Values]:
    topic, group, transactional_id = names.topic, names.group, names.transactional_id
    family = {"family": names.family, "batch_id": 1, "timeout_ms": 1000}
    position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    positions = [{"name": topic, "topic_id": names.topic_id, "partitions": [position]}]
    writer: Values = {"producer_id": 7, "producer_epoch": 0}
    indexes = {"partitions": [0], "partition_indexes": [0]}
    here = {"name": topic, "topic": topic, "topic_id": names.topic_id, **indexes}
    group_member = {"group_id": group, "member_id": "", "generation_id": 1, "protocol_type": "consumer"}
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fetch = {"max_bytes": 1 << 20, "topics": [{"topic": topic, "topic_id": names.topic_id, "partitions": [fetched]}]}
    settings = {"retention.ms": (ResourceType.TOPIC, topic), "log.retention.ms": (ResourceType.BROKER, "")}
    settings |= {
        "consumer.session.timeout.ms": (ResourceType.GROUP, group),
        "cordwood": (ResourceType.BROKER_LOGGER, "1"),
    }
    altered = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {
                    "name": setting,
                    "config_operation": SET,
                    "value": "INFO" if kind is ResourceType.BROKER_LOGGER else "50000",
                }
            ],
        }
        for setting, (kind, name) in settings.items()
    ]
    described = [{"resource_type": kind, "resource_name": name} for kind, name in settings.values()]
    match key:
        case ApiKey.PRODUCE:
            produced = [
                {"name": topic, "topic_id": names.topic_id, "partition_data": [{"index": 0, "records": batch}]}
                for batch in (names.batch, names.transactional_batch)
            ]
            plain, transactional = ({"acks": -1, "timeout_ms": 1000, "topic_data": [each]} for each in produced)
            return [plain, transactional | {"transactional_id": transactional_id}]
        case ApiKey.FETCH:
            follower = {"replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": 1}}
            return [fetch, fetch | follower]
        case ApiKey.LIST_OFFSETS:
            return [{"replica_id": -1, "topics": [{"name": topic, "partitions": [{"timestamp": -1}]}]}]
        case ApiKey.METADATA:
            by_id: list[Values] = []
            if version >= 12:  # before, Apache Kafka refuses ids
                by_id = [{"topics": [{"name": None, "topic_id": names.topic_id}]}]
            every: Values = {"topics": None if version else [], "allow_auto_topic_creation": False}
            named = [
                {"topics": [{"name": name}], "allow_auto_topic_creation": True} for name in (topic, names.new_topic)
            ]
            return [every, *named, *by_id]
        case ApiKey.OFFSET_COMMIT:
            return [{"group_id": group, "topics": positions}]
        case ApiKey.OFFSET_FETCH:
            asked = [None, [here]] if version > 1 else [[here]]
            return [
                {"group_id": group, "topics": each, "groups": [{"group_id": group, "topics": each}]} for each in asked
            ]
        case ApiKey.FIND_COORDINATOR:
            found: list[Values] = [{"key": group, "key_type": 0, "coordinator_keys": [group]}]
            if version:
                found.append({"key": transactional_id, "key_type": 1, "coordinator_keys": [transactional_id]})
            return found
        case ApiKey.JOIN_GROUP:
            protocols = [{"name": "range", "metadata": b""}]
            return [
                group_member | {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": protocols}
            ]
        case ApiKey.HEARTBEAT | ApiKey.SYNC_GROUP:
            return [group_member | {"protocol_name": "range"}]
        case ApiKey.LEAVE_GROUP:
            return [group_member | {"members": [{"member_id": "somebody"}]}]
        case ApiKey.DESCRIBE_GROUPS:
            return [{"groups": [group], "include_authorized_operations": True}]
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            return [{"group_ids": [names.watching_group], "include_authorized_operations": True}]
        case ApiKey.DELETE_GROUPS:
            return [{"groups_names": [group]}]
        case ApiKey.CREATE_TOPICS:
            return [{"topics": [{"name": names.new_topic, "num_partitions": 1, "replication_factor": 1}], **ADMIN}]
        case ApiKey.DELETE_TOPICS:
            by_name: Values = {"topic_names": [topic], "topics": [{"name": topic}], **ADMIN}
            by_topic_id = {"topics": [{"name": None, "topic_id": names.topic_id}], **ADMIN}
            return [by_name] if version < 6 else [by_topic_id, by_name]
        case ApiKey.CREATE_PARTITIONS:
            return [{"topics": [{"name": topic, "count": 3, "assignments": None}], **ADMIN}]
        case ApiKey.DELETE_RECORDS:
            return [{"topics": [{"name": topic, "partitions": [{"offset": 1}]}], **ADMIN}]
        case ApiKey.INIT_PRODUCER_ID:
            asked_id = {"transaction_timeout_ms": 60_000}
            return [asked_id | {"transactional_id": None}, asked_id | {"transactional_id": transactional_id}]
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            asked_epoch: Values = {"topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
            return [asked_epoch | {"replica_id": each} for each in (-2, 2)]
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            added: Values = {f"v3_and_below_{name}": value for name, value in writer.items()}
            added |= {"v3_and_below_transactional_id": transactional_id, "v3_and_below_topics": [here]}
            return [added | {"transactions": [writer | {"transactional_id": transactional_id, "topics": [here]}]}]
        case ApiKey.ADD_OFFSETS_TO_TXN | ApiKey.END_TXN:
            return [writer | {"transactional_id": transactional_id, "group_id": group}]
        case ApiKey.TXN_OFFSET_COMMIT:
            return [writer | {"transactional_id": transactional_id, "group_id": group, "topics": positions}]
        case ApiKey.WRITE_TXN_MARKERS:
            return [{"markers": [writer | {"transaction_result": False, "topics": [here]}]}]
        case ApiKey.DESCRIBE_CONFIGS:
            return [{"resources": described}]
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return [{"resources": altered}]
        case ApiKey.ALTER_CONFIGS:
            return [{"resources": altered[:-1]}]
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            return [{"dirs": [{"path": "/elsewhere", "topics": [here]}]}]
        case ApiKey.DESCRIBE_LOG_DIRS | ApiKey.DESCRIBE_PRODUCERS | ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return [{"topics": [here]}]
        case ApiKey.ELECT_LEADERS:
            return [{"election_type": PREFERRED, "topic_partitions": [here]}]
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return [{"topics": [{"name": topic, "partitions": [{"replicas": [1]}]}]}]
        case ApiKey.OFFSET_DELETE:
            return [{"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}]
        case ApiKey.UPDATE_FEATURES:
            return [{"feature_updates": [{"feature": "transaction.version", "max_version_level": 2}]}]
        case ApiKey.DESCRIBE_CLUSTER:
            return [{"include_cluster_authorized_operations": True}]
        case ApiKey.UNREGISTER_BROKER:
            return [{"broker_id": 99}]
        case ApiKey.DESCRIBE_TRANSACTIONS:
            return [{"transactional_ids": [transactional_id]}]
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            # In version 0 the broker makes the member's id, another one for each member.
            member = {"group_id": group, "member_id": "m", "rebalance_timeout_ms": 10_000, "topic_partitions": []}
            return [member | {"subscribed_topic_names": [topic]}]
        case ApiKey.LIST_CONFIG_RESOURCES:
            return [{"resource_types": [ResourceType.TOPIC, ResourceType.GROUP] if version else []}]
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            return [{"topics": each, "response_partition_limit": 100} for each in ([{"name": topic}], [])]
        case ApiKey.FAMILY_JOIN | ApiKey.FAMILY_RENEW | ApiKey.FAMILY_DECIDE | ApiKey.FAMILY_RECALL:
            return [family]
        case ApiKey.FAMILY_LIST:
            return [{"families": None}]
        case ApiKey.DAMAGE_LIST:
            return [{"topics": None}]
        case ApiKey.SOUND_BATCHES:
            return [{"broker_id": 2, "broker_epoch": 1, "topic_id": names.topic_id, "end_offset": 1, "max_bytes": 100}]
        case ApiKey.WATCH_REPORT:
            return [{"broker_id": 2, "broker_epoch": 1}]
        case ApiKey.DESCRIBE_ACLS:
            return [{"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}]
        case ApiKey.CREATE_ACLS | ApiKey.DELETE_ACLS:
            rule = {"principal": "User:mallory", "host": "*", "operation": 3, "permission_type": 3}
            rule |= {"resource_type": 2, "resource_name": topic, "resource_pattern_type": 3}
            selected = {"resource_type_filter": 2, "resource_name_filter": topic, "operation": 3, "permission_type": 3}
            selected |= {"principal_filter": None, "host_filter": None}
            return [{"creations": [rule], "filters": [selected]}]
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            return [{"users": None}, {"users": [{"name": "alice"}]}]
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            return [{"deletions": [{"name": "alice", "mechanism": 1}]}]
        case ApiKey.DESCRIBE_CLIENT_QUOTAS:
            return [{"components": [], "strict": False}]
        case ApiKey.ALTER_CLIENT_QUOTAS:
            everybody = [{"entity_type": "user", "entity_name": None}]
            bound = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
            return [{"entries": [{"entity": everybody, "ops": bound}], "validate_only": False}]
        case ApiKey.CREATE_DELEGATION_TOKEN:
            # Before version 3 everybody is the owner himself, and needs no right.
            owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
            return [{"renewers": [], "max_lifetime_ms": -1, **owner}] if version >= 3 else []
        case ApiKey.EXPIRE_DELEGATION_TOKEN:
            # A token is named by its secret, which nobody here has: tests/unit/node/test_delegation_tokens.py.
            return []
        case ApiKey.DESCRIBE_DELEGATION_TOKEN:
            return [{"owners": None}]
        case ApiKey.DESCRIBE_NODE:
            return [{"most_clients": 10}]
    return [{}]
