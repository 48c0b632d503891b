"""Real clients under rules of access: what `cordwood acl add` makes for a program is enough, and each rule is needed; a
right that is taken away ends what is under way; Kafka's own tool and confluent-kafka's admin API make rules."""

import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.cli.conftest import Cordwood
from tests.deadline import eventually
from tests.interop.conftest import JVM_FLAGS

from cordwood.embedded import Broker

TIMEOUT_S = 60
USERS = {"alice": "of wonderland", "bob": "the builder"}
ALLOW = AclPermissionType.ALLOW
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, users=USERS, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient(broker.client_settings())


@pytest.fixture(scope="module")
def cli(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Cordwood:
    """The command line as the administrator."""
    directory = tmp_path_factory.mktemp("admin")
    return Cordwood(broker.bootstrap_servers, {"CORDWOOD_CLIENT_CONFIG": str(config_file(broker, directory))})


def config_file(broker: Broker, directory: Path) -> Path:
    settings = broker.client_settings()
    authority = directory / "ca.pem"
    authority.write_text(settings.pop("ssl.ca.pem"))
    return write_lines(directory / "admin.properties", {**settings, "ssl.ca.location": str(authority)})


@pytest.fixture
def name(admin: AdminClient) -> Iterator[str]:
    """A name for the resources of one test, which leaves no rules behind."""
    yield f"t{uuid.uuid4().hex[:8]}"
    for done in admin.delete_acls([rules_about()]).values():
        done.result(TIMEOUT_S)


def write_lines(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def rules_about(principal: Any = None) -> AclBindingFilter:
    """Selects the rules of a principal, or all. The types of confluent-kafka leave None out, which stands for all."""
    every: Any = None
    return AclBindingFilter(
        ResourceType.ANY, every, ResourcePatternType.ANY, principal, every, AclOperation.ANY, AclPermissionType.ANY
    )


def rule(
    user: str, kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = LITERAL
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, ALLOW)


def add(admin: AdminClient, *rules: AclBinding) -> None:
    for done in admin.create_acls(list(rules)).values():
        done.result(TIMEOUT_S)


def remove(admin: AdminClient, *rules: AclBinding) -> None:
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in rules
    ]
    for done in admin.delete_acls(filters).values():
        assert len(done.result(TIMEOUT_S)) == 1


@contextmanager
def missing(admin: AdminClient, lost: AclBinding) -> Iterator[None]:
    remove(admin, lost)
    yield
    add(admin, lost)


def rules_of(admin: AdminClient, user: str) -> list[AclBinding]:
    found: list[AclBinding] = admin.describe_acls(rules_about(f"User:{user}")).result(TIMEOUT_S)
    return found


def delete(admin: AdminClient, topic: str) -> None:
    """Deletes a topic if it exists: a program has to create it."""
    with suppress(KafkaException):
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)


# Programs: each returns the code of its refusal, or None


def produce(settings: dict[str, Any], topic: str, **more: Any) -> int | None:
    outcomes: list[int | None] = []
    producer = Producer({**settings, **more})
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(code_in(error)))
    except KafkaException as refused:
        return code_of(refused)
    assert producer.flush(TIMEOUT_S) == 0
    return outcomes[0]


def produce_in_transaction(settings: dict[str, Any], topic: str, transactional_id: str) -> int | None:
    producer = Producer({**settings, "transactional.id": transactional_id})
    outcomes: list[int | None] = []
    try:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(code_in(error)))
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as refused:
        # Either the transaction was refused, or its records, and the transaction for their sake.
        codes = [*outcomes, code_of(refused)]
        return next((code for code in codes if code in REFUSALS.values()), codes[-1])
    return None


