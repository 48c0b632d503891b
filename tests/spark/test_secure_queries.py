"""Reads, streams and writes over SASL_SSL, by users who have only the rights that `cordwood acl add --spark` gives."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.certificates import tls_files
from tests.deadline import eventually
from tests.spark.secure_stage import SecureStage, in_javas_names, in_own_names, settings_in
from tests.spark.streams import begun

import cordwood.spark
from cordwood.client.errors import SecurityFailure

WITHIN_S = 300
REFUSED_WITHIN_S = 60
"""A refused read tries nothing again; the rest is Spark's processes on a busy machine."""
QUERY = "copying"
ORDERS = [f"order {number}" for number in range(20)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStage]:
    stage = SecureStage(tmp_path_factory.mktemp("secure"), with_tokens=True)
    try:
        stage.make_topics("orders", "copies")
        stage.produce("orders", ORDERS)
        yield stage
    finally:
        stage.end()


@pytest.fixture(scope="module")
def alice(stage: SecureStage) -> dict[str, str]:
    return settings_in(stage.add_user("alice", "--spark", QUERY, "--reads", "orders", "--writes", "copies"))


def copy_all(spark: SparkSession, alice: Mapping[str, str], checkpoint: Path) -> None:
    """Copies what there is in a streaming query, whose failure it raises."""
    orders = (
        spark.readStream.format("cordwood")
        .options(**in_javas_names(alice))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = begun(
        orders.select("key", "value")
        .writeStream.queryName(QUERY)
        .format("cordwood")
        .options(**in_own_names(alice))
        .option("topic", "copies")
        .option("family", QUERY)
        .option("kafka.max.block.ms", 5_000)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    try:
        assert query.awaitTermination(WITHIN_S)
    finally:
        query.stop()


def test_a_query_with_the_rights_of_its_shortcut_reads_and_writes_exactly_once(
    spark: SparkSession, stage: SecureStage, alice: dict[str, str], tmp_path: Path
) -> None:
    read = spark.read.format("cordwood").options(**in_javas_names(alice)).option("subscribe", "orders").load()
    assert sorted(bytes(row.value).decode() for row in read.select("value").collect()) == sorted(ORDERS)
    copy_all(spark, alice, tmp_path / "checkpoint")
    # The batch again, as if the driver had died between the commit of the broker and Spark's own.
    (tmp_path / "checkpoint/commits/0").unlink()
    copy_all(spark, alice, tmp_path / "checkpoint")
    assert stage.committed("copies", 100) == ORDERS
    found = cordwood.spark.progress(f"spark-{QUERY}", alice)
    assert [standing.position for standing in found.values()] == [len(ORDERS)]
    boxes = [group for group in stage.cli.json("group", "list") if group["name"].startswith("spark-notes-")]
    assert not boxes, "the planner removes its box of notes"


@pytest.mark.parametrize(
    ("kind", "operations", "said"),
    [
        (ResourceType.TOPIC, {AclOperation.READ}, "Read of the topic"),
        (ResourceType.TOPIC, {AclOperation.READ, AclOperation.DESCRIBE}, "Describe of the topic"),
        (ResourceType.TOPIC, {AclOperation.WRITE}, "Write of the topic"),
        (ResourceType.TRANSACTIONAL_ID, {AclOperation.WRITE}, "Write of the transactional id"),
    ],
)
def test_without_one_of_the_rights_a_query_fails_and_names_it(
    spark: SparkSession,
    stage: SecureStage,
    alice: dict[str, str],
    tmp_path: Path,
    kind: ResourceType,
    operations: set[AclOperation],
    said: str,
) -> None:
    before = stage.committed("copies", 100)
    taken = [rule for rule in stage.rules_of("alice") if rule.restype == kind and rule.operation in operations]
    stage.take(taken)
    try:
        with pytest.raises(PySparkException, match=said) as failed:
            copy_all(spark, alice, tmp_path / "checkpoint")
        assert alice["sasl.password"] not in str(failed.value)
    finally:
        stage.give(taken)
    assert stage.committed("copies", 100) == before


def test_without_the_rights_on_groups_a_query_goes_on_and_nobody_sees_its_progress(
    spark: SparkSession, stage: SecureStage, alice: dict[str, str], tmp_path: Path
) -> None:
    groups = [rule for rule in stage.rules_of("alice") if rule.restype == ResourceType.GROUP]
    assert {rule.operation for rule in groups} == {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE}
    stage.admin.delete_consumer_groups([f"spark-{QUERY}"])[f"spark-{QUERY}"].result(60)
    stage.take(groups)
    try:
        before = len(stage.committed("copies", 100))
        copy_all(spark, alice, tmp_path / "checkpoint")
        assert len(stage.committed("copies", 100)) == before + len(ORDERS)
    finally:
        stage.give(groups)
    assert cordwood.spark.progress(f"spark-{QUERY}", alice) == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kafka.sasl.password": "not hers"}, "SASL_AUTHENTICATION_FAILED"),
        ({"kafka.ssl.ca.location": "OTHER"}, "no authority of .* signed its certificate"),
        (
            {
                "kafka.security.protocol": "PLAINTEXT",
                "kafka.sasl.mechanism": "",
                "kafka.sasl.username": "",
                "kafka.sasl.password": "",
                "kafka.ssl.ca.location": "",
            },
            r"security\.protocol",
        ),
    ],
)
def test_a_client_that_is_not_let_in_learns_why_before_the_first_batch(
    spark: SparkSession, alice: dict[str, str], tmp_path: Path, wrong: dict[str, str], said: str
) -> None:
    other = {name: str(tls_files(tmp_path).truststore) if value == "OTHER" else value for name, value in wrong.items()}
    options = {**in_own_names(alice), "kafka.default.api.timeout.ms": "3000", **other, "subscribe": "orders"}
    began_s = time.monotonic()
    with pytest.raises(PySparkException, match=said) as failed:
        spark.read.format("cordwood").options(**options).load().count()
    stream = spark.readStream.format("cordwood").options(**options).load()
    query = begun(stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")))
    eventually(lambda: query.isActive, to_be=False, within_s=REFUSED_WITHIN_S, what="the end of the query")
    failure = query.exception()
    assert failure is not None
    assert not (tmp_path / "checkpoint/offsets/0").exists()
    for text in (str(failed.value), str(failure)):
        assert alice["sasl.password"] not in text
        assert "not hers" not in text
    assert time.monotonic() - began_s < 2 * REFUSED_WITHIN_S


def test_progress_tells_who_is_not_let_in(alice: dict[str, str]) -> None:
    with pytest.raises(SecurityFailure, match="SASL_AUTHENTICATION_FAILED"):
        cordwood.spark.progress(f"spark-{QUERY}", {**alice, "sasl.password": "not hers"})
