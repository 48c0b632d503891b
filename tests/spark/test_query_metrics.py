"""Metrics of plain queries: a listener on a real session answers Prometheus under the names of pipelines' metrics."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.deploy.playing import Scrape, check, scrape
from tests.deploy.prometheus import promtool
from tests.spark.conftest import Load, Produce, numbered
from tests.spark.streams import WITHIN_S, begun, running

from cordwood.spark import QueryMetrics
from cordwood.spark.monitoring.endpoint import WrongAddress

ALARMS = {
    "CordwoodPipelineFailed",
    "CordwoodPipelineLagGrows",
    "CordwoodPipelineAboutToLoseRecords",
    "CordwoodPipelineInputsUnknown",
}


@pytest.fixture
def metrics(spark: SparkSession, broker: RunningBroker) -> Iterator[QueryMetrics]:
    listener = QueryMetrics("127.0.0.1:0", broker.bootstrap, look_every_s=0.1)
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)
    listener.close()


def scraped(metrics: QueryMetrics) -> Scrape:
    address = metrics.url.removeprefix("http://").removesuffix("/metrics")
    return scrape({'job="cordwood-pipelines",instance="driver"': address})


def value(metrics: QueryMetrics, name: str, query: str, more: str = "") -> float | None:
    """The value of a query, summed over partitions; None if there is none."""
    found = [
        each
        for series, each in scraped(metrics).values.items()
        if series.startswith(f"cordwood_pipeline_{name}{{") and f'pipeline="{query}"' in series and more in series
    ]
    return sum(found) if found else None


def wait_for(metrics: QueryMetrics, name: str, query: str, expected: float | None) -> None:
    what = f"{name} {expected} of {query}"
    eventually(lambda: value(metrics, name, query), to_be=expected, within_s=WITHIN_S, what=what)


def test_a_query_shows_its_batches_and_its_lag_also_while_it_stands_still(
    metrics: QueryMetrics,
    load_stream: Load,
    put: Produce,
    make_topic: MakeTopic,
    broker: RunningBroker,
    tmp_path: Path,
) -> None:
    topic, copies = make_topic(2), make_topic(1)
    put(topic, [*numbered(0, 60), *numbered(60, 100, partition=1)])
    frame = load_stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=50).select("value")
    writer = frame.writeStream.queryName(name := f"copying-{topic}").format("cordwood")
    writer = writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": copies})
    query = begun(writer.option("checkpointLocation", str(tmp_path)))
    wait_for(metrics, "rows_in_total", name, 100)
    wait_for(metrics, "lag_records", name, 0)
    assert value(metrics, "rows_out_total", name, 'output="sink"') == 100
    assert value(metrics, "batches_total", name) == value(metrics, "batch_duration_seconds_count", name) == 2
    assert (value(metrics, "running", name), value(metrics, "failed", name)) == (1, 0)
    assert value(metrics, "last_batch_timestamp_seconds", name) is not None
    query.stop()
    wait_for(metrics, "running", name, 0)
    put(topic, numbered(100, 107))
    wait_for(metrics, "lag_records", name, 7)
    # Infinite for a minute: the query has read faster than the topic grows.
    assert value(metrics, "time_to_data_loss_seconds", name) is not None


def test_a_query_that_fails_fires_the_alarms_of_pipelines(
    metrics: QueryMetrics, load_stream: Load, put: Produce, topic: str, tmp_path: Path
) -> None:
    promtool("--version")
    put(topic, numbered(0, 10))
    broken = tmp_path / "broken"

    def take(batch: DataFrame, _: int) -> None:
        if broken.exists():
            raise RuntimeError("the lookup service does not answer")

    frame = load_stream(topic, startingOffsets="earliest")
    writer = frame.writeStream.queryName(name := f"failing-{topic}").foreachBatch(take)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = begun(writer)
    wait_for(metrics, "batches_total", name, 1)
    assert value(metrics, "rows_out_total", name) is None
    in_order = scraped(metrics)
    check(tmp_path, (in_order, scraped(metrics)), (), ALARMS)

    broken.touch()
    put(topic, numbered(10, 2_000))
    wait_for(metrics, "failed", name, 1)
    wait_for(metrics, "lag_records", name, 1_990)
    assert (value(metrics, "failures_total", name), value(metrics, "restarts_total", name)) == (1, 0)
    check(
        tmp_path,
        (in_order, scraped(metrics)),
        ("CordwoodPipelineFailed", "CordwoodPipelineLagGrows"),
        {"CordwoodPipelineInputsUnknown"},
    )

    broken.unlink()
    query = begun(writer)
    wait_for(metrics, "failed", name, 0)
    wait_for(metrics, "restarts_total", name, 1)
    wait_for(metrics, "lag_records", name, 0)
    query.stop()


def test_a_query_without_a_name_leaves_nothing_behind(
    metrics: QueryMetrics, load_stream: Load, put: Produce, topic: str, tmp_path: Path
) -> None:
    put(topic, numbered(0, 3))
    query = load_stream(topic, startingOffsets="earliest").writeStream.format("noop").trigger(availableNow=True)
    ended = begun(query.option("checkpointLocation", str(tmp_path / "without")))
    ended.awaitTermination(WITHIN_S)
    with running(load_stream(topic), f"after-{topic}", tmp_path / "after", availableNow=True) as stream:
        stream.finish()
    # Spark tells of the ends of queries in their order.
    wait_for(metrics, "running", f"after-{topic}", 0)
    assert value(metrics, "batches_total", str(ended.id)) is None


def test_an_address_that_is_none_is_refused(broker: RunningBroker) -> None:
    with pytest.raises(WrongAddress, match="no address of the form HOST:PORT"):
        QueryMetrics("9405", broker.bootstrap)
