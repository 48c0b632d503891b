"""A heartbeat is answered when there is news, and never later than a quarter of the session."""

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import Connection, Exchange
from simulation.world.world import World
from tests.moments import at
from tests.unit.node.speaking import create_topic, error

from cordwood.wire.apis import ApiKey

SESSION_MS = 20_000
HOLD_MS = 2900
DEFAULT_INTERVAL_MS = 3000
"""heartbeat.interval.ms of the clients."""
JAVA = "apache-kafka-java"


@pytest.fixture
def ready() -> Iterator[World]:
    """A node with its coordinator."""
    world = World(seed=3, settings={"group.initial.rebalance.delay.ms": "0"}).start()
    create_topic(world)
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    yield world
    world.kill()


class Member:
    """Speaks the classic protocol on a connection of its own."""

    def __init__(self, world: World, software: str = JAVA, session_ms: int = SESSION_MS) -> None:
        self.world = world
        self.connection: Connection = world.connect()
        self.session_ms = session_ms
        self.member_id, self.generation = "", -1
        said = {"client_software_name": software, "client_software_version": "1"}
        self.ask(ApiKey.API_VERSIONS, 3, **said)

    def begin(self, key: ApiKey, version: int, **values: Any) -> Exchange:
        exchange = self.connection.request(key, version, values)
        self.world.settle()
        return exchange

    def ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        exchange = self.begin(key, version, **values)
        assert exchange.answered
        return exchange.answer

    def begin_to_join(self, version: int = 3) -> Exchange:
        return self.begin(
            ApiKey.JOIN_GROUP,
            version,
            group_id="g",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=5000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )

    def joined(self, exchange: Exchange) -> None:
        """The round is over; a leader brings assignments."""
        assert exchange.answered
        self.member_id, self.generation = exchange.answer.member_id, exchange.answer.generation_id
        shares = [{"member_id": each.member_id, "assignment": b"share"} for each in exchange.answer.members]
        self.ask(ApiKey.SYNC_GROUP, 1, **self.who(), assignments=shares)

    def begin_heartbeat(self) -> Exchange:
        return self.begin(ApiKey.HEARTBEAT, 1, **self.who())

    def who(self) -> dict[str, Any]:
        return {"group_id": "g", "generation_id": self.generation, "member_id": self.member_id}


def alone(world: World, **options: Any) -> Member:
    member = Member(world, **options)
    member.joined(member.begin_to_join())
    return member


def code(exchange: Exchange) -> str:
    assert exchange.answered, exchange.state
    return error(exchange.answer.error_code)


def state_of_group(world: World) -> str:
    return str(world.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=["g"]).groups[0].group_state)


def test_a_member_hears_of_a_round_when_it_begins(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    ready.advance(HOLD_MS // 2)
    assert not waiting.ended
    Member(ready).begin_to_join()
    assert code(waiting) == "REBALANCE_IN_PROGRESS"


def test_a_newcomer_that_is_only_given_its_id_is_no_news(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    newcomer = Member(ready)
    asked = newcomer.begin_to_join(version=4)
    assert code(asked) == "MEMBER_ID_REQUIRED"
    assert not waiting.ended
    newcomer.member_id = asked.answer.member_id
    newcomer.begin_to_join(version=4)
    assert code(waiting) == "REBALANCE_IN_PROGRESS"


def test_without_news_it_is_answered_after_a_while(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    ready.advance(HOLD_MS - 1)
    assert not waiting.ended
    ready.advance(1)
    assert code(waiting) == "NONE"


def test_the_answer_is_there_before_the_next_heartbeat_is_due(ready: World) -> None:
    """librdkafka would leave that one out, and nobody could tell the member anything for another interval."""
    waiting = alone(ready, software="librdkafka").begin_heartbeat()
    ready.advance(DEFAULT_INTERVAL_MS - 50)
    assert code(waiting) == "NONE"


def test_the_while_is_short_beside_the_session(ready: World) -> None:
    member = alone(ready, session_ms=6000)
    waiting = member.begin_heartbeat()
    ready.advance(1500)
    assert code(waiting) == "NONE"


def test_another_request_of_the_connection_does_not_wait_behind_it(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    member.ask(ApiKey.METADATA, 5, topics=[])
    assert code(waiting) == "NONE"
    first, second = member.begin_heartbeat(), member.begin_heartbeat()
    assert code(first) == "NONE"
    assert not second.ended


@pytest.mark.parametrize("software", ["kafkajs", "sarama", "kafka-python"])
def test_clients_that_may_wait_for_it_are_answered_at_once(ready: World, software: str) -> None:
    assert code(alone(ready, software=software).begin_heartbeat()) == "NONE"


def test_it_can_be_switched_off() -> None:
    settings = {"group.heartbeat.hold.ms": "0", "group.initial.rebalance.delay.ms": "0"}
    world = World(seed=4, settings=settings).start()
    world.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)
    assert code(alone(world).begin_heartbeat()) == "NONE"
    world.kill()


def test_a_heartbeat_that_is_held_lengthens_no_session(ready: World) -> None:
    member = alone(ready)
    member.begin_heartbeat()
    ready.advance(SESSION_MS - 1)
    assert state_of_group(ready) == "Stable"
    ready.advance(1)
    assert state_of_group(ready) == "Empty"


def test_a_member_that_is_taken_out_meanwhile_is_told(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    leaving = [{"member_id": member.member_id, "group_instance_id": None}]
    ready.ask(ApiKey.LEAVE_GROUP, 3, group_id="g", members=leaving)
    assert code(waiting) == "UNKNOWN_MEMBER_ID"


def test_nothing_is_kept_of_connections_that_are_gone(ready: World) -> None:
    member = alone(ready)
    member.begin_heartbeat()
    member.connection.close()
    ready.settle()
    assert [shard.held for shard in ready.node.groups.shards.log.loaded_shards()] == [{}]
    assert ready.node.held_heartbeats._patient == set()
    assert (ready.node.parked.by_connection, ready.node.parked.giving_way) == ({}, {})


def test_a_broker_that_stops_answers_all_and_keeps_nobody_waiting(ready: World) -> None:
    member = alone(ready)
    waiting = member.begin_heartbeat()
    ready.node.stop_waiting(at(ready.clock.wall_ms))
    ready.settle()
    assert code(waiting) == "NONE"
    assert code(member.begin_heartbeat()) == "NONE"


@pytest.mark.parametrize("by_ms", [-60_000, 60_000])
def test_a_session_lasts_as_long_if_the_clock_is_set_while_its_heartbeat_waits_for_the_coordinator(
    ready: World, by_ms: int
) -> None:
    member = alone(ready)
    ready.kill()
    ready.start()
    member.connection = ready.connect()
    waiting = member.connection.request(ApiKey.HEARTBEAT, 1, member.who())
    ready.do(next(step for name, step in ready.steps() if name == "request"))
    assert not waiting.ended
    ready.clock.jump(by_ms)
    ready.settle()
    assert code(waiting) == "NONE"
    ready.advance(SESSION_MS - 1)
    assert state_of_group(ready) == "Stable"
    ready.advance(1)
    assert state_of_group(ready) == "Empty"
