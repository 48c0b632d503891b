"""Quotas of clients over the wire: kept, described, and held to by throttle times and pauses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from simulation.world.exchange import EVERYBODY, Exchange
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, error, fetch_values, fill, produce_values

from cordwood.model.quotas import QuotaKey
from cordwood.node.apis import SERVED
from cordwood.node.quotas.allowance import LONGEST_MS
from cordwood.node.quotas.allowances import MOST
from cordwood.node.quotas.throttle_times import with_throttle_time
from cordwood.security.sessions import OF_THIS_BROKER, Principal, Session
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import load
from cordwood.wire.requests import RequestHeader, encode_response

EXACT, DEFAULT, SPECIFIED = range(3)
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
BURST_S = 10
Whom = Mapping[str, str | None]


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1).start()
    create_topic(world)
    yield world
    world.kill()


def entity(whom: Whom) -> list[dict[str, Any]]:
    return [{"entity_type": of, "entity_name": name} for of, name in whom.items()]


def change(whom: Whom, **quotas: float | None) -> dict[str, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    return {"entity": entity(whom), "ops": ops}


def alter(world: World, *changes: dict[str, Any], validate_only: bool = False) -> list[str]:
    answer = world.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=list(changes), validate_only=validate_only)
    return [error(each.error_code) for each in answer.entries]


def described(world: World, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    asked = [{"entity_type": of, "match_type": how, "match": match} for of, how, match in components]
    answer = world.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=strict)
    if answer.entries is None:
        return [error(answer.error_code)]
    found = [
        (
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)


def request_as(world: World, user: str, key: ApiKey, version: int, values: dict[str, Any]) -> Exchange:
    connection = world.connect()
    connection.session = session_of(user)
    exchange = connection.request(key, version, values)
    world.settle()
    return exchange


def session_of(user: str) -> Session:
    return Session(EVERYBODY, "10.0.0.1", Principal("User", user))


def produce_as(world: World, user: str, size: int = 1000, version: int = 9, acks: int = -1) -> Exchange:
    batch = batch_of(world, b"v" * size)
    return request_as(world, user, ApiKey.PRODUCE, version, produce_values("orders", batch, acks=acks))


def fetch_as(world: World, user: str, version: int = 11, **options: Any) -> Exchange:
    return request_as(world, user, ApiKey.FETCH, version, fetch_values(("orders", 0, 0), **options))


def test_quotas_are_kept_changed_and_removed(world: World) -> None:
    alice, default = {"user": "alice"}, {"user": None, "client-id": None}
    assert alter(world, change(alice, **{PRODUCE: 1000, FETCH: 2000}), change(default, **{FETCH: 5})) == ["NONE"] * 2
    kept = [
        ((("client-id", None), ("user", None)), {FETCH: 5.0}),
        ((("user", "alice"),), {PRODUCE: 1000.0, FETCH: 2000.0}),
    ]
    assert described(world) == kept
    assert alter(world, change(alice, **{PRODUCE: None, FETCH: 3000})) == ["NONE"]
    assert described(world, ("user", EXACT, "alice")) == [((("user", "alice"),), {FETCH: 3000.0})]
    assert alter(world, change(alice, **{FETCH: None}), change(default, **{FETCH: None})) == ["NONE"] * 2
    assert described(world) == []
    assert alter(world, change(alice, **{FETCH: None})) == ["NONE"], "as Kafka: nothing is left to remove"


def test_a_dry_run_changes_nothing(world: World) -> None:
    assert alter(world, change({"user": "alice"}, **{PRODUCE: 1000}), validate_only=True) == ["NONE"]
    assert alter(world, change({"user": "alice"}, **{PRODUCE: -1}), validate_only=True) == ["INVALID_REQUEST"]
    assert described(world) == []


def test_filters_select_by_name_by_default_and_by_what_an_entity_has(world: World) -> None:
    both, user, client = {"user": "alice", "client-id": "app"}, {"user": "alice"}, {"client-id": None}
    alter(world, *(change(whom, **{PRODUCE: 1000}) for whom in (both, user, client)))

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[Whom]:
        return [dict(parts) for parts, _ in described(world, *components, strict=strict)]

    assert found(("user", EXACT, "alice")) == [both, user]
    assert found(("user", EXACT, "alice"), strict=True) == [user]
    assert found(("user", SPECIFIED, None), ("client-id", SPECIFIED, None), strict=True) == [both]
    assert found(("client-id", DEFAULT, None)) == [client]
    assert found(("client-id", SPECIFIED, None)) == [both, client]
    assert found(("ip", SPECIFIED, None)) == []


@pytest.mark.parametrize(
    "components",
    [
        [("user", EXACT, None)],
        [("user", DEFAULT, "alice")],
        [("user", 9, None)],
        [("user", EXACT, "alice"), ("user", SPECIFIED, None)],
        [("ip", EXACT, "10.0.0.1"), ("user", SPECIFIED, None)],
    ],
)
def test_filters_without_a_meaning_are_refused(world: World, components: list[tuple[str, int, str | None]]) -> None:
    assert described(world, *components) == ["INVALID_REQUEST"]


def test_what_cannot_be_is_refused_entry_by_entry(world: World) -> None:
    good = change({"user": "alice"}, **{PRODUCE: 1000})
    twice = change({"user": "bob"}, **{PRODUCE: 1000})
    answers = alter(world, good, change({"group": "g"}, **{PRODUCE: 1}), change({"user": "carol"}, x=1), twice, twice)
    assert answers == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST", "NONE", "INVALID_REQUEST"]
    assert len(described(world)) == 2


def test_quotas_outlive_the_broker(world: World) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    world.kill()
    world.start()
    assert described(world) == [((("user", "alice"),), {PRODUCE: 1000.0})]
    assert world.node.quotas.on


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11, 12])
def test_a_producer_over_its_quota_is_answered_told_and_paused(world: World, version: int) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    first = produce_as(world, "alice", 9_000, version)
    assert (first.answer.throttle_time_ms, first.paused_ms) == (0, 0), "ten seconds' worth may be used at once"
    second = produce_as(world, "alice", 3_000, version)
    assert error(second.answer.responses[0].partition_responses[0].error_code) == "NONE"
    assert 2_000 < second.paused_ms < 2_500
    assert second.answer.throttle_time_ms == second.paused_ms
    assert second.replied_ms == second.handled_ms, "the answer leaves at once"
    assert produce_as(world, "bob", 100_000, version).paused_ms == 0


def test_a_producer_without_acknowledgements_is_paused_as_well(world: World) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    assert 4_000 < produce_as(world, "alice", 14_000, acks=0).paused_ms < 4_500


def test_who_waits_as_told_is_free_again_and_nobody_waits_for_ever(world: World) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    paused_ms = produce_as(world, "alice", 12_000).paused_ms
    world.advance(paused_ms)
    assert produce_as(world, "alice", 1).paused_ms < 300
    assert produce_as(world, "alice", 500_000).paused_ms == LONGEST_MS


def test_a_default_is_a_quota_for_each_and_a_users_is_one_for_all_its_clients(world: World) -> None:
    alter(world, change({"user": None}, **{PRODUCE: 1000}))
    produce_as(world, "alice", 20_000)
    assert produce_as(world, "bob", 5_000).paused_ms == 0
    assert produce_as(world, "alice", 1).paused_ms > 0


def test_a_new_rate_holds_at_once_and_a_removed_one_no_more(world: World) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    assert produce_as(world, "alice", 12_000).paused_ms > 2_000
    alter(world, change({"user": "alice"}, **{PRODUCE: 1_000_000}))
    assert 2_000 < produce_as(world, "alice", 1_000).paused_ms < 2_500, "what was used stays counted"
    alter(world, change({"user": "alice"}, **{PRODUCE: None}))
    assert produce_as(world, "alice", 100_000).paused_ms == 0
    assert not world.node.quotas.on


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_consumer_gets_what_its_quota_allows_and_is_paused_behind_it(world: World, version: int) -> None:
    fill(world, "orders", *(bytes(1_000) for _ in range(30)))
    alter(world, change({"user": "alice"}, **{FETCH: 1000}))
    first = fetch_as(world, "alice", version)
    assert 9_000 < _bytes_in(first) <= 10_000, "no more is read than the quota allows at once"
    assert first.paused_ms < 500
    second = fetch_as(world, "alice", version)
    assert 0 < _bytes_in(second) < 2_500
    assert 500 < second.paused_ms < 2_500
    assert second.answer.throttle_time_ms == second.paused_ms
    assert _bytes_in(fetch_as(world, "bob", version)) > 30_000


def test_a_batch_larger_than_the_quota_gets_through(world: World) -> None:
    fill(world, "orders", bytes(50_000))
    alter(world, change({"user": "alice"}, **{FETCH: 1000}))
    fetched = fetch_as(world, "alice")
    assert _bytes_in(fetched) > 50_000
    assert fetched.paused_ms == LONGEST_MS


def test_a_quota_of_a_user_bounds_no_broker(world: World) -> None:
    alter(world, change({"user": None}, **{PRODUCE: 1, FETCH: 1}))
    connection = world.connect()
    connection.session = OF_THIS_BROKER
    exchange = connection.request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world, bytes(1000))))
    world.settle()
    assert exchange.paused_ms == 0


def test_names_that_clients_make_up_are_bounded_and_share_what_is_left(world: World) -> None:
    alter(world, change({"user": None}, **{PRODUCE: 10_000}))
    quotas = world.node.quotas
    for number in range(MOST):
        quotas._find(f"user-{number}", "").produce.use(1, world.clock.boot_ms)  # type: ignore[union-attr]
    assert produce_as(world, "newcomer-1", 90_000).paused_ms == 0
    assert produce_as(world, "newcomer-2", 30_000).paused_ms > 0, "newcomers share one allowance"
    assert produce_as(world, "user-7", 1_000).paused_ms == 0, "and take nothing of the others'"
    assert len(quotas._allowances) == MOST
    world.advance(BURST_S * 1000 + LONGEST_MS)
    assert produce_as(world, "newcomer-3", 1_000).paused_ms == 0
    assert len(quotas._allowances) < 10
    assert not quotas._allowances.crowded


def test_a_client_over_its_part_of_the_loops_time_is_held_back_for_a_window_at_most(world: World) -> None:
    alter(world, change({"user": "alice"}, request_percentage=10))
    assert world.node.quotas.counts_time
    assert produce_as(world, "alice").paused_ms == 0
    header, session = RequestHeader(ApiKey.METADATA, 9, 1, "simulated", 0), session_of("alice")
    # Ten windows' worth may be used at once: a second of the loop.
    world.node.quotas.spent(header, session, 1_050)
    asked = request_as(world, "alice", ApiKey.METADATA, 9, {"topics": []})
    assert 400 < asked.paused_ms <= 500
    assert asked.answer.throttle_time_ms == asked.paused_ms
    world.node.quotas.spent(header, session, 60_000)
    assert fetch_as(world, "alice").paused_ms == 1_000, "as with Kafka: one window at most"
    assert produce_as(world, "bob").paused_ms == 0
    alter(world, change({"user": "alice"}, request_percentage=None))
    assert not world.node.quotas.counts_time


def test_an_answer_without_a_place_for_the_time_is_sent_as_it_is(world: World) -> None:
    alter(world, change({"user": "alice"}, request_percentage=1))
    header = RequestHeader(ApiKey.METADATA, 9, 1, "simulated", 0)
    world.node.quotas.spent(header, session_of("alice"), 60_000)
    for version in range(5):
        asked = request_as(
            world, "alice", ApiKey.API_VERSIONS, version, {"client_software_name": "a", "client_software_version": "1"}
        )
        assert error(asked.answer.error_code) == "NONE"
        assert asked.paused_ms == 1_000


def test_the_time_at_the_end_of_an_answer_in_parts_is_in_its_last_part() -> None:
    header = RequestHeader(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, 5, None, 0)
    whole = encode_response(header, {"error_code": 0, "tokens": [], "throttle_time_ms": 0})
    told = with_throttle_time(header, [whole[:9], whole[9:]], 1234)
    assert told == [whole[:9], encode_response(header, {"throttle_time_ms": 1234})[9:]]


@pytest.mark.parametrize("key", sorted(set(SERVED) - {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}))
def test_the_time_is_told_in_every_version_of_every_answer_that_has_a_place_for_it(key: int) -> None:
    body = load(APIS[key].name)["response"].body
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1):
        header = RequestHeader(key, version, 5, None, 0)
        values = {"throttle_time_ms": 0} if any(field.name == "throttle_time_ms" for field in body.fields) else {}
        frame = encode_response(header, values)
        told = with_throttle_time(header, frame, 1234)
        assert isinstance(told, bytes)
        names = [field.name for field in body.fields if version in field.versions and field.tag is None]
        if "throttle_time_ms" in names and key != ApiKey.API_VERSIONS:
            assert told == encode_response(header, {"throttle_time_ms": 1234})
        else:
            assert len(told) == len(frame)


def test_addresses_wait_for_their_turn_and_are_refused_beyond_it(world: World) -> None:
    alter(
        world, change({"ip": None}, connection_creation_rate=1), change({"ip": "10.0.0.2"}, connection_creation_rate=9)
    )
    addresses, now_ms = world.node.quotas.addresses, world.clock.boot_ms
    waits = [addresses.wait_ms("10.0.0.1", now_ms) for _ in range(25)]
    assert waits[:10] == [0] * 10, "ten seconds' worth may come at once"
    assert waits[10:20] == [1000 * number for number in range(1, 11)]
    assert waits[20] == 11_000
    assert waits[21:] == [None] * 4
    assert addresses.wait_ms("10.0.0.3", now_ms) == 0, "a default is a quota for each"
    assert [addresses.wait_ms("::ffff:10.0.0.2", now_ms) for _ in range(90)] == [0] * 90
    assert addresses.wait_ms("10.0.0.2", now_ms) != 0, "one address, however it is spelt"
    alter(world, change({"ip": None}, connection_creation_rate=None))
    assert addresses.wait_ms("10.0.0.1", now_ms) == 0
    assert not world.node.quotas.on, "no client has a quota"


@pytest.mark.parametrize("brokers", [1, 4])
def test_brokers_of_one_machine_divide_a_quota(brokers: int) -> None:
    world = World(1, {"quota.shared.by": str(brokers)}).start()
    create_topic(world)
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    assert (produce_as(world, "alice", 5_000).paused_ms > 0) == (brokers > 1)
    world.kill()


def test_a_quota_that_is_set_at_one_broker_reaches_the_others() -> None:
    world = World(1, machines=2).start()
    world.settle()
    entries = [change({"user": "alice"}, **{PRODUCE: 1000})]
    world.ask_at(1, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    world.settle()
    for broker_id in (1, 2):
        life = world.machine_of(broker_id).life
        assert life is not None
        assert life.node.quotas.on
    world.kill()


def test_throttles_are_counted(world: World) -> None:
    alter(world, change({"user": "alice"}, **{PRODUCE: 1000}))
    paused_ms = produce_as(world, "alice", 15_000).paused_ms
    counted = world.node.quotas.throttled[QuotaKey.PRODUCER_BYTE_RATE]
    assert (counted.times, counted.ms) == (1, paused_ms)


def _bytes_in(exchange: Exchange) -> int:
    return sum(len(each.records or b"") for topic in exchange.answer.responses for each in topic.partitions)
