"""Groups with confluent-kafka: members share the work, come, go, die and come back, and the broker dies under them."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.group_workers import PARTITIONS, Worker, fill, shared

from cordwood.embedded import Broker

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(broker: RunningBroker, make_topic: MakeTopic) -> str:
    topic = make_topic(partitions=PARTITIONS)
    fill(broker.bootstrap, topic, 40)
    return topic


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.consumer.close()


@pytest.mark.landing
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_members_share_the_work_and_the_rest_takes_over_when_one_leaves(
    broker: RunningBroker, group: str, filled: str, workers: list[Worker], strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    workers.append(Worker(broker.bootstrap, group, filled, **settings))
    eventually(lambda: shared(workers), what="one member owns everything")
    workers.append(Worker(broker.bootstrap, group, filled, **settings))
    eventually(lambda: shared(workers), what="two members share")
    workers.pop().consumer.close()
    eventually(lambda: shared(workers), what="the other takes over")
    eventually(lambda: shared(workers) and len(set(workers[0].values)) == 40, what="all is read")


@pytest.mark.landing
def test_a_member_goes_on_where_the_last_one_committed(
    broker: RunningBroker, group: str, filled: str, workers: list[Worker]
) -> None:
    first = Worker(broker.bootstrap, group, filled)
    eventually(lambda: shared([first]) and len(first.values) == 40, what="all is read")
    first.consumer.commit(asynchronous=False)
    first.consumer.close()
    fill(broker.bootstrap, filled, 4, start=40)
    workers.append(Worker(broker.bootstrap, group, filled))
    eventually(lambda: shared(workers) and len(workers[0].values) >= 4, what="the rest is read")
    assert sorted(workers[0].values, key=str) == [b"v40", b"v41", b"v42", b"v43"]


DYING_MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 6000})
consumer.subscribe([sys.argv[3]], on_assign=lambda consumer, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


def test_a_member_that_is_killed_is_missed_after_its_session_timeout(
    broker: RunningBroker, group: str, filled: str, workers: list[Worker]
) -> None:
    command = [sys.executable, "-c", DYING_MEMBER, broker.bootstrap, group, filled]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{PARTITIONS}\n"
            workers.append(Worker(broker.bootstrap, group, filled))
            eventually(lambda: len(workers[0].poll().owned), to_be=2, what="the two share")
            os.kill(process.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            eventually(lambda: shared(workers), what="the survivor takes over")
            assert time.monotonic() - killed_s > 3
        finally:
            process.kill()


def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_notices(
    broker: RunningBroker, group: str, filled: str, workers: list[Worker]
) -> None:
    workers.append(Worker(broker.bootstrap, group, filled, **{"group.instance.id": "one"}))
    workers.append(Worker(broker.bootstrap, group, filled, **{"group.instance.id": "two"}))
    eventually(lambda: shared(workers), what="two members share")
    stays, goes = workers
    assignments, owned = stays.assignments, set(goes.owned)
    goes.consumer.close()  # a static member does not announce that it leaves
    workers[1] = Worker(broker.bootstrap, group, filled, **{"group.instance.id": "two"})
    eventually(lambda: shared(workers), what="it is back")
    assert workers[1].owned == owned
    assert stays.assignments == assignments


def test_operators_see_list_and_delete_groups(
    broker: RunningBroker, admin: AdminClient, group: str, filled: str, workers: list[Worker]
) -> None:
    workers.append(Worker(broker.bootstrap, group, filled, **{"client.id": "clerk"}))
    eventually(lambda: shared(workers) and workers[0].values, what="it reads")
    workers[0].consumer.commit(asynchronous=False)

    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert member.client_id == "clerk"
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(PARTITIONS))

    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result().valid
    assert group in [listing.group_id for listing in stable]
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result().valid
    assert group not in [listing.group_id for listing in empty]

    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result()
    workers.pop().consumer.close()
    admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(KafkaException, match=r"GROUP_ID_NOT_FOUND|not found|does not exist"):
        admin.delete_consumer_groups([group])[group].result()


def test_a_zombie_cannot_commit(broker: RunningBroker, group: str, filled: str, workers: list[Worker]) -> None:
    zombie = Worker(broker.bootstrap, group, filled, **{"max.poll.interval.ms": 6000})
    workers.append(Worker(broker.bootstrap, group, filled))
    eventually(lambda: shared([zombie, *workers]), what="two members share")
    eventually(lambda: shared(workers), what="the one that polls takes over")
    with pytest.raises(KafkaException):
        zombie.consumer.commit(offsets=[TopicPartition(filled, 0, 1)], asynchronous=False)
    zombie.consumer.close()


def test_members_go_on_without_a_round_when_the_broker_is_killed_and_comes_back(tmp_path: Path, group: str) -> None:
    with BrokerProcess(tmp_path / "data", keep_port=True) as process:
        administrator = AdminClient({"bootstrap.servers": process.bootstrap})
        administrator.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
        fill(process.bootstrap, "orders", 40)
        workers = [Worker(process.bootstrap, group, "orders") for _ in range(2)]
        eventually(lambda: shared(workers), what="two members share")
        eventually(lambda: shared(workers) and sum(len(worker.values) for worker in workers) >= 40, what="all is read")
        for worker in workers:
            worker.consumer.commit(asynchronous=False)
        rounds = [worker.assignments for worker in workers]
        process.kill()
        process.start()
        fill(process.bootstrap, "orders", 4, start=40)
        got = {b"v40", b"v41", b"v42", b"v43"}
        eventually(
            lambda: shared(workers) and got <= {value for worker in workers for value in worker.values},
            what="they read on",
        )
        assert [worker.assignments for worker in workers] == rounds
        last = [value for worker in workers for value in worker.values if value in got]
        assert len(last) == len(got), "nothing twice"
        for worker in workers:
            worker.consumer.commit(asynchronous=False)
            worker.consumer.close()
        process.kill()
        process.start()
        described = administrator.describe_consumer_groups([group])[group].result()
        assert described.state == ConsumerGroupState.EMPTY


def test_a_member_at_rest_has_a_heartbeat_that_waits_for_news(group: str, workers: list[Worker]) -> None:
    with Broker(settings={"group.heartbeat.hold.ms": 30_000, "group.initial.rebalance.delay.ms": 0}) as broker:
        held = broker._calls.server.node.parked.giving_way
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("shared", PARTITIONS)])["shared"].result(60)
        patient = {"session.timeout.ms": 300_000, "heartbeat.interval.ms": 500}
        workers.append(Worker(broker.bootstrap_servers, group, "shared", **patient))
        eventually(lambda: shared(workers) and held, what="its heartbeat waits")
        (waiting,) = held.values()
        workers.append(Worker(broker.bootstrap_servers, group, "shared", **patient))
        eventually(lambda: shared(workers), what="two members share")
        assert waiting not in held.values()
        while workers:
            workers.pop().consumer.close()
