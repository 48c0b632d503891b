"""The client of the benchmarks does what its figures claim: members share a topic, commits and transactions arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks import load
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.embedded import Broker

PARTITIONS = 12


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    try:
        load.binary()
    except load.LoadUnavailable as reason:
        pytest.skip(str(reason))
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("shared", PARTITIONS)])["shared"].result(60)
        yield broker


def run(broker: Broker, mode: str, **flags: Any) -> load.LoadResult:
    return load.start(mode, broker.bootstrap_servers, "shared", timeout=60, **flags).result(120)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("members", [1, 5])
def test_members_settle_again_whenever_one_joins_or_leaves(broker: Broker, protocol: str, members: int) -> None:
    done = run(
        broker,
        "members",
        group=f"{protocol}-{members}",
        protocol=protocol,
        members=members,
        partitions=PARTITIONS,
        messages=3,
    )
    assert done.messages == 3
    assert done.latency_us("p50") > 0
    # The one who joins needs two requests, everybody else three, in the classic protocol; one and one in the other.
    least = members if protocol == "consumer" else 3 * (members - 1)
    assert float(done.fields["requests_per_rebalance"]) >= least


def test_consumers_of_librdkafka_settle_too(broker: Broker) -> None:
    done = run(broker, "consumers", group="real", members=2, partitions=PARTITIONS, messages=1)
    assert done.latency_us("leaving_p50") > 0


@pytest.mark.parametrize("in_flight", [1, 20])
def test_commits_are_there_in_the_end(broker: Broker, in_flight: int) -> None:
    done = run(broker, "commits", group=f"positions-{in_flight}", in_flight=in_flight, messages=100)
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"positions-{in_flight}"})
    (found,) = reader.committed([TopicPartition("shared", 0)], timeout=60)
    reader.close()
    assert found.offset >= done.messages >= 100


def test_transactions_are_counted_and_seen_when_they_are_committed(broker: Broker) -> None:
    many = run(broker, "transactions", group="many", producers=2, partitions=2, per_transaction=3, seconds=0.3)
    assert many.messages == 3 * int(many.fields["transactions"]) > 0
    seen = run(broker, "committed", group="seen", rate=20, seconds=0.5, size=100)
    assert seen.messages == 10
    assert seen.latency_us("p99") > 0
