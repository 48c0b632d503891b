"""Rights that are taken away while requests wait: nothing more is read or written, and sessions keep their owners."""

from __future__ import annotations

from typing import Any

import pytest
from simulation.world.exchange import EVERYBODY, Connection
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, fetch_values, only, produce_values

from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import ApiKey

READ = Acl(ResourceKind.TOPIC, Pattern.LITERAL, "orders", "User:alice", EVERYTHING, Operation.READ, Permission.ALLOW)
JOIN = READ._replace(kind=ResourceKind.GROUP, name="g")
WRITE = READ._replace(operation=Operation.WRITE)


@pytest.fixture
def judged(world: World) -> World:
    create_topic(world)
    rules = world.node.access.rules = AccessRules()
    rules.add(READ)
    rules.add(WRITE)
    return world


def connected(world: World, user: str = "alice") -> Connection:
    connection = world.connect()
    connection.session = Session(EVERYBODY, "10.0.0.1", Principal("User", user))
    return connection


def arrive(world: World) -> None:
    """Lets requests arrive and be handled; disks, threads and the metadata store do nothing."""
    while arriving := [step for name, step in world.steps() if name in ("request", "turn")]:
        world.do(arriving[0])


def waiting_fetch(world: World, **options: Any) -> Any:
    values = fetch_values(("orders", 0, 0), max_wait_ms=60_000, **options)
    exchange = connected(world).request(ApiKey.FETCH, 12, values)
    world.settle()
    assert not exchange.answered
    return exchange


def write(world: World, value: bytes = b"value") -> int:
    exchange = connected(world).request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world, value)))
    world.settle()
    return int(exchange.answer.responses[0].partition_responses[0].error_code)


def test_a_waiting_fetch_gets_no_record_that_came_after_its_right_was_taken_away(judged: World) -> None:
    fetch = waiting_fetch(judged)
    judged.node.access.rules.remove(READ)  # type: ignore[union-attr]
    assert write(judged) == ErrorCode.NONE
    part = only(fetch.answer)
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not part.records


def test_missing_rights_are_counted(judged: World) -> None:
    rules = judged.node.access.rules
    assert rules is not None
    assert write(judged) == ErrorCode.NONE
    assert not rules.refused
    rules.remove(WRITE)
    assert write(judged) == write(judged) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rules.refused == {(Operation.WRITE, ResourceKind.TOPIC): 2}


def test_a_produce_that_waits_for_its_preparation_writes_nothing_after_its_right_was_taken_away(world: World) -> None:
    create_topic(world, compression_type="zstd")
    rules = world.node.access.rules = AccessRules()
    rules.add(WRITE)
    exchange = connected(world).request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world)))
    arrive(world)
    assert not exchange.answered, "a thread compresses the batch"
    rules.remove(WRITE)
    world.settle()
    part = exchange.answer.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.node.hosted.leader("orders", 0).log.offsets.end == 0


def test_a_waiting_fetch_loses_the_records_that_it_had_found_before(judged: World) -> None:
    fetch = waiting_fetch(judged, min_bytes=1 << 20)
    assert write(judged) == ErrorCode.NONE
    judged.node.access.rules.remove(READ)  # type: ignore[union-attr]
    judged.advance(60_000)
    part = only(fetch.answer)
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not part.records


def test_a_right_to_another_topic_that_is_taken_away_changes_nothing_for_a_waiting_fetch(judged: World) -> None:
    fetch = waiting_fetch(judged)
    judged.node.access.rules.add(READ._replace(name="other"))  # type: ignore[union-attr]
    assert write(judged) == ErrorCode.NONE
    assert only(fetch.answer).records


def member_request(judged: World, key: ApiKey, version: int, user: str = "alice", **values: Any) -> Any:
    exchange = connected(judged, user).request(key, version, {"group_id": "g", **values})
    judged.settle()
    return exchange


def join(judged: World, user: str = "alice", **values: Any) -> Any:
    asked = {
        "session_timeout_ms": 20_000,
        "rebalance_timeout_ms": 5_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics of " + user.encode()}],
    }
    return member_request(judged, ApiKey.JOIN_GROUP, 3, user, **{**asked, **values})


