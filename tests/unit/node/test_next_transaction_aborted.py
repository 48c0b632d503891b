"""A client of version 1 aborts a transaction that has nothing in it: the last one is not complete yet, or the topic of
the new one is deleted."""

from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.speaking import error
from tests.unit.node.test_transactions_over_brokers import (
    AWAY,
    HOME,
    LATE_CLIENT,
    TOPIC,
    Producer,
    produced,
    state,
    world,
)

from cordwood.model.errors import ErrorCode
from cordwood.node.coordinators.transaction_completion import PATIENCE_MS
from cordwood.transactions.next_begun import MOST, NextBegun
from cordwood.wire.apis import ApiKey

__all__ = ["world"]


class Client:
    """A producer whose requests to its coordinator go over one connection, until it connects anew."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._producer = Producer(world)
        self._sequence = 0
        self.connect()

    def connect(self) -> None:
        self._connection = self._world.connect(HOME)

    def _ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        exchange = self._connection.request(key, version, values)
        self._world.advance(2 * PATIENCE_MS)
        return exchange.answer

    def add(self, topic: str = TOPIC) -> str:
        who = {f"v3_and_below_{name}": value for name, value in self._producer.who.items()}
        topics = [{"name": topic, "partitions": [0]}]
        answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **who, v3_and_below_topics=topics)
        return error(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def write(self) -> str:
        exchange = self._producer.begin_write(b"v", 0, AWAY, LATE_CLIENT, self._sequence)
        self._sequence += 1
        self._world.settle()
        return produced(exchange)

    def end(self, *, commit: bool) -> str:
        return error(self._ask(ApiKey.END_TXN, 3, **self._producer.who, committed=commit).error_code)


@pytest.fixture
def client(world: World) -> Client:
    """Its transaction is committed, and lacks the marker of a broker that is away."""
    client = Client(world)
    assert client.add() == client.write() == "NONE"
    world.machine_of(AWAY).kill()
    assert client.end(commit=True) == "NONE"
    assert state(world) == "PrepareCommit"
    return client


def complete(world: World) -> None:
    world.machine_of(AWAY).start()
    world.advance(60_000)
    assert state(world) == "CompleteCommit"


def test_the_abort_waits_and_succeeds_and_the_client_goes_on(world: World, client: Client) -> None:
    assert client.add() == "CONCURRENT_TRANSACTIONS"
    assert client.end(commit=False) == "CONCURRENT_TRANSACTIONS"
    complete(world)
    assert client.end(commit=False) == "NONE"
    assert state(world) == "CompleteCommit", "what was committed stays committed"
    assert client.add() == client.write() == client.end(commit=False) == "NONE"


def test_the_abort_of_a_transaction_whose_commit_was_asked_for_is_refused(world: World, client: Client) -> None:
    assert client.end(commit=False) == "INVALID_TXN_STATE"
    complete(world)
    assert client.end(commit=False) == "INVALID_TXN_STATE"


def test_a_request_on_another_connection_proves_nothing(world: World, client: Client) -> None:
    client.connect()
    assert client.add() == "CONCURRENT_TRANSACTIONS"
    assert client.end(commit=False) == "INVALID_TXN_STATE"


def test_a_commit_of_the_next_transaction_repeats_the_last_one_while_nothing_is_in_it(
    world: World, client: Client
) -> None:
    assert client.add() == "CONCURRENT_TRANSACTIONS"
    complete(world)
    assert client.end(commit=True) == "NONE"


def test_a_transaction_that_has_partitions_is_aborted_as_ever(world: World, client: Client) -> None:
    assert client.add() == "CONCURRENT_TRANSACTIONS"
    complete(world)
    assert client.add() == client.write() == client.end(commit=True) == "NONE"
    assert client.end(commit=False) == ErrorCode.INVALID_TXN_STATE.name


def test_a_client_that_was_refused_a_deleted_topic_aborts_and_goes_on(world: World, client: Client) -> None:
    complete(world)
    assert client.add("deleted") == "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.end(commit=False) == "NONE"
    assert state(world) == "CompleteCommit", "what was committed stays committed"
    assert client.add() == client.write() == client.end(commit=True) == "NONE"


def test_no_more_than_so_many_clients_are_kept_in_mind() -> None:
    next_begun = NextBegun()
    for number in range(MOST + 10):
        next_begun.decided(f"t{number}", number)
        next_begun.refused_to_add(f"t{number}", number)
    assert "t9" not in next_begun
    assert f"t{MOST + 9}" in next_begun