def consume(settings: dict[str, Any], topic: str, group: str, protocol: str) -> int | None:
    consumer = Consumer({**settings, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        if error is None:
            consumer.commit(message=message, asynchronous=False)
        return code_in(error)
    except KafkaException as refused:
        return code_of(refused)
    finally:
        consumer.close()


def code_of(refused: KafkaException) -> int | None:
    return code_in(refused.args[0])


def code_in(error: KafkaError | None) -> int | None:
    """The broker's code. librdkafka has one of its own for what a client does not survive, and the broker's words."""
    if error is None or error.code() != KafkaError._FATAL:
        return None if error is None else error.code()
    return next(code for code in REFUSALS.values() if KafkaError(code).str() in error.str())


REFUSALS: dict[Any, int] = {
    TOPIC: KafkaError.TOPIC_AUTHORIZATION_FAILED,
    GROUP: KafkaError.GROUP_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def each_rule_is_needed(admin: AdminClient, user: str, program: Callable[[], int | None]) -> None:
    """Runs the program without each of the user's rules, and then with all of them. Read and write imply describe,
    whose rules are beside them as Kafka's own tool makes them."""
    for lost in rules_of(admin, user):
        if lost.operation is not AclOperation.DESCRIBE:
            with missing(admin, lost):
                assert program() == REFUSALS[lost.restype], lost
    assert program() is None


def test_a_producers_rules_are_enough_and_each_is_needed(
    broker: Broker, admin: AdminClient, cli: Cordwood, name: str
) -> None:
    cli("acl", "add", "alice", "--producer", "--topic", name)

    def program() -> int | None:
        delete(admin, name)
        return produce(broker.client_settings("alice"), name)

    each_rule_is_needed(admin, "alice", program)
    assert produce(broker.client_settings("alice"), name, **{"enable.idempotence": True}) is None
    assert produce(broker.client_settings("bob"), name) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_rules_of_a_producer_with_transactions_are_enough_and_each_is_needed(
    broker: Broker, admin: AdminClient, cli: Cordwood, name: str
) -> None:
    cli("acl", "add", "alice", "--producer", "--topic", name, "--transactional-id", name)

    def program() -> int | None:
        delete(admin, name)
        return produce_in_transaction(broker.client_settings("alice"), name, name)

    each_rule_is_needed(admin, "alice", program)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumers_rules_are_enough_and_each_is_needed(
    broker: Broker, admin: AdminClient, cli: Cordwood, name: str, protocol: str
) -> None:
    assert produce(broker.client_settings(), name) is None
    cli("acl", "add", "bob", "--consumer", "--topic", name, "--group", name)
    each_rule_is_needed(admin, "bob", lambda: consume(broker.client_settings("bob"), name, name, protocol))


def test_two_users_hand_records_over_in_transactions(
    broker: Broker, admin: AdminClient, cli: Cordwood, name: str
) -> None:
    """Alice consumes orders, and writes totals along with her positions; bob reads the totals. Each has what
    `--streams`, `--producer` and `--consumer` gave."""
    orders, application, totals = f"{name}.orders", f"{name}-app", f"{name}.totals"
    cli("acl", "add", "alice", "--streams", application, "--reads", orders, "--writes", totals)
    cli("acl", "add", "bob", "--consumer", "--topic", totals, "--group", name)
    for topic in (orders, totals):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    assert produce(broker.client_settings(), orders) is None
    settings = broker.client_settings("alice")
    consumer = Consumer(
        {**settings, "group.id": application, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([orders])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None
    producer = Producer({**settings, "transactional.id": f"{application}-0"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(totals, b"total")
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S)
    consumer.close()
    assert consume(broker.client_settings("bob"), totals, name, "classic") is None
    assert consume(broker.client_settings("bob"), orders, name, "classic") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_pattern_of_the_new_protocol_matches_what_its_user_may_describe_and_follows_the_rules(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    mine, other = f"{name}.shop.orders", f"{name}.bank.accounts"
    for topic in (mine, other):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    own = rule("bob", TOPIC, f"{name}.shop.", AclOperation.READ, PREFIXED)
    foreign = rule("bob", TOPIC, f"{name}.bank.", AclOperation.READ, PREFIXED)
    add(admin, own, rule("bob", GROUP, name, AclOperation.READ))
    consumer = Consumer({**broker.client_settings("bob"), "group.id": name, "group.protocol": "consumer"})
    consumer.subscribe([f"^{name}\\..*"])

    def assigned() -> set[str]:
        consumer.poll(0.1)
        return {each.topic for each in consumer.assignment()}

    eventually(assigned, to_be={mine}, what="bob's own topic, alone")
    add(admin, foreign)
    eventually(assigned, to_be={mine, other}, what="the other topic, which bob may read now")
    remove(admin, foreign)
    eventually(assigned, to_be={mine}, what="bob's own topic, alone again")
    consumer.close()


def test_a_right_that_is_taken_away_ends_a_producer_and_writes_nothing_more(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    write = rule("alice", TOPIC, name, AclOperation.WRITE)
    add(admin, write, rule("alice", TOPIC, name, AclOperation.CREATE))
    outcomes: list[int | None] = []
    producer = Producer({**broker.client_settings("alice"), "linger.ms": 0})

    def sent() -> int | None:
        producer.produce(name, b"x", on_delivery=lambda error, _: outcomes.append(code_in(error)))
        assert producer.flush(TIMEOUT_S) == 0
        return outcomes[-1]

    assert sent() is None
    remove(admin, write)
    written = broker.log.end_offset(name, 0)
    assert sent() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.log.end_offset(name, 0) == written
    add(admin, write)
    assert produce(broker.client_settings("alice"), name) is None


def test_a_right_that_is_taken_away_ends_a_consumer_and_gives_it_nothing_more(
    broker: Broker, admin: AdminClient, name: str
) -> None:
    broker.log.append(name, None, "before")
    read = rule("bob", TOPIC, name, AclOperation.READ)
    add(admin, read, rule("bob", GROUP, name, AclOperation.READ))
    consumer = Consumer({**broker.client_settings("bob"), "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"before"
    assert consumer.poll(0.2) is None  # a fetch waits at the broker
    remove(admin, read)
    broker.log.append(name, None, "after")
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_a_right_that_is_taken_away_ends_a_transaction(broker: Broker, admin: AdminClient, name: str) -> None:
    own = rule("alice", TRANSACTIONAL_ID, name, AclOperation.WRITE)
    add(admin, own, *(rule("alice", TOPIC, name, each) for each in (AclOperation.WRITE, AclOperation.CREATE)))
    producer = Producer({**broker.client_settings("alice"), "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"x")
    assert producer.flush(TIMEOUT_S) == 0
    remove(admin, own)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(TIMEOUT_S)
    assert code_of(refused.value) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [record.value for record in broker.log.read(name, committed=True)] == []


def test_the_admin_api_makes_rules_and_users_for_those_who_may(broker: Broker, admin: AdminClient, name: str) -> None:
    made = rule("bob", TOPIC, name, AclOperation.READ, PREFIXED)
    add(admin, made)
    assert rules_of(admin, "bob") == [made]
    alice = AdminClient(broker.client_settings("alice"))
    with pytest.raises(KafkaException) as refused:
        add(alice, made)
    assert code_of(refused.value) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert rules_of(alice, "bob") == []  # refused, too: librdkafka drops the error of DescribeAcls
    remove(admin, made)
    assert rules_of(admin, "bob") == []
    carol = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"secret")
    with pytest.raises(KafkaException) as refused:
        alice.alter_user_scram_credentials([carol])[name].result(TIMEOUT_S)
    assert code_of(refused.value) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    admin.alter_user_scram_credentials([carol])[name].result(TIMEOUT_S)
    described: Any = admin.describe_user_scram_credentials([name])
    assert [each.mechanism for each in described[name].result(TIMEOUT_S).scram_credential_infos] == [
        ScramMechanism.SCRAM_SHA_512
    ]
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([gone])[name].result(TIMEOUT_S)


def test_kafkas_own_tool_adds_lists_and_removes_rules(
    broker: Broker, admin: AdminClient, kafka_jars: KafkaJars, tmp_path: Path, name: str
) -> None:
    settings = broker.client_settings()
    (tmp_path / "ca.pem").write_text(settings["ssl.ca.pem"])
    log_in = f'username="{settings["sasl.username"]}" password="{settings["sasl.password"]}"'
    config = write_lines(
        tmp_path / "java.properties",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": settings["sasl.mechanism"],
            "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {log_in};",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        },
    )

    def acls(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config))
        command = kafka_jars.command("org.apache.kafka.tools.AclCommand", *where, *arguments, jvm_flags=JVM_FLAGS)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", name, "--group", name)
    acls("--add", *consumer)
    assert {(each.restype, each.operation) for each in rules_of(admin, "bob")} == {
        (kind, operation)
        for kind in (TOPIC, GROUP)
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
        if (kind, operation) != (GROUP, AclOperation.DESCRIBE)
    }
    assert f"ResourcePattern(resourceType=TOPIC, name={name}, patternType=LITERAL)" in acls("--list")
    broker.log.append(name, None, "x")
    assert consume(broker.client_settings("bob"), name, name, "classic") is None
    acls("--remove", "--force", *consumer)
    assert rules_of(admin, "bob") == []
