"""Groups of the consumer protocol (KIP-848) with confluent-kafka: the broker assigns, members reconcile."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.broker_process import BrokerProcess
from tests.deadline import eventually
from tests.interop.group_workers import CONSUMER, PARTITIONS, SETTINGS, Worker, fill, shared

from cordwood.embedded import Broker

UNHEARD_S = 1.0
"""An answer that comes this late is lost: librdkafka waits for a heartbeat's answer as long as the interval between
two."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("consumer-groups") / "data"
    with BrokerProcess(data, settings=SETTINGS, keep_port=True) as process:
        yield process


@pytest.fixture
def topic(process: BrokerProcess) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.create_topics([NewTopic(name, PARTITIONS)])[name].result()
    fill(process.bootstrap, name, 40)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.consumer.close()


@pytest.mark.landing
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_take_over(
    process: BrokerProcess, topic: str, group: str, workers: list[Worker], assignor: str
) -> None:
    settings = {**CONSUMER, "group.remote.assignor": assignor}
    workers.append(Worker(process.bootstrap, group, topic, **settings))
    eventually(lambda: shared(workers), what="one member owns everything")
    workers.append(Worker(process.bootstrap, group, topic, **settings))
    eventually(lambda: shared(workers), what="two members share")
    workers.append(Worker(process.bootstrap, group, topic, **settings))
    eventually(lambda: shared(workers), what="three members share")

    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    described = administrator.describe_consumer_groups([group])[group].result()
    assert described.type == ConsumerGroupType.CONSUMER
    assert described.partition_assignor == assignor
    assert len(described.members) == 3
    listed = administrator.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert group in [listing.group_id for listing in listed]

    workers.pop().consumer.close()
    workers.pop().consumer.close()
    eventually(lambda: shared(workers), what="the first has everything again")
    eventually(lambda: shared(workers) and len(set(workers[0].values)) == 40, what="all is read")


@pytest.mark.landing
def test_commit_and_resume(process: BrokerProcess, topic: str, group: str, workers: list[Worker]) -> None:
    first = Worker(process.bootstrap, group, topic, **CONSUMER)
    eventually(lambda: shared([first]) and len(first.values) == 40, what="all is read")
    first.consumer.commit(asynchronous=False)
    first.consumer.close()
    fill(process.bootstrap, topic, 4, start=40)
    workers.append(Worker(process.bootstrap, group, topic, **CONSUMER))
    eventually(lambda: shared(workers) and len(workers[0].values) >= 4, what="the rest is read")
    assert sorted(workers[0].values, key=str) == [b"v40", b"v41", b"v42", b"v43"]


def test_a_static_member_comes_back_to_its_partitions(
    process: BrokerProcess, topic: str, group: str, workers: list[Worker]
) -> None:
    for name in ("one", "two"):
        workers.append(Worker(process.bootstrap, group, topic, **CONSUMER, **{"group.instance.id": name}))
    eventually(lambda: shared(workers), what="two members share")
    goes = workers[1]
    owned = set(goes.owned)
    goes.consumer.close()
    workers[1] = Worker(process.bootstrap, group, topic, **CONSUMER, **{"group.instance.id": "two"})
    eventually(lambda: shared(workers), what="it is back")
    assert workers[1].owned == owned


def test_members_go_on_when_the_broker_is_killed_and_comes_back(tmp_path: Path, group: str) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS, keep_port=True) as process:
        administrator = AdminClient({"bootstrap.servers": process.bootstrap})
        administrator.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result()
        fill(process.bootstrap, "orders", 40)
        workers = [Worker(process.bootstrap, group, "orders", **CONSUMER) for _ in range(2)]
        eventually(lambda: shared(workers), what="two members share")
        process.kill()
        process.start()
        fill(process.bootstrap, "orders", 4, start=40)
        eventually(
            lambda: shared(workers) and len({value for worker in workers for value in worker.values}) == 44,
            what="they read everything",
        )
        for worker in workers:
            worker.consumer.close()

        def is_empty() -> bool:
            described = administrator.describe_consumer_groups([group])[group].result()
            return bool(described.state == ConsumerGroupState.EMPTY)

        eventually(is_empty, what="all have left")


def test_members_read_new_partitions(process: BrokerProcess, topic: str, group: str, workers: list[Worker]) -> None:
    workers.append(Worker(process.bootstrap, group, topic, **CONSUMER))
    eventually(lambda: shared(workers), what="one member owns everything")
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
    eventually(lambda: PARTITIONS in workers[0].poll().owned, what="the new partition is assigned")


def test_members_subscribe_by_regular_expression(
    process: BrokerProcess, topic: str, group: str, workers: list[Worker]
) -> None:
    """librdkafka leaves the match to the broker: existing topics, and one that is created later."""
    workers += [Worker(process.bootstrap, group, f"^{topic}.*", **CONSUMER) for _ in range(2)]
    eventually(lambda: shared(workers), what="two members share")
    later = f"{topic}-later"
    administrator = AdminClient({"bootstrap.servers": process.bootstrap})
    administrator.create_topics([NewTopic(later, PARTITIONS), NewTopic(f"not-{topic}", 1)])[later].result()
    fill(process.bootstrap, later, 4, start=1000)
    wanted = {f"v{number}".encode() for number in [*range(40), *range(1000, 1004)]}

    def values() -> set[bytes | None]:
        return {value for worker in workers for value in worker.poll().values}

    eventually(lambda: values() >= wanted, what="both topics are read")
    assert values() == wanted


@pytest.mark.landing
def test_a_member_that_did_not_hear_what_to_give_back_is_told_again() -> None:
    """librdkafka does not ask for its assignment after a heartbeat without an answer in time."""
    with Broker(settings={**SETTINGS, "num.partitions": PARTITIONS}) as broker:
        fill(broker.bootstrap_servers, "orders", 40)
        workers = [Worker(broker.bootstrap_servers, "readers", "orders", **CONSUMER, **{"client.id": "first"})]
        eventually(lambda: shared(workers), what="one member owns everything")
        unheard = broker.faults.delay("ConsumerGroupHeartbeat", UNHEARD_S, times=None, client_id="first")
        joined = broker.faults.delay("ConsumerGroupHeartbeat", 0, client_id="second")
        workers.append(Worker(broker.bootstrap_servers, "readers", "orders", **CONSUMER, **{"client.id": "second"}))
        joined.wait()
        unheard.wait(unheard.hits + 1)
        unheard.remove()
        eventually(lambda: shared(workers), what="two members share")
        for worker in workers:
            worker.close()
