"""What travels to Spark's tasks: a delegation token where there are tokens, and then no password."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.interop.test_sasl_clients import SETTINGS, add_user

from cordwood.client.cluster import Cluster
from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker
from cordwood.model.settings.token_settings import TOKEN_KEY_FILE
from cordwood.spark.data_source import CordwoodDataSource
from cordwood.spark.options import task_log_in
from cordwood.spark.options.security import security_of
from cordwood.spark.options.task_log_in import for_tasks
from cordwood.spark.source.options import read_options
from cordwood.spark.source.schema import source_schema

PICKLER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module", params=["with tokens", "without"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    key = tmp_path_factory.mktemp("key") / "token.key"
    key.write_text("a key of delegation tokens that is long enough\n")
    settings = {TOKEN_KEY_FILE: str(key)} if request.param == "with tokens" else {}
    with Broker(settings={**SETTINGS, **settings}) as broker:
        add_user(broker, "alice", PASSWORD)
        broker.log.append("orders", None, "a chair")
        yield broker


@pytest.fixture
def has_tokens(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params["broker"] == "with tokens")


def options_of(broker: Broker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.listeners["USERS"],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
    }


def client_of(broker: Broker) -> ClientSettings:
    return ClientSettings(broker.listeners["USERS"], security=security_of(options_of(broker)))


def test_tasks_get_one_token_and_no_password(broker: Broker, has_tokens: bool) -> None:
    settings = client_of(broker)
    given = for_tasks(settings)
    assert given.security.sasl is not None
    if not has_tokens:
        assert given == settings
        return
    assert given.security.sasl.by_token
    assert PASSWORD.encode() not in pickle.dumps(given)
    with Cluster(given) as cluster:
        assert "orders" in cluster.topics()
    # Another process of the driver finds the token of the first.
    task_log_in._kept.clear()
    assert for_tasks(settings) == given
    assert for_tasks(given) == given, "a token is not traded for another one"


def test_a_token_is_replaced_when_half_of_its_life_is_over(
    broker: Broker, has_tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_tokens:
        pytest.skip("there are no tokens")
    settings = client_of(broker)
    first = for_tasks(settings)
    monkeypatch.setattr(task_log_in, "_good_for_s", lambda held: 0.0)
    task_log_in._kept.clear()
    second = for_tasks(settings)
    third = for_tasks(settings)
    assert len({first, second, third}) == 3
    with Cluster(third) as cluster:
        assert "orders" in cluster.topics()


def test_readers_and_writers_are_pickled_without_the_password(broker: Broker, has_tokens: bool, tmp_path: Path) -> None:
    reading = {**options_of(broker), "subscribe": "orders", "startingoffsets": "earliest"}
    schema = source_schema(read_options(reading, streaming=False).extra_columns)
    rows = StructType([StructField("value", BinaryType())])
    writing = {**options_of(broker), "topic": "orders", "checkpointlocation": str(tmp_path)}
    source, sink = CordwoodDataSource(reading), CordwoodDataSource(writing)
    stream_reader = CordwoodDataSource(reading).streamReader(schema)
    reader: Any = source.reader(schema)
    made = [reader, source, sink.writer(rows, False), sink.streamWriter(rows, False), stream_reader]
    for each in made:
        travels = PICKLER.dumps(each)
        shows = not has_tokens and each not in (source, stream_reader)
        assert (PASSWORD.encode() in travels) == shows
    arrived: Any = PICKLER.loads(PICKLER.dumps(reader))
    (task,) = reader.partitions()
    assert [batch.num_rows for batch in arrived.read(task)] == [1]
    start = stream_reader.initialOffset()
    (task,) = stream_reader.partitions(start, stream_reader.latestOffset(start, stream_reader.getDefaultReadLimit()))
    travels = pickle.dumps(task)
    assert (PASSWORD.encode() in travels) == (not has_tokens)
    arrived = PICKLER.loads(PICKLER.dumps(stream_reader))
    assert [batch.num_rows for batch in arrived.read(pickle.loads(travels))] == [1]
    stream_reader.stop()


def test_log_ins_without_a_password_are_left_as_they_are(broker: Broker) -> None:
    plain = ClientSettings("127.0.0.1:1")
    assert for_tasks(plain) is plain
    security = client_of(broker).security
    assert security.sasl is not None
    by_plain = replace(plain, security=replace(security, sasl=replace(security.sasl, mechanism="PLAIN")))
    assert for_tasks(by_plain) is by_plain
