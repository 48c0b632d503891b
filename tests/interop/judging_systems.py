"""A Cordwood broker and an Apache Kafka with the same topics, groups, users and rules: each user lacks one right.

Requests go over sockets, as any client's do. What an answer tells is read from both in the same words.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.kafka_peer import KafkaBroker, KafkaJars, free_port
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of
from tests.raw_client import RawClient
from tests.unit.node.requests_of_every_api import Names

from cordwood.embedded import Broker
from cordwood.model.acls import EVERYTHING, THE_CLUSTER, Acl, Pattern, Permission
from cordwood.model.credentials import MIN_ITERATIONS, ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.model.settings.token_settings import TOKEN_KEY_FILE
from cordwood.security.scram import salted_password
from cordwood.wire.apis import ApiKey
from cordwood.wire.encoding.schema import Entity

ANY = 1
PASSWORD = "the same for all"
TOKEN_KEY = "known to brokers alone, and so on"
NOBODY, MASTER = "nobody", "master"
_LISTENERS = "PLAINTEXT://127.0.0.1:{},USERS://127.0.0.1:{}"
_SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
}
_RESOURCE_NAMES = frozenset({"name", "topic", "topic_name", "group_id", "transactional_id", "resource_name"})
"""The fields of an answer's entry that say which resource the entry is about."""

View = tuple[Any, ...]
"""What an answer tells: its errors, the resources that it names, and what the client may do with them."""


class Lacking(NamedTuple):
    """A user who may do everything but this."""

    operation: Operation
    kind: ResourceKind

    @property
    def user(self) -> str:
        return f"lacks-{self.operation}-of-{self.kind.name}".lower()


EVERY_LACK = tuple(Lacking(operation, kind) for kind in ResourceKind for operation in kind.operations)


class System:
    """One of the two, with a connection for each user."""

    def __init__(self, plain: str, users: str) -> None:
        self._address = users
        self.admin = RawClient(plain)
        self._clients: dict[str, RawClient] = {}
        served = self.admin.send(ApiKey.API_VERSIONS, 2).api_keys
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in served}

    def make_users(self) -> None:
        names = [NOBODY, MASTER, *(lack.user for lack in EVERY_LACK)]
        salt = secrets.token_bytes(16)
        upsertions = [
            {
                "name": name,
                "mechanism": ScramMechanism.SHA_256,
                "iterations": MIN_ITERATIONS,
                "salt": salt,
                "salted_password": salted_password(ScramMechanism.SHA_256, PASSWORD, salt, MIN_ITERATIONS),
            }
            for name in names
        ]
        answer = self.admin.send(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=upsertions)
        assert not any(each.error_code for each in answer.results), answer
        rules = list(_rules())
        creations = [
            {
                "resource_type": rule.kind,
                "resource_name": rule.name,
                "resource_pattern_type": rule.pattern,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for rule in rules
        ]
        made = self.admin.send(ApiKey.CREATE_ACLS, 3, creations=creations)
        assert not any(each.error_code for each in made.results), made
        every: dict[str, Any] = {
            "resource_name_filter": None,
            "principal_filter": None,
            "host_filter": None,
            **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY),
        }

        def rules_in_force() -> int:
            found = self.admin.send(ApiKey.DESCRIBE_ACLS, 3, **every).resources
            return sum(len(resource.acls) for resource in found)

        eventually(rules_in_force, to_be=len(rules), what="the rules")

    def answer(self, user: str, key: Any, version: int, values: Mapping[str, Any]) -> Any:
        """The answer, or None: the connection was closed."""
        client = self._clients.get(user) or self._logged_in(user)
        try:
            client.request(key, version, **values)
            return client.answer(key, version)
        except (AssertionError, OSError):
            client.close()
            del self._clients[user]
            return None

    def _logged_in(self, user: str) -> RawClient:
        def log_in() -> bool:
            client = self._clients[user] = RawClient(self._address)
            return client.log_in(user, PASSWORD)

        eventually(log_in, what=f"a log-in of {user}")
        return self._clients[user]

    def topic(self, name: str) -> TopicId:
        """Makes the topic, with one record, if it does not exist."""
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
        self.admin.send(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout_ms=30_000)

        def described() -> Any:
            (topic,) = self.admin.send(ApiKey.METADATA, 12, topics=[{"name": name}]).topics
            return topic if not topic.error_code and all(not each.error_code for each in topic.partitions) else None

        topic_id: TopicId = eventually(described, what=f"the topic {name}").topic_id

        def filled() -> int:
            part = {"index": 0, "records": bytes(batch_of([b"a secret"]))}
            entry = {"name": name, "partition_data": [part]}
            answer = self.admin.send(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=[entry])
            return int(answer.responses[0].partition_responses[0].error_code)

        eventually(filled, to_be=0, what="a record")
        return topic_id

    def groups(self, names: Names) -> None:
        """Makes a group with a position and one with a member."""
        position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": names.topic, "partitions": [position]}]

        def committed() -> int:
            self.admin.send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[names.group])
            answer = self.admin.send(ApiKey.OFFSET_COMMIT, 8, group_id=names.group, topics=topics)
            return int(answer.topics[0].partitions[0].error_code)

        member = {"group_id": names.watching_group, "member_id": "w", "rebalance_timeout_ms": 10_000}

        def watching() -> int:
            values = {**member, "subscribed_topic_names": [names.topic], "topic_partitions": []}
            return int(self.admin.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **values).error_code)

        eventually(committed, to_be=0, what="a position")
        eventually(watching, to_be=0, what="a member")

    def transaction(self, transactional_id: str) -> None:
        def begun() -> int:
            self.admin.send(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[transactional_id])
            asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
            return int(self.admin.send(ApiKey.INIT_PRODUCER_ID, 4, **asked).error_code)

        eventually(begun, to_be=0, what="a producer's id")


