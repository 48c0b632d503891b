"""A stream that copies one topic into another while something happens to the brokers: nothing is lost or doubled."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from tests.cluster.confluent_load import Writer, at_work
from tests.deadline import eventually
from tests.spark.sink_stories import committed, values, wait_for_a_commit
from tests.spark.streams import begun

KEYS = 20
WITHIN_S = 300


class Orders(Writer):
    """Produces numbers as JSON, for each key in turn."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__("orders", bootstrap, topic, **{"enable.idempotence": True, **settings})

    def key(self, number: int) -> str:
        return str(number % KEYS)

    def value(self, number: int) -> str:
        return json.dumps({"id": number % KEYS, "n": number})


def reader(reader: Any, servers: str, topic: str, source: str = "cordwood") -> Any:
    return (
        reader.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def copies(
    servers: str,
    spark: SparkSession,
    checkpoint: Path,
    topics: tuple[str, str],
    partitions: int,
    meanwhile: Callable[[], None],
    *,
    connector: str = "cordwood",
    of_producer: Mapping[str, object] = MappingProxyType({}),
) -> Counter[int]:
    """Returns how often each number was copied, once all are. The numbers are 0, 1, 2, ... without a gap if none was
    lost. Asserts that neither the producer nor the query saw an error."""
    source, sink = topics
    orders = Orders(servers, source, of_producer)
    query = begun(
        reader(spark.readStream, servers, source, connector)
        .load()
        .select("key", "value")
        .writeStream.format(connector)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", sink)
        .option("checkpointLocation", str(checkpoint))
    )
    try:
        with at_work([orders]):
            wait_for_a_commit(servers, sink, partitions, WITHIN_S)
            meanwhile()

        def done() -> bool:
            assert query.exception() is None, query.exception()
            return len(committed(servers, sink, partitions)) >= orders.sent

        eventually(done, within_s=WITHIN_S, what="all rows")
    finally:
        query.stop()
    print(f"{orders.sent} records, slowest acknowledgement {orders.longest_wait_s:.2f} s")
    assert orders.errors == []
    copied = Counter(json.loads(text)["n"] for text in values(committed(servers, sink, partitions)))
    assert set(copied) == set(range(orders.sent))
    return copied
