"""Mistakes and rare questions of administrators: the same codes as Apache Kafka 4.3, case by case.

`CORDWOOD_TEST_BOOTSTRAP=host:port pytest tests/interop/test_administrative_answers.py` asks a real Kafka.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conftest import RunningBroker
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

SET, SUBTRACT = 0, 3
TOPIC, BROKER = 2, 4
GROUP_KEY, TRANSACTION_KEY = 0, 1
INVALID_NAMES = ["not allowed", "..", ""]


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    client = RawClient(broker.bootstrap)
    yield client
    client.close()


def named(code: int) -> str:
    return ErrorCode(code).name


@pytest.mark.parametrize("types", [[99], [TOPIC, 99], [0]])
def test_resources_of_an_unknown_type_are_of_a_version_that_is_not_supported(
    client: RawClient, types: list[int]
) -> None:
    answer = client.send(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=types)
    assert named(answer.error_code) == "UNSUPPORTED_VERSION"
    assert not answer.config_resources


@pytest.mark.parametrize(
    ("endpoint_type", "told"),
    [(1, "NONE"), (2, "MISMATCHED_ENDPOINT_TYPE"), (0, "UNSUPPORTED_ENDPOINT_TYPE"), (3, "UNSUPPORTED_ENDPOINT_TYPE")],
)
def test_a_broker_describes_only_endpoints_of_brokers(client: RawClient, endpoint_type: int, told: str) -> None:
    assert named(client.send(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=endpoint_type).error_code) == told


@pytest.mark.parametrize("upgrade_type", [0, 7])
@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_type_of_upgrade_is_an_invalid_update(client: RawClient, upgrade_type: int, version: int) -> None:
    update = {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": upgrade_type}
    answer = client.send(ApiKey.UPDATE_FEATURES, version, timeout_ms=1000, feature_updates=[update])
    assert named(answer.error_code) == "INVALID_UPDATE_VERSION"
    assert version > 1 or not answer.results, "the refusal is one for all updates"


@pytest.mark.parametrize("cursor", [("zzz", 0), ("", 0), ("own", -1)])
def test_a_cursor_outside_of_the_described_topics_is_refused(
    client: RawClient, topic: str, cursor: tuple[str, int]
) -> None:
    name = topic if cursor[0] == "own" else cursor[0]
    answer = client.send(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": topic}],
        response_partition_limit=10,
        cursor={"topic_name": name, "partition_index": cursor[1]},
    )
    assert [(each.name, named(each.error_code)) for each in answer.topics] == [(topic, "INVALID_REQUEST")]


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_invalid_topic_names_are_told_from_unknown_ones(client: RawClient, name: str) -> None:
    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
    described = client.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources).results[0]
    asked = [{"name": name, "partition_indexes": [0]}]
    producers = client.send(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions[0]
    assert [named(described.error_code), named(producers.error_code)] == ["INVALID_TOPIC_EXCEPTION"] * 2


@pytest.mark.parametrize("key_type", [GROUP_KEY, TRANSACTION_KEY])
def test_an_empty_key_has_a_coordinator(client: RawClient, key_type: int) -> None:
    def told() -> bool:
        # Kafka makes its internal topic first.
        found = client.send(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[""]).coordinators[0]
        assert named(found.error_code) in ("NONE", "COORDINATOR_NOT_AVAILABLE")
        return found.error_code == 0

    eventually(told)


def test_the_state_of_share_groups_is_not_created_by_asking(client: RawClient) -> None:
    asked = [{"topic_id": uuid.UUID(int=0), "name": "__share_group_state"}]
    answer = client.send(ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=True)
    assert named(answer.topics[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def _alter(client: RawClient, resource_type: int, resource: str, operation: int, name: str, value: str) -> str:
    change = {"name": name, "config_operation": operation, "value": value}
    resources = [{"resource_type": resource_type, "resource_name": resource, "configs": [change]}]
    return named(client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources).responses[0].error_code)


@pytest.mark.parametrize(("operation", "value"), [(SET, ""), (SUBTRACT, "delete")])
def test_a_topic_may_have_no_cleanup_policy(client: RawClient, topic: str, operation: int, value: str) -> None:
    assert _alter(client, TOPIC, topic, operation, "cleanup.policy", value) == "NONE"

    def policy() -> Any:
        resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["cleanup.policy"]}]
        return client.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources).results[0].configs[0].value

    eventually(policy, to_be="")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleaner.backoff.ms", "14000"),
        ("log.cleaner.dedupe.buffer.size", "134217727"),
        ("max.connections", "9999"),
        ("max.connections.per.ip", "2147483646"),
        ("producer.id.expiration.ms", "86400001"),
    ],
)
def test_settings_of_running_brokers_change(client: RawClient, name: str, value: str) -> None:
    assert _alter(client, BROKER, "", SET, name, value) == "NONE"


def test_a_marker_is_the_last_that_a_producer_wrote(broker: RunningBroker, client: RawClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"long ago", partition=0, timestamp=1_000)
    producer.commit_transaction(60)

    def last_timestamp() -> int:
        asked = [{"name": topic, "partition_indexes": [0]}]
        (partition,) = client.send(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions
        return int(partition.active_producers[0].last_timestamp)

    eventually(lambda: last_timestamp() > 1_000)
