"""Secure brokers in this process: users, rights, TLS; and what they share to start as quickly as plain ones."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.broker_process import BrokerProcess

from cordwood.embedded import Broker, Cluster
from cordwood.model.settings.setting import InvalidSetting

TIMEOUT_S = 60
USERS = {"alice": "of wonderland", "bob": "the builder"}
SILENT = logging.getLogger("tests.silent")
CPU_OF_A_SECURE_START_S = 0.05


def allow(broker: Broker | Cluster, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    admin = AdminClient(broker.client_settings())
    for made in admin.create_acls(rules).values():
        made.result(TIMEOUT_S)


def produced(settings: dict[str, Any], topic: str, values: Iterable[str] = ("x",)) -> list[KafkaError | None]:
    """The errors of the records' deliveries."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return outcomes


def consumed(settings: dict[str, Any], topic: str, group: str) -> bytes | None:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        return message.value()
    finally:
        consumer.close()


def test_a_user_may_do_what_rules_allow_and_the_administrator_everything() -> None:
    with Broker(secure=True, users=USERS) as broker:
        (refusal,) = produced(broker.client_settings("alice"), "orders")
        assert refusal is not None
        assert refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(broker, "alice", ResourceType.TOPIC, "orders", AclOperation.WRITE, AclOperation.CREATE)
        allow(broker, "bob", ResourceType.TOPIC, "orders", AclOperation.READ)
        allow(broker, "bob", ResourceType.GROUP, "shop", AclOperation.READ)
        assert produced(broker.client_settings("alice"), "orders", ["a chair"]) == [None]
        assert consumed(broker.client_settings("bob"), "orders", "shop") == b"a chair"
        assert produced(broker.client_settings(), "orders") == [None]
        assert broker.client_settings()["sasl.username"] == "admin"
        assert list(broker.listeners) == ["SASL_SSL"]


def test_settings_widen_who_may_do_everything() -> None:
    with Broker(secure=True, users=USERS, settings={"super.users": "User:alice"}) as broker:
        assert produced(broker.client_settings("alice"), "orders") == [None]
        assert produced(broker.client_settings(), "orders") == [None]
        (refusal,) = produced(broker.client_settings("bob"), "orders")
        assert refusal is not None
    with Broker(secure=True, users=USERS, settings={"allow.everyone.if.no.acl.found": True}) as broker:
        assert produced(broker.client_settings("bob"), "orders") == [None]


def test_who_does_not_log_in_is_not_served() -> None:
    with Broker(secure=True, users=USERS) as broker:
        settings = broker.client_settings("alice")
        for wrong in ({"sasl.password": "x"}, {"sasl.username": "eve"}, {"security.protocol": "PLAINTEXT"}):
            with pytest.raises(KafkaException):
                AdminClient({**settings, **wrong}, logger=SILENT).list_topics(timeout=2)
        assert AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics == {}


def test_users_stay_over_a_restart_and_on_a_directory(tmp_path: Path) -> None:
    broker = Broker(secure=True, users=USERS, data_dir=tmp_path).start()
    settings = broker.client_settings()
    assert produced(settings, "orders", ["a chair"]) == [None]
    broker.stop()
    broker.start()
    assert produced(settings, "orders") == [None]
    broker.stop()
    with Broker(secure=True, users={"bob": "has another password"}, data_dir=tmp_path) as broker:
        allow(broker, "bob", ResourceType.TOPIC, "orders", AclOperation.READ)
        allow(broker, "bob", ResourceType.GROUP, "shop", AclOperation.READ)
        assert consumed(broker.client_settings("bob"), "orders", "shop") == b"a chair"
        with pytest.raises(ValueError, match="there is no user 'alice'"):
            broker.client_settings("alice")


def test_a_cluster_has_its_users_at_every_broker_and_survives_a_leader() -> None:
    with Cluster(secure=True, users=USERS) as cluster:
        allow(cluster, "alice", ResourceType.TOPIC, "orders", AclOperation.WRITE, AclOperation.CREATE)
        for broker in cluster.brokers.values():
            assert len(AdminClient(broker.client_settings("alice")).list_topics(timeout=TIMEOUT_S).brokers) == 3
        settings = cluster.client_settings("alice")
        assert produced(settings, "orders") == [None]
        cluster.leader("orders").kill()
        assert produced(settings, "orders") == [None]


def test_a_plain_broker_has_client_settings_and_no_users() -> None:
    with Broker() as broker:
        assert broker.client_settings() == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(ValueError, match="only secure=True has users"):
            broker.client_settings("alice")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"users": USERS}, "users need secure=True"),
        ({"secure": True, "users": {"": "x"}}, "must not be empty"),
        ({"secure": True, "users": {"alice": ""}}, "the password of the user 'alice' is empty"),
        ({"secure": True, "settings": {"authorizer.class.name": ""}}, "makes authorizer.class.name itself"),
    ],
)
def test_contradictions_are_refused(arguments: dict[str, object], words: str) -> None:
    for make in (Broker, Cluster):
        with pytest.raises(InvalidSetting, match=words):
            make(**arguments)  # type: ignore[arg-type]


def test_the_listeners_of_a_secure_broker_are_its_own() -> None:
    with pytest.raises(InvalidSetting, match="a secure broker makes listeners itself"):
        Broker(secure=True, settings={"listeners": "SASL_SSL://:0"})


def test_a_directory_of_a_secure_serve_is_refused_and_left_alone(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", options=["--secure"]):
        pass
    with pytest.raises(InvalidSetting, match="belongs to `cordwood serve --secure`"):
        Broker(secure=True, data_dir=tmp_path / "data")


def test_a_secure_broker_starts_as_quickly_as_a_plain_one_once_a_process_has_had_one() -> None:
    def cpu_of_start(*, secure: bool) -> float:
        began_s = time.process_time()
        with Broker(secure=secure, users=USERS if secure else None):
            return time.process_time() - began_s

    cpu_of_start(secure=True)
    plain_s, secure_s = (min(cpu_of_start(secure=secure) for _ in range(3)) for secure in (False, True))
    assert secure_s - plain_s < CPU_OF_A_SECURE_START_S
