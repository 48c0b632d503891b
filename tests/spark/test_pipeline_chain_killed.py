"""A chain of three, served by one Spark: its driver, its broker, its replay and the serving process are killed.

In between the first pipeline is swapped alone, and then with all that reads it. At the end the last table has each
record once, and all of them as the live version of the first pipeline makes them.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.conftest import await_topic
from tests.deadline import eventually
from tests.spark.conftest import produce
from tests.spark.serving_stage import WITHIN_S, Serve, numbers, worker_of

from cordwood.pipelines.editions.project import table_path

NUMBERS = 'value=json("n int not null, v int")'


class Chain(Serve):
    def __init__(self, directory: Path) -> None:
        self.broker = BrokerProcess(directory / "data", keep_port=True)
        self.broker.start()
        super().__init__(directory, self.broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic("numbers", num_partitions=2, replication_factor=1)])["numbers"].result(60)
        await_topic(admin, "numbers", 2)
        self.made = 0
        self.version(1)
        self.write("second", f'output("first", "one", {NUMBERS})', 'topic("two")')
        self.write("third", f'output("second", "two", {NUMBERS})', 'table("end")')

    def version(self, number: int) -> None:
        result = f'numbers.selectExpr("n", "{number} as v", "_record")'
        inputs = 'topic("numbers", value=json("n int not null"))'
        self.write("first", inputs, 'topic("one")', result=result, version=number)

    def put(self, count: int = 20) -> None:
        more = range(self.made, self.made + count)
        produce(self.broker.bootstrap, "numbers", numbers(more))
        self.made += count

    def arrives(self) -> None:
        self.has_rows("end", range(self.made))

    @property
    def file(self) -> str:
        return str(self.files / "first.py")

    def swap(self) -> None:
        """Swaps as soon as the live edition has read as far as the fresh one."""

        def said() -> str:
            done = subprocess.run(
                self.command("swap", "first"), cwd=self.directory, env=self.environment, capture_output=True, text=True
            )
            return "" if done.returncode == 0 else done.stderr

        eventually(said, to_be="", within_s=WITHIN_S, what="the swap", every_s=1)

    def kill_replay(self) -> None:
        """Kills a replay of all, with its Spark, after its first batch."""
        process = subprocess.Popen(
            self.command("replay", self.file, "--downstream", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        worker = None
        for line in process.stdout:
            event = json.loads(line)
            worker = event.get("pid", worker)
            if event["event"] == "batch":
                break
        assert worker is not None
        assert process.poll() is None
        process.kill()
        os.killpg(worker, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def kill_serving(self) -> None:
        assert self.process is not None
        worker = worker_of(self)
        self.process.kill()
        self.process.wait()
        with suppress(ProcessLookupError):  # it ends by itself when nobody serves it
            os.killpg(worker, signal.SIGKILL)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        made.broker.end()


@pytest.mark.timeout(900)
def test_each_record_is_at_the_end_of_the_chain_once_whatever_is_killed(chain: Chain) -> None:
    chain.put()
    chain.start()
    chain.arrives()

    os.killpg(worker_of(chain), signal.SIGKILL)
    chain.put()
    chain.broker.kill()
    chain.broker.start()
    chain.put()
    chain.arrives()

    chain.version(2)
    chain.run("replay", chain.file)
    chain.swap()
    chain.put()
    chain.arrives()

    chain.version(3)
    chain.kill_replay()
    chain.put()
    chain.broker.kill()
    chain.broker.start()
    chain.run("replay", chain.file, "--downstream")
    chain.arrives()
    chain.swap()
    chain.put()
    chain.kill_serving()
    chain.start()
    chain.put()
    chain.arrives()
    versions = DeltaTable(table_path("end", chain.state)).to_pyarrow_table().column("v").to_pylist()
    assert set(versions) == {3}, "what the first versions have made is gone"
    assert chain.process is not None
    chain.process.send_signal(signal.SIGTERM)
    assert chain.wait() == 0
