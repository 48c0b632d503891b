"""The client of the benchmarks does what its figures claim: members share a topic, commits and transactions arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks import consumers, load
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
    settings = {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 200}
    with Broker(settings=settings) as broker:
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


@pytest.mark.parametrize(("protocol", "members"), [("classic", 2), ("consumer", 1), ("consumer", 3)])
def test_real_consumers_settle_too(broker: Broker, protocol: str, members: int) -> None:
    done = consumers.start(
        broker.bootstrap_servers,
        "shared",
        group=f"real-{protocol}-{members}",
        protocol=protocol,
        members=members,
        partitions=PARTITIONS,
        changes=1,
        heartbeat_ms=200,
    ).result(300)
    assert done.messages == 2
    assert len(done.fields["joining_ms"]) == len(done.fields["leaving_ms"]) == 1
    assert min(done.latency_us("joining_p50"), done.latency_us("leaving_p50")) > 0


def partitions(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("shared", number) for number in numbers]


def test_a_group_has_settled_when_all_is_shared_evenly_by_who_is_there() -> None:
    shares = consumers.Shares(5)
    shares.expect({0, 1})
    shares.given(0, partitions(0, 1, 2, 3))
    assert shares.settled_at_s() is None, "one is without an owner"
    shares.given(1, partitions(4))
    assert shares.settled_at_s() is None, "four and one is not even"
    shares.taken(0, partitions(3))
    shares.given(1, partitions(3))
    assert shares.settled_at_s() is not None
    shares.expect({0})
    assert shares.settled_at_s() is None, "who left still has something"


def test_a_partition_that_two_have_at_once_is_an_error() -> None:
    shares = consumers.Shares(2)
    shares.expect({0, 1})
    shares.given(0, partitions(0))
    shares.given(1, partitions(0))
    with pytest.raises(consumers.NotSettled, match="partition 0 went to 1 while 0 had it"):
        shares.settled_at_s()


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
