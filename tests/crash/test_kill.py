"""kill -9 under load, again and again: what was acknowledged stays, once and in order."""

import random
import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.crash.conftest import ROUNDS, MakeLoad, StartBroker
from tests.deadline import eventually

KILLS = max(ROUNDS, 6)


@pytest.mark.landing
@pytest.mark.timeout(180 + 60 * KILLS)
def test_nothing_acknowledged_is_lost(start_broker: StartBroker, make_load: MakeLoad, chance: random.Random) -> None:
    broker = start_broker(settings={"log.flush.offset.checkpoint.interval.ms": "500"})
    load = make_load(broker, partitions=3)
    load.create_topic(**{"segment.bytes": "200000"})
    load.add_sender("idempotent-1")
    load.add_sender("idempotent-2", compression="lz4")
    load.add_sender("plain", acks="1", idempotent=False)
    load.add_reader("reader-1")
    load.add_reader("reader-2")
    for number in range(KILLS):
        load.await_acks(300)
        time.sleep(chance.uniform(0, 0.2))
        broker.kill()
        load.leader_lost()
        if number % 3 == 2:
            # Killed while it recovers, or just after.
            broker.launch()
            time.sleep(chance.uniform(0, 0.5))
            broker.kill()
        broker.start()
    load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()
    assert report.totals.acked > 300 * KILLS
    assert load.fatal_errors() == []
    assert broker.stop() == 0


@pytest.mark.timeout(180 + 60 * KILLS)
def test_nothing_acknowledged_is_lost_where_batches_are_compressed_anew(
    start_broker: StartBroker, make_load: MakeLoad, chance: random.Random
) -> None:
    """The batches of one producer are compressed by other processes, and have to come back in their order."""
    broker = start_broker(settings={"log.flush.offset.checkpoint.interval.ms": "500"})
    load = make_load(broker, partitions=2, value_bytes=300)
    load.create_topic(**{"segment.bytes": "200000", "compression.type": "zstd"})
    load.add_sender("idempotent-1")
    load.add_sender("idempotent-2", compression="lz4")
    load.add_sender("plain", acks="1", idempotent=False)
    load.add_reader("reader")
    for _ in range(KILLS):
        load.await_acks(300)
        time.sleep(chance.uniform(0, 0.2))
        broker.kill()
        load.leader_lost()
        broker.start()
    load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()
    assert load.fatal_errors() == []
    assert broker.stop() == 0


def test_a_clean_stop_needs_no_recovery(start_broker: StartBroker, make_load: MakeLoad) -> None:
    broker = start_broker()
    load = make_load(broker, partitions=3)
    load.create_topic()
    load.add_sender("p1")
    load.add_reader("r1")
    for _ in range(2):
        load.await_acks(300)
        assert broker.stop() == 0
        broker.start()
        assert "cut from offset" not in broker.output()
    load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()


@pytest.mark.landing
def test_what_administration_acknowledged_survives(start_broker: StartBroker) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        new = NewTopic(name, num_partitions=2, replication_factor=1, config={"retention.ms": "86400000"})
        admin.create_topics([new], operation_timeout=20)[name].result(60)
    cluster_id = admin.list_topics(timeout=60).cluster_id
    broker.kill()
    broker.start()
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60)
    assert found.cluster_id == cluster_id
    assert {name: len(found.topics[name].partitions) for name in names} == dict.fromkeys(names, 2)


def test_a_committed_position_survives(start_broker: StartBroker) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=1)], operation_timeout=20)[
        "orders"
    ].result(60)
    group = f"group-{uuid.uuid4().hex[:8]}"
    for position in (3, 17, 5):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, position)], asynchronous=False)
        broker.kill()
        broker.start()
        fresh = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        (found,) = fresh.committed([TopicPartition("orders", 0)], timeout=60)
        assert found.offset == position
        fresh.close()
        consumer.close()


def test_a_second_broker_on_the_same_directory_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker()
    second = BrokerProcess(broker.data_dir, output=broker.data_dir.with_name("second.out"))
    second.launch()
    code = eventually(lambda: None if second.alive else (second.exit_code,), what="the second broker's end")
    assert code is not None
    assert code[0] not in (0, None)
    assert broker.alive
    assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).brokers
    second.kill()
