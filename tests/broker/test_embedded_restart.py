"""An embedded broker goes away and comes back: the same port, the same records, the same clients."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker.conftest import no_new_threads

from cordwood.embedded import Broker
from cordwood.embedded.in_process_log import BrokerStopped


@pytest.fixture(params=["memory", "disk"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    return Broker(data_dir=tmp_path / "data" if request.param == "disk" else None)


def test_a_broker_comes_back_on_its_port_with_its_records(broker: Broker) -> None:
    broker.start()
    servers = broker.bootstrap_servers
    for number in range(5):
        broker.log.append("kept", None, str(number))
    broker.stop()
    broker.start()
    try:
        assert broker.bootstrap_servers == servers
        assert [record.value for record in broker.log.read("kept", 0)] == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.log.append("kept", None, "5") == 5
    finally:
        broker.stop()


def test_clients_go_on_when_their_broker_is_back(broker: Broker) -> None:
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.max.ms": 100})
    producer.produce("orders", b"before")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "reconnect.backoff.max.ms": 100}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    first = consumer.poll(60)
    assert first is not None
    assert first.value() == b"before"
    broker.stop()
    producer.produce("orders", b"while it was away")
    assert producer.flush(0.2) == 1
    broker.start()
    try:
        assert producer.flush(60) == 0
        second = consumer.poll(60)
        while second is not None and second.error() is not None:
            second = consumer.poll(60)
        assert second is not None
        assert second.value() == b"while it was away"
    finally:
        consumer.close()
        broker.stop()


def test_committed_positions_are_there_after_a_restart(broker: Broker) -> None:
    broker.start()
    broker.log.append("t", None, "x")
    position = [TopicPartition("t", 0, 1)]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.commit(offsets=position, asynchronous=False)
    broker.stop()
    broker.start()
    try:
        [found] = consumer.committed([TopicPartition("t", 0)], timeout=30)
        assert found.offset == 1
    finally:
        consumer.close()
        broker.stop()


def test_a_log_that_was_asked_for_before_the_restart_still_works(broker: Broker) -> None:
    with broker:
        log = broker.log
        log.append("t", None, "x")
    with pytest.raises(BrokerStopped):
        log.append("t", None, "x")
    with broker:
        assert log is broker.log
        assert log.append("t", None, "x") == 1


def test_many_restarts_leave_no_threads_behind(broker: Broker) -> None:
    before = set(threading.enumerate())
    for number in range(5):
        with broker:
            assert broker.log.append("t", None, "x") == number
    no_new_threads(before)


def test_a_broker_that_runs_is_not_started_again(broker: Broker) -> None:
    with broker:
        with pytest.raises(RuntimeError, match="is already running"):
            broker.start()
        assert broker.log.append("t", None, "x") == 0


def test_a_broker_that_was_never_started_says_so() -> None:
    broker = Broker()
    for ask in (lambda: broker.bootstrap_servers, lambda: broker.log.append("t", None, "x")):
        with pytest.raises(BrokerStopped, match="not been started"):
            ask()


def test_it_restarts_with_assertions_switched_off() -> None:
    code = (
        "from cordwood.embedded import Broker\n"
        "broker = Broker().start()\n"
        "broker.log.append('t', None, 'x')\n"
        "broker.stop()\n"
        "broker.start()\n"
        "print(broker.log.end_offset('t', 0), broker.port > 0)\n"
        "broker.stop()\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["1", "True"], done.stderr


def test_a_port_that_somebody_else_took_meanwhile_is_reported() -> None:
    broker = Broker()
    with broker:
        port = broker.port
    with Broker(port=port), pytest.raises(OSError, match="cannot listen"):
        broker.start()
    with broker:
        assert broker.port == port
