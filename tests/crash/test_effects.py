"""Effects in a database, exactly once: programs of one group and their broker are killed and put to sleep again and
again, and every effect is compared with its record."""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests import pausing
from tests.crash.conftest import ROUNDS, StartBroker
from tests.deadline import eventually
from tests.interop.confluent_clients import produce_all

WORKER = Path(__file__).parent / "effects_worker.py"
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.heartbeat.interval.ms": "200",
}
PARTITIONS = 3
RECORDS = 600 * max(ROUNDS, 1)
"""The number of records in each partition."""
BLOWS = ("sleep", "kill", "kill", "broker", "kill", "kill", "broker", "kill") * max(ROUNDS, 1)
SLEEP_S = 2.5
"""Longer than a session: a program that wakes up is a zombie."""


class Worker:
    """One of the programs, which is started again whenever it dies."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._command = command
        self._output = output
        self.start()

    def start(self) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def sleep(self) -> None:
        pausing.pause(self.process.pid)
        time.sleep(SLEEP_S)
        pausing.resume(self.process.pid)


@pytest.mark.timeout(180 * max(ROUNDS, 1))
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_has_its_effect_once_whoever_is_killed_or_sleeps(
    start_broker: StartBroker, chance: random.Random, tmp_path: Path, protocol: str
) -> None:
    broker = start_broker(settings=SETTINGS)
    administrator = AdminClient({"bootstrap.servers": broker.bootstrap})
    administrator.create_topics([NewTopic("source", PARTITIONS)], operation_timeout=20)["source"].result(60)
    values = [[f"record-{index}-{number}".encode() for number in range(RECORDS)] for index in range(PARTITIONS)]
    produce_all(
        Producer({"bootstrap.servers": broker.bootstrap}),
        (
            {"topic": "source", "value": value, "partition": index}
            for index in range(PARTITIONS)
            for value in values[index]
        ),
    )
    database = tmp_path / "effects.db"
    connection = sqlite3.connect(database, timeout=60)
    connection.execute("create table effects (partition_index, place, value)")
    connection.commit()
    total = PARTITIONS * RECORDS
    command = [sys.executable, str(WORKER), broker.bootstrap, protocol, str(database), str(total)]
    workers = [Worker(command, tmp_path / f"worker-{number}.out") for number in range(2)]

    def count() -> int:
        return int(connection.execute("select count(*) from effects").fetchone()[0])

    try:
        for blow in BLOWS:
            time.sleep(chance.uniform(0.3, 1.0))
            if count() >= total:
                break
            worker = chance.choice(workers)
            if blow == "sleep":
                worker.sleep()
            elif blow == "kill":
                worker.kill()
                worker.start()
            else:
                broker.kill()
                broker.start()
        eventually(lambda: count() >= total, within_s=90 * max(ROUNDS, 1), what=f"{total} effects")
        for worker in workers:
            assert worker.process.wait(60) == 0, worker._output.read_text()
    finally:
        for worker in workers:
            worker.kill()
    for index in range(PARTITIONS):
        rows = connection.execute(
            "select place, value from effects where partition_index = ? order by rowid", (index,)
        ).fetchall()
        assert rows == list(enumerate(values[index]))
    assert broker.stop() == 0
