"""Read, transform, write, exactly once: the broker and the program are killed again and again, and every record is
compared."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.crash.conftest import StartBroker
from tests.crash.transform_worker import transform
from tests.interop.confluent_clients import produce_all, read_to_end

WORKER = Path(__file__).parent / "transform_worker.py"
PARTITIONS = 2
RECORDS = 3000
KILLS = 6


@pytest.mark.timeout(400)
def test_every_record_is_transformed_once_whoever_is_killed(
    start_broker: StartBroker, chance: random.Random, tmp_path: Path
) -> None:
    broker = start_broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic, future in admin.create_topics(
        [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in ("source", "target")],
        operation_timeout=20,
    ).items():
        assert future.result(60) is None, topic
    values = [[f"record-{index}-{number}".encode() for number in range(RECORDS)] for index in range(PARTITIONS)]
    produce_all(
        Producer({"bootstrap.servers": broker.bootstrap}),
        (
            {"topic": "source", "value": value, "partition": index}
            for index in range(PARTITIONS)
            for value in values[index]
        ),
    )
    command = [sys.executable, str(WORKER), broker.bootstrap, "source", "target", str(PARTITIONS), str(RECORDS)]
    kills = 0
    with (tmp_path / "worker.out").open("wb") as output:
        worker = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            while kills < KILLS and worker.poll() is None:
                time.sleep(chance.uniform(0.3, 1.0))
                kills += 1
                if kills % 2:
                    broker.kill()
                    broker.start()
                else:
                    worker.kill()
                    worker.wait(60)
                    worker = subprocess.Popen(command, stdout=output, stderr=output)
            assert worker.wait(200) == 0, (tmp_path / "worker.out").read_text()
        finally:
            worker.kill()
            worker.wait(60)
    assert kills >= 4, "the program was through before much could happen to it"
    for index in range(PARTITIONS):
        wanted = [transform(value) for value in values[index]]
        config = {"isolation.level": "read_committed"}
        found = read_to_end(broker.bootstrap, "target", [index], at_least=len(wanted), config=config)
        assert [message.value() for message in found] == wanted
    assert broker.stop() == 0