def groups_of(judged: World, *users: str) -> AccessRules:
    rules = judged.node.access.rules
    assert rules is not None
    for user in users:
        rules.add(JOIN._replace(principal=f"User:{user}"))
    return rules


def test_a_join_that_waits_tells_nothing_of_other_members_after_its_right_was_taken_away(judged: World) -> None:
    rules = groups_of(judged, "alice", "bob")
    first, second = join(judged), join(judged, "bob")
    assert not first.ended
    assert not second.ended
    rules.remove(JOIN)
    judged.advance(5_000)
    assert first.answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not first.answer.members
    assert second.answer.error_code == ErrorCode.NONE


def test_a_sync_that_waits_brings_no_assignment_after_its_right_was_taken_away(judged: World) -> None:
    rules = groups_of(judged, "alice", "bob")
    exchanges = {"alice": join(judged), "bob": join(judged, "bob")}
    judged.advance(5_000)
    answers = {user: exchange.answer for user, exchange in exchanges.items()}
    leader = answers["alice"].leader
    (follower,) = [user for user, answer in answers.items() if answer.member_id != leader]
    (leading,) = answers.keys() - {follower}

    def sync(user: str, *shares: dict[str, Any]) -> Any:
        who = {"generation_id": answers[user].generation_id, "member_id": answers[user].member_id}
        return member_request(judged, ApiKey.SYNC_GROUP, 1, user, **who, assignments=list(shares))

    waiting = sync(follower)
    assert not waiting.ended
    rules.remove(JOIN._replace(principal=f"User:{follower}"))
    sync(leading, {"member_id": answers[follower].member_id, "assignment": b"a share"})
    assert waiting.answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not waiting.answer.assignment


def test_a_held_heartbeat_is_judged_again_when_it_is_answered(judged: World) -> None:
    rules = groups_of(judged, "alice")
    joining = join(judged)
    judged.advance(5_000)
    joined = joining.answer
    who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    synced = member_request(judged, ApiKey.SYNC_GROUP, 1, **who, assignments=[])
    assert synced.answer.error_code == ErrorCode.NONE
    connection = connected(judged)
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "1"}
    connection.request(ApiKey.API_VERSIONS, 3, software)
    held = connection.request(ApiKey.HEARTBEAT, 1, who)
    judged.settle()
    assert not held.ended
    rules.remove(JOIN)
    judged.advance(3_000)
    assert held.answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_fetch_session_belongs_to_its_principal(judged: World) -> None:
    begun = connected(judged).request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), session_epoch=0))
    judged.settle()
    session_id = begun.answer.session_id
    assert session_id
    rules = judged.node.access.rules
    assert rules is not None
    rules.add(READ._replace(principal="User:bob"))

    def go_on(user: str, epoch: int) -> Any:
        values = fetch_values(session_id=session_id, session_epoch=epoch)
        exchange = connected(judged, user).request(ApiKey.FETCH, 12, values)
        judged.settle()
        return exchange.answer.error_code

    assert go_on("bob", 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on("bob", -1) == ErrorCode.NONE, "an end of no session of his own"
    assert go_on("alice", 1) == ErrorCode.NONE


def test_whoever_waits_for_a_coordinator_is_judged_again(judged: World) -> None:
    rules = groups_of(judged, "alice")
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    exchange = connected(judged).request(ApiKey.FIND_COORDINATOR, 4, asked)
    arrive(judged)
    assert not exchange.answered, "the topic of positions is being made"
    rules.remove(JOIN)
    judged.settle()
    (found,) = exchange.answer.coordinators
    assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert found.node_id == -1


def test_positions_that_wait_to_be_committed_are_told_to_nobody_whose_right_was_taken_away(judged: World) -> None:
    rules = groups_of(judged, "alice")
    connection = connected(judged)
    connection.request(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    judged.settle()
    position = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    committed = {"group_id": "g", "topics": [{"name": "orders", "partitions": [position]}]}
    connection.request(ApiKey.OFFSET_COMMIT, 8, committed)
    asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    exchange = connected(judged).request(ApiKey.OFFSET_FETCH, 7, asked)
    arrive(judged)
    assert not exchange.answered, "the position is not on the disk"
    rules.remove(JOIN)
    judged.settle()
    assert exchange.answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not exchange.answer.topics
