"""A power cut: what never reached the disk is gone, and nothing of it had been acknowledged."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.crash.conftest import ROUNDS, MakeLoad, StartBroker
from tests.crash.mounts import LoopDisk, MountUnavailable
from tests.interop.confluent_clients import produce_all

CUTS = max(ROUNDS // 2, 3)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    try:
        disk = LoopDisk(tmp_path, size_mib=512)
    except MountUnavailable as reason:
        pytest.skip(f"there is no power to cut here: {reason}")
    yield disk
    disk.destroy()


@pytest.mark.landing
@pytest.mark.timeout(180 + 60 * CUTS)
@pytest.mark.parametrize("partitions", [3, 100], ids=["few dirty logs", "many dirty logs"])
def test_acknowledged_means_on_disk(
    disk: LoopDisk, start_broker: StartBroker, make_load: MakeLoad, chance: random.Random, partitions: int
) -> None:
    """Few logs are synced one by one, many together: both ways must have reached the disk before the answer."""
    broker = start_broker(disk.path / "data", settings={"log.flush.offset.checkpoint.interval.ms": "500"})
    load = make_load(broker, partitions=partitions)
    load.create_topic(**{"ack.durability": "disk", "segment.bytes": "200000"})
    load.add_sender("p1")
    load.add_sender("p2")
    load.add_reader("r1")
    for _ in range(CUTS):
        load.await_acks(300)
        time.sleep(chance.uniform(0, 0.2))
        # Power fails for the processor as well. Without this a sync that is under way may come back after the cut and
        # say that all is well (fdatasync did, in a tenth of the cuts), and the broker would believe it.
        broker.freeze()
        disk.cut_power()
        broker.kill()
        load.leader_lost()
        disk.unmount()
        disk.mount()
        broker.start()
    load.await_acks(300)
    report = load.finish()
    assert report.clean, report.render()
    assert report.totals.acked > 300 * CUTS
    assert load.fatal_errors() == []


def test_a_broker_whose_disk_is_gone_promises_nothing(
    disk: LoopDisk, start_broker: StartBroker, make_load: MakeLoad
) -> None:
    """It stops, if it finds out by an fsync, or refuses what it cannot write: but it acknowledges nothing."""
    broker = start_broker(disk.path / "data")
    load = make_load(broker, partitions=1)
    load.create_topic()
    load.add_sender("p1")
    load.await_acks(200)
    broker.freeze(calls_too=True)
    disk.cut_power()
    broker.thaw()
    late = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "retries": 0,
            "enable.idempotence": False,
            "message.timeout.ms": 5000,
        }
    )
    with pytest.raises(KafkaException) as refused:
        produce_all(late, [{"topic": "orders", "value": b"too late"}])
    code = refused.value.args[0].code()
    assert code in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT)
    broker.says("Input/output error")
    broker.kill()
    disk.unmount()
    disk.mount()
    broker.start()
    load.await_acks(200)
    report = load.finish()
    assert report.clean, report.render()
