"""Logs that move between a broker's data directories under load: what was acknowledged stays, once and in order."""

import random
import time
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.crash.conftest import ROUNDS, MakeLoad, StartBroker
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey

KILLS = max(ROUNDS, 4)
PARTITIONS = 2


def two_directories(start_broker: StartBroker, path: Path, **settings: str) -> BrokerProcess:
    directories = Path(f"{path / 'a'},{path / 'b'}")
    return start_broker(data_dir=directories, settings={"log.flush.offset.checkpoint.interval.ms": "500", **settings})


def move(broker: BrokerProcess, partition: int, directory: Path, topic: str = "orders") -> ErrorCode:
    client = RawClient(broker.bootstrap)
    wanted = [{"path": str(directory), "topics": [{"name": topic, "partitions": [partition]}]}]
    answer = client.send(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=wanted)
    client.close()
    ((result,),) = [each.partitions for each in answer.results]
    return ErrorCode(result.error_code)


def places(broker: BrokerProcess, *, futures: bool = False, topic: str = "orders") -> dict[int, str]:
    """The directory of each partition, or of its copy."""
    client = RawClient(broker.bootstrap)
    answer = client.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    client.close()
    return {
        each.partition_index: result.log_dir
        for result in answer.results
        for found in result.topics
        if found.name == topic
        for each in found.partitions
        if each.is_future_key is futures
    }


def await_moves(broker: BrokerProcess, directory: Path) -> None:
    eventually(lambda: set(places(broker).values()) == {str(directory)}, what="the end of the moves")


def in_both(path: Path) -> list[str]:
    return sorted(each.name for directory in ("a", "b") for each in (path / directory).glob("orders-*"))


@pytest.mark.timeout(120)
def test_logs_move_there_and_back_while_clients_write_and_read(
    start_broker: StartBroker, make_load: MakeLoad, tmp_path: Path
) -> None:
    broker = two_directories(start_broker, tmp_path)
    load = make_load(broker, partitions=PARTITIONS)
    load.create_topic(**{"segment.bytes": "200000", "file.delete.delay.ms": "0"})
    load.add_sender("idempotent")
    load.add_sender("plain", acks="1", idempotent=False)
    load.add_reader("reader")
    load.await_acks(300)
    for directory in (tmp_path / "a", tmp_path / "b", tmp_path / "a"):
        for partition in range(PARTITIONS):
            assert move(broker, partition, directory) is ErrorCode.NONE
        await_moves(broker, directory)
        assert places(broker, futures=True) == {}
        load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()
    assert load.fatal_errors() == []
    eventually(lambda: in_both(tmp_path), to_be=["orders-0", "orders-1"], what="the removal of the old files")
    assert broker.stop() == 0


@pytest.mark.timeout(60 + 30 * KILLS)
def test_a_kill_in_the_middle_of_moves_loses_nothing(
    start_broker: StartBroker, make_load: MakeLoad, tmp_path: Path, chance: random.Random
) -> None:
    broker = two_directories(start_broker, tmp_path)
    load = make_load(broker, partitions=PARTITIONS)
    load.create_topic(**{"segment.bytes": "200000", "file.delete.delay.ms": "0"})
    load.add_sender("idempotent-1")
    load.add_sender("idempotent-2", compression="lz4")
    load.add_reader("reader")
    directories = [tmp_path / "a", tmp_path / "b"]
    moved = 0
    for number in range(KILLS):
        load.await_acks(300)
        until = time.monotonic() + chance.uniform(0.02, 0.6)
        while time.monotonic() < until:
            for partition, directory in places(broker).items():
                other = next(each for each in directories if str(each) != directory)
                assert move(broker, partition, other) is ErrorCode.NONE
            moved += 1
        broker.kill()
        load.leader_lost()
        if number % 2:
            broker.launch()
            time.sleep(chance.uniform(0, 0.5))
            broker.kill()
        broker.start()
        assert len(places(broker)) == PARTITIONS
    load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()
    assert moved
    assert load.fatal_errors() == []
    assert broker.stop() == 0
