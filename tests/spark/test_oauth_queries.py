"""Spark logs in by tokens of a real OpenID server over HTTPS (OAUTHBEARER): a batch write, a batch read, a stream."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.certificates import tls_files
from tests.identity_provider import OpenIdServer, open_id_server
from tests.interop.test_oauth_clients import by_oidc, settings_for
from tests.spark.secure_stage import in_own_names
from tests.spark.streams import begun

from cordwood.embedded import Broker

WITHIN_S = 300


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[OpenIdServer]:
    with open_id_server(tls_files(tmp_path)) as server:
        yield server


def test_batches_and_a_stream(spark: SparkSession, provider: OpenIdServer, tmp_path: Path) -> None:
    with Broker(settings=settings_for(provider)) as broker:
        options = in_own_names(by_oidc(broker, provider))
        rows = spark.createDataFrame([(f"order {number}".encode(),) for number in range(10)], "value binary")
        rows.write.format("cordwood").mode("append").options(**options).option("topic", "orders").save()
        orders = spark.read.format("cordwood").options(**options).option("subscribe", "orders").load()
        assert orders.count() == 10
        stream = spark.readStream.format("cordwood").options(**options).option("subscribe", "orders")
        query = begun(
            stream.option("startingOffsets", "earliest")
            .load()
            .select("value")
            .writeStream.format("cordwood")
            .options(**options)
            .option("topic", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        try:
            assert query.awaitTermination(WITHIN_S)
        finally:
            query.stop()
        copies = spark.read.format("cordwood").options(**options).option("subscribe", "copies").load()
        assert copies.count() == 10
