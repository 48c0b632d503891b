"""Real Spark against a real broker: one session for each worker of xdist, as `cordwood.spark.session` makes it.

The format is found by its name: nothing here registers it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from benchmarks.maven import PeerUnavailable
from benchmarks.spark_connector import install_connector
from confluent_kafka import KafkaError, Producer
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.spark.postgresql_server import PostgresServer

HERE = Path(__file__).parent
TIMEOUT_S = 900
"""The time of one test: the first one also starts Spark, which takes a minute on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    import cordwood.spark

    os.environ.pop("PYSPARK_PYTHON", None)  # the session names its own
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    directory = tmp_path_factory.mktemp("spark")
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": directory / "warehouse",
        "spark.local.dir": directory / "local",
        "spark.driver.memory": "1g",
    }
    jars: list[Path] = []
    with suppress(PeerUnavailable):
        _, jars = install_connector()
    if delta := delta_jars():
        jars = [*jars, *delta]
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        settings["spark.databricks.delta.snapshotPartitions"] = 2
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    session = cordwood.spark.session("tests", master="local[2]", **settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def delta_misfit(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """A pipeline's remark if Delta's jars are there and were built for another Spark."""
    from cordwood.pipelines.definition.table_output import table
    from cordwood.pipelines.tables.delta import DeltaBatches

    if not delta_jars():
        pytest.skip("CORDWOOD_DELTA_JARS does not name a directory with Delta's jars")
    directory = tmp_path_factory.mktemp("delta")
    batches = DeltaBatches(directory / "t", table("t", key="id"), directory / "staging")
    with _delta_merging(spark):
        batches.commit(batches.stage(spark.createDataFrame([("a",)], "id string")), "trial", 0)
    return batches.tidy(now_ms=0)


@pytest.fixture(params=["deltalake", "delta-spark"])
def merged_by(request: pytest.FixtureRequest, spark: "SparkSession") -> Iterator[str]:
    """Has rows with a key merged into Delta tables in one way, then in the other."""
    if request.param == "deltalake":
        yield request.param
        return
    misfit = request.getfixturevalue("delta_misfit")
    if misfit is not None:
        pytest.skip(misfit)
    with _delta_merging(spark):
        yield request.param


@pytest.fixture
def delta_merging(spark: "SparkSession", delta_misfit: str | None) -> Iterator[None]:
    """Uses Delta's jars if there are any and they fit."""
    with _delta_merging(spark):
        yield


@contextmanager
def _delta_merging(spark: "SparkSession") -> Iterator[None]:
    from cordwood.pipelines.tables.delta_spark import MIN_BYTES

    spark.conf.set(MIN_BYTES, 0)
    try:
        yield
    finally:
        spark.conf.unset(MIN_BYTES)


def delta_jars() -> list[Path]:
    """Delta's own jars for Spark, from the directory that the environment names; none otherwise."""
    directory = os.environ.get("CORDWOOD_DELTA_JARS")
    return sorted(Path(directory).glob("delta-*.jar")) if directory else []


class Record(NamedTuple):
    """A record to produce. An absent partition or time is the producer's choice."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


def produce(bootstrap: str, topic: str, records: Sequence[Record], **settings: object) -> None:
    """Produces records, and returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    failures: list[object] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []


def numbered(first: int, end: int, partition: int = 0) -> list[Record]:
    """Records with these numbers as values."""
    return [Record(str(number).encode(), partition=partition) for number in range(first, end)]


Produce = Callable[[str, Sequence[Record]], None]


@pytest.fixture(scope="session")
def put(broker: RunningBroker) -> Produce:
    def put(topic: str, records: Sequence[Record]) -> None:
        produce(broker.bootstrap, topic, records)

    return put


Load = Callable[..., "DataFrame"]


@pytest.fixture(scope="session")
def load(spark: "SparkSession", broker: RunningBroker) -> Load:
    """`load(topic, startingOffsets="earliest")`: a batch read."""

    def load(topic: str | None = None, *, schema: str | None = None, **options: Any) -> "DataFrame":
        return _reader(spark.read, broker.bootstrap, topic, schema, options)

    return load


@pytest.fixture(scope="session")
def load_stream(spark: "SparkSession", broker: RunningBroker) -> Load:
    """`load_stream(topic, startingOffsets="earliest")`: a stream."""

    def load(topic: str | None = None, *, schema: str | None = None, **options: Any) -> "DataFrame":
        return _reader(spark.readStream, broker.bootstrap, topic, schema, options)

    return load


def _reader(reader: Any, bootstrap: str, topic: str | None, schema: str | None, options: dict[str, Any]) -> "DataFrame":
    reader = reader.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    if schema is not None:
        reader = reader.schema(schema)
    for name, value in options.items():
        reader = reader.option(name, value)
    found: DataFrame = reader.load()
    return found


def numbers(frame: "DataFrame") -> list[int]:
    """The values of records that are numbers, sorted."""
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


@pytest.fixture(scope="module")
def postgres() -> "Iterator[PostgresServer]":
    from tests.debian import NotHere
    from tests.spark.postgresql_server import PostgresServer

    try:
        server = PostgresServer()
    except NotHere as why:
        pytest.skip(str(why))
    with server:
        yield server
