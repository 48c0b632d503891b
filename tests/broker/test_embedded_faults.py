"""`broker.faults`: errors, delays and lost connections on demand, seen by real clients."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually

from cordwood.embedded import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.log.append("orders", None, "first")
        broker.log.append("audit", None, "first")
        yield broker


def produce(broker: Broker, topic: str, value: bytes, **configuration: object) -> KafkaError | None:
    """The error of one record, None if it was acknowledged."""
    outcome: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcome.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **configuration})
    producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(60) == 0
    return outcome[0]


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.log.read(topic)]


def test_a_produce_fails_and_is_not_carried_out(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    error = produce(broker, "orders", b"refused")
    assert error is not None
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert fault.hits == 1
    assert produce(broker, "orders", b"taken") is None
    assert values(broker, "orders") == [b"first", b"taken"]


def test_a_client_gets_over_an_error_that_passes(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3, topic="orders", partition=0)
    assert produce(broker, "orders", b"at last") is None
    assert fault.hits == 3
    assert values(broker, "orders") == [b"first", b"at last"]


def test_a_fault_with_a_topic_leaves_others_alone(broker: Broker) -> None:
    with broker.faults.fail("Produce", 29, times=None, topic="orders") as fault:
        assert produce(broker, "audit", b"fine") is None
        assert produce(broker, "orders", b"refused") is not None
        assert produce(broker, "orders", b"refused again") is not None
        assert fault.hits == 2
    assert produce(broker, "orders", b"fine") is None


def test_a_fault_with_a_client_id_leaves_others_alone(broker: Broker) -> None:
    with broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None, client_id="unlucky"):
        assert produce(broker, "orders", b"fine") is None
        assert produce(broker, "orders", b"refused", **{"client.id": "unlucky"}) is not None


def test_faults_are_met_in_the_order_in_which_they_were_set(broker: Broker) -> None:
    first = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    second = broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    error = produce(broker, "orders", b"x")
    assert error is not None
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert (first.hits, second.hits) == (1, 1)


def test_a_lost_answer_makes_a_duplicate_unless_the_producer_is_idempotent(broker: Broker) -> None:
    fault = broker.faults.disconnect("Produce", carried_out=True)
    assert produce(broker, "orders", b"twice", **{"enable.idempotence": False}) is None
    assert fault.hits == 1
    broker.faults.disconnect("Produce", carried_out=True)
    assert produce(broker, "orders", b"once", **{"enable.idempotence": True}) is None
    assert values(broker, "orders") == [b"first", b"twice", b"twice", b"once"]


def test_a_lost_request_is_sent_again(broker: Broker) -> None:
    fault = broker.faults.disconnect("Produce", times=2)
    assert produce(broker, "orders", b"once", **{"enable.idempotence": False}) is None
    assert fault.hits == 2
    assert values(broker, "orders") == [b"first", b"once"]


def test_a_late_answer_is_late_and_the_request_was_carried_out_before(broker: Broker) -> None:
    fault = broker.faults.delay("Produce", 0.5)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    started = time.monotonic()
    producer.produce("orders", b"late")
    producer.poll(0)
    fault.wait()
    assert values(broker, "orders") == [b"first", b"late"]
    assert producer.flush(60) == 0
    assert time.monotonic() - started >= 0.5


def test_an_answer_later_than_the_client_waits_is_a_timeout(broker: Broker) -> None:
    broker.faults.delay("CreateTopics", 60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.list_topics(timeout=60)  # connects first: the timeout runs from the request on
    created = admin.create_topics([NewTopic("slow", 1)], request_timeout=3)["slow"]
    with pytest.raises(KafkaException) as failure:
        created.result(60)
    assert failure.value.args[0].code() == KafkaError._TIMED_OUT
    assert "slow" in broker.log.topics()


def test_a_fetch_fails_and_the_consumer_hears_of_it(broker: Broker) -> None:
    broker.faults.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    refused = consumer.poll(60)
    assert refused is not None
    error = refused.error()
    assert error is not None
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    taken = consumer.poll(60)
    assert taken is not None
    assert taken.value() == b"first"
    consumer.close()


def test_a_fetch_of_a_session_meets_the_fault_too(broker: Broker) -> None:
    """kafka-python reads in sessions, whose fetches do not name all their partitions."""
    broker.log.append("orders", None, "second")
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None, fetch_max_wait_ms=50)
    partition = kafka.TopicPartition("orders", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert next(consumer).value == b"first"
    assert next(consumer).value == b"second"
    with broker.faults.fail("Fetch", "OFFSET_OUT_OF_RANGE", times=None, topic="audit") as other:
        fault = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders")
        eventually(lambda: consumer.poll(timeout_ms=50) == {} and fault.hits == 1, what="a fetch that fails")
        broker.log.append("orders", None, "third")
        assert next(consumer).value == b"third"
        assert fault.hits == 1
        assert other.hits == 0
    consumer.close()


def test_kafka_python_and_aiokafka_see_faults(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10)
    producer.send("orders", b"kafka-python").get(timeout=60)
    producer.close()
    assert fault.hits == 2

    async def with_aiokafka() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10)
        await producer.start()
        broker.faults.disconnect("Produce")
        await producer.send_and_wait("orders", b"aiokafka")
        await producer.stop()

    asyncio.run(with_aiokafka())
    assert values(broker, "orders") == [b"first", b"kafka-python", b"aiokafka"]


def test_a_group_gets_over_a_coordinator_that_is_not_ready(broker: Broker) -> None:
    finding = broker.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=2)
    joining = broker.faults.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"first"
    assert (finding.hits, joining.hits) == (2, 1)
    consumer.close()


def test_metadata_can_be_refused(broker: Broker) -> None:
    fault = broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2, topic="orders")
    assert produce(broker, "orders", b"x", **{"topic.metadata.refresh.fast.interval.ms": 20}) is None
    assert fault.hits == 2


def test_a_fault_that_is_set_while_the_broker_is_away_holds_when_it_is_back(broker: Broker) -> None:
    broker.stop()
    fault = broker.faults.fail("ApiVersions", "UNSUPPORTED_VERSION")
    broker.start()
    assert produce(broker, "orders", b"x") is None
    assert fault.hits == 1


def test_without_faults_requests_go_straight_to_the_node(broker: Broker) -> None:
    server = broker._calls.server
    connections = server._connections
    assert connections is not None
    assert connections.node is server.node
    fault = broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS")
    assert connections.node is not server.node
    produce(broker, "orders", b"x")
    fault.wait()
    assert connections.node is server.node
    broker.faults.delay("Fetch", 1)
    broker.faults.clear()
    assert connections.node is server.node


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Prodce", "NOT_ENOUGH_REPLICAS"), "there is no API 'Prodce'; did you mean Produce?"),
        (
            ("Produce", "NOT_ENOUGH_REPLICA"),
            "there is no error 'NOT_ENOUGH_REPLICA'; did you mean NOT_ENOUGH_REPLICAS?",
        ),
        (("Produce", 70_000), "70000 is no error code"),
        (("Produce", "NONE"), "NONE is no error: it would acknowledge a request that is not carried out"),
        (("Produce", 0), "NONE is no error: it would acknowledge a request that is not carried out"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, str | int], message: str) -> None:
    broker = Broker()
    with pytest.raises(ValueError) as refusal:
        broker.faults.fail(*arguments)
    assert str(refusal.value) == message


def test_mistakes_in_options_are_named() -> None:
    faults = Broker().faults
    with pytest.raises(ValueError, match="a partition belongs to a topic"):
        faults.fail("Produce", 1, partition=0)
    with pytest.raises(ValueError, match="topic does not fit Heartbeat"):
        faults.fail("Heartbeat", 27, topic="orders")
    with pytest.raises(ValueError, match="times must be at least 1"):
        faults.fail("Heartbeat", 27, times=0)
    with pytest.raises(ValueError, match="seconds must be 0 or more"):
        faults.delay("Heartbeat", -1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": "2"}, "times must be int or None, not str"),
        ({"times": True}, "times must be int or None, not bool"),
        ({"topic": 5}, "topic must be str or None, not int"),
        ({"topic": "orders", "partition": "0"}, "partition must be int or None, not str"),
        ({"client_id": b"app"}, "client_id must be str or None, not bytes"),
        ({"seconds": "1s"}, "seconds must be int or float, not str"),
    ],
)
def test_a_wrong_type_of_an_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as refusal:
        Broker().faults.delay("Produce", **{"seconds": 1, **options})
    assert str(refusal.value) == message


def test_waiting_for_a_fault_that_nobody_meets_ends(broker: Broker) -> None:
    fault = broker.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
    with pytest.raises(TimeoutError, match=r"was met 0 times, not 1 within 0\.01 s"):
        fault.wait(timeout_s=0.01)