class Pair(NamedTuple):
    cordwood: System
    kafka: System

    def versions_of(self, key: int) -> range:
        """The versions that both serve."""
        if not all(key in system.versions for system in self):
            return range(0)
        (low, high), (other_low, other_high) = (system.versions[key] for system in self)
        return range(max(low, other_low), min(high, other_high) + 1)


@contextmanager
def judging_pair(jars: KafkaJars, directory: Path) -> Iterator[Pair]:
    plain, users, controller = free_port(), free_port(), free_port()
    clients = _LISTENERS.format(plain, users)
    of_kafka = {
        **_SETTINGS,
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
        "delegation.token.secret.key": TOKEN_KEY,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "listener.name.users.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    directory.mkdir(parents=True, exist_ok=True)
    token_key = directory / "token.key"
    token_key.touch(0o600)
    token_key.write_text(TOKEN_KEY)
    of_cordwood = {**_SETTINGS, "listeners": _LISTENERS.format(0, 0), TOKEN_KEY_FILE: str(token_key)}
    with (
        KafkaBroker(jars, directory, "512m", of_kafka, plain, controller),
        Broker(settings=of_cordwood) as broker,
    ):
        pair = Pair(
            System(broker.listeners["PLAINTEXT"], broker.listeners["USERS"]),
            System(f"127.0.0.1:{plain}", f"127.0.0.1:{users}"),
        )
        for system in pair:
            system.make_users()
        yield pair


def _rules() -> Iterator[Acl]:
    for user, lack in [(MASTER, None), *((lack.user, lack) for lack in EVERY_LACK)]:
        for kind in ResourceKind:
            of_cluster = kind is ResourceKind.CLUSTER
            name = THE_CLUSTER if of_cluster else EVERYTHING
            rule = Acl(kind, Pattern.LITERAL, name, f"User:{user}", EVERYTHING, Operation.ALL, Permission.ALLOW)
            # All on the cluster would be leave to delete each topic, for Kafka.
            yield from (rule._replace(operation=each) for each in (kind.operations if of_cluster else [Operation.ALL]))
            if lack is not None and lack.kind is kind:
                yield rule._replace(operation=lack.operation, permission=Permission.DENY)


def view(answer: Any, names: Names, field: str = "") -> Any:
    """What an answer tells, in words that do not depend on the system; None: nothing. Entries about other resources
    than those of the request (topics of other requests, internal ones) are left out."""
    if isinstance(answer, Entity):
        told = {name: view(value, names, name) for name, value in vars(answer).items()}
        if any(told.get(name) == _ANOTHER for name in _RESOURCE_NAMES):
            return None
        return tuple(sorted((name, each) for name, each in told.items() if each is not None)) or None
    if isinstance(answer, (list, tuple)):
        seen = [each for each in (view(one, names, field) for one in answer) if each is not None and each != _ANOTHER]
        return tuple(sorted(seen, key=repr)) or None
    if field.endswith("error_code"):
        return ErrorCode(answer).name
    if field.endswith("topic_id"):
        return {ZERO_TOPIC_ID: None, names.topic_id: "topic_id"}.get(answer, _ANOTHER)
    if field.endswith("authorized_operations"):
        return answer
    if isinstance(answer, str) and (field in _RESOURCE_NAMES or field == ""):
        return next((what for what, name in names._asdict().items() if name == answer), _ANOTHER) if answer else None
    return None


_ANOTHER = "another resource"
