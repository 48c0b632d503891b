"""A broker of `cordwood serve --secure`, its administrator, and users who have only the rights that they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Cordwood

from cordwood.model.settings.token_settings import TOKEN_KEY_FILE

TIMEOUT_S = 60


class SecureStage:
    """Runs until `end`."""

    def __init__(self, directory: Path, *, with_tokens: bool = False) -> None:
        """`with_tokens`: the broker has delegation tokens."""
        self._secure = directory / "data/secure"
        options = ["--secure"]
        if with_tokens:
            key = directory / "token.key"
            key.write_text("a key of delegation tokens that is long enough")
            key.chmod(0o600)
            options += ["--set", f"{TOKEN_KEY_FILE}={key}"]
        self.broker = BrokerProcess(directory / "data", options=options).start()
        self._admin_file = self._secure / "librdkafka.properties"
        self.cli = Cordwood("", {"CORDWOOD_CLIENT_CONFIG": str(self._admin_file)})
        self.admin = AdminClient({**settings_in(self._admin_file)})

    def end(self) -> None:
        self.broker.end()

    def make_topics(self, *names: str, partitions: int = 1) -> None:
        for answer in self.admin.create_topics([NewTopic(name, partitions) for name in names]).values():
            answer.result(TIMEOUT_S)

    def produce(self, topic: str, values: Sequence[str]) -> None:
        producer = Producer({**settings_in(self._admin_file)})
        for value in values:
            producer.produce(topic, value.encode(), value.encode())
        assert producer.flush(TIMEOUT_S) == 0

    def committed(self, topic: str, count: int) -> list[str]:
        """The first committed values of a topic with one partition: so many, or fewer if there are not as many."""
        consumer = Consumer({**settings_in(self._admin_file), "group.id": "reader", "auto.offset.reset": "earliest"})
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1]
            found: list[str] = []
            position = 0
            while position < end and len(found) < count:
                for message in consumer.consume(count, timeout=1):
                    assert message.error() is None, message.error()
                    found.append((message.value() or b"").decode())
                (place,) = consumer.position([TopicPartition(topic, 0)])
                position = max(position, place.offset)
            return found
        finally:
            consumer.close()

    def add_user(self, name: str, *rights: str) -> Path:
        """The file of the user's settings. `rights` are options of `cordwood acl add`."""
        told = self.cli.json("user", "add", name)
        if rights:
            self.cli("acl", "add", name, *rights)
        return Path(told["files"]["librdkafka"])

    def rules_of(self, name: str) -> list[AclBinding]:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            f"User:{name}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return list(self.admin.describe_acls(every).result(TIMEOUT_S))

    def take(self, rules: Sequence[AclBinding]) -> None:
        filters = [
            AclBindingFilter(
                rule.restype,
                rule.name,
                rule.resource_pattern_type,
                rule.principal,
                rule.host,
                rule.operation,
                rule.permission_type,
            )
            for rule in rules
        ]
        for answer in self.admin.delete_acls(filters).values():
            answer.result(TIMEOUT_S)

    def give(self, rules: Sequence[AclBinding]) -> None:
        for answer in self.admin.create_acls(list(rules)).values():
            answer.result(TIMEOUT_S)


def settings_in(file: Path) -> dict[str, Any]:
    """The settings of a client on librdkafka."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def in_javas_names(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings as options of Spark's own Kafka connector."""
    user, password = settings["sasl.username"], settings["sasl.password"]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": settings["bootstrap.servers"],
        "kafka.security.protocol": settings["security.protocol"],
        "kafka.sasl.mechanism": settings["sasl.mechanism"],
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": settings["ssl.ca.location"],
    }


def in_own_names(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in settings.items()}
