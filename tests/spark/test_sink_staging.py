"""Writes with a postponed decision: invisible before it, whole or gone after it, and each batch once."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.spark.conftest import Load

from cordwood.spark.sink.staging import StagedRecords, stage_records

COMMITTED = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(partitions=2)


def staged(rows: DataFrame, broker: RunningBroker, topic: str, batch: int) -> StagedRecords:
    where = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "family": f"staged.{topic}"}
    return stage_records(rows, {**where, "batchId": str(batch)})


def numbers(spark: SparkSession, end: int) -> DataFrame:
    return spark.range(end).selectExpr("cast(id as string) as key", "cast(id as string) as value")


def test_rows_are_seen_once_they_are_decided_and_a_batch_is_written_once(
    spark: SparkSession, broker: RunningBroker, topic: str, load: Load
) -> None:
    first = staged(numbers(spark, 100), broker, topic, 0)
    assert first.rows == 100
    assert load(topic, **COMMITTED).count() == 0
    first.commit()
    assert load(topic, **COMMITTED).count() == 100
    again = staged(numbers(spark, 100), broker, topic, 0)
    assert again.rows == 100, "those that are passed over are told, too"
    again.commit()
    assert load(topic, **COMMITTED).count() == 100


def test_rows_that_are_taken_back_are_never_seen_and_the_batch_can_be_written_again(
    spark: SparkSession, broker: RunningBroker, topic: str, load: Load
) -> None:
    staged(numbers(spark, 100), broker, topic, 0).discard()
    assert load(topic, **COMMITTED).count() == 0
    staged(numbers(spark, 7), broker, topic, 0).commit()
    assert load(topic, **COMMITTED).count() == 7


def test_a_job_that_fails_leaves_nothing_open(
    spark: SparkSession, broker: RunningBroker, topic: str, load: Load
) -> None:
    failing = numbers(spark, 1000).selectExpr("key", "if(key = '999', raise_error('no'), value) as value")
    with pytest.raises(Exception, match="no"):
        staged(failing, broker, topic, 0)
    # A reader of committed records would wait before an open transaction.
    staged(numbers(spark, 3), broker, topic, 0).commit()
    assert load(topic, **COMMITTED).count() == 3
