"""DescribeAcls, CreateAcls, DeleteAcls over the wire: rules are kept, found by filters, and hold at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import EVERYBODY
from simulation.world.world import World
from tests.unit.node.speaking import batch_of, create_topic, error, produce_values

from cordwood.cluster.metadata.acls import decode_acl, encode_acl
from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER, principals_in
from cordwood.model.settings.listeners import Callers, Entrance
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import ApiKey

ANY, MATCH = 1, 2
READ = Acl(ResourceKind.TOPIC, Pattern.LITERAL, "orders", "User:alice", EVERYTHING, Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
TEAM = READ._replace(name="ord", pattern=Pattern.PREFIXED, principal="User:bob")
EVERYONE: dict[str, Any] = {
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "resource_type_filter": ANY,
    "pattern_type_filter": ANY,
    "operation": ANY,
    "permission_type": ANY,
}


@pytest.fixture
def judged() -> Iterator[World]:
    # The requests of `World.ask` come from User:ANONYMOUS.
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS; User:admin"}
    world = World(1, authorizer).start()
    create_topic(world)
    yield world
    world.kill()


def creation(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.kind,
        "resource_name": acl.name,
        "resource_pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def create(world: World, *acls: Acl) -> list[str]:
    answer = world.ask(ApiKey.CREATE_ACLS, 3, creations=[creation(acl) for acl in acls])
    return [error(each.error_code) for each in answer.results]


def described(world: World, **wanted: Any) -> set[Acl]:
    answer = world.ask(ApiKey.DESCRIBE_ACLS, 3, **EVERYONE | wanted)
    assert answer.error_code == 0, answer
    return {
        Acl(
            ResourceKind(resource.resource_type),
            Pattern(resource.pattern_type),
            resource.resource_name,
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    }


def produce_as(world: World, user: str) -> str:
    connection = world.connect()
    connection.session = Session(EVERYBODY, "10.0.0.1", Principal("User", user))
    exchange = connection.request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world)))
    world.settle()
    return error(exchange.answer.responses[0].partition_responses[0].error_code)


def test_rules_are_kept_once_and_found_by_filters(judged: World) -> None:
    assert create(judged, READ, WRITE, TEAM, READ) == ["NONE"] * 4
    assert described(judged) == {READ, WRITE, TEAM}
    assert described(judged, resource_name_filter="orders") == {READ, WRITE}
    assert described(judged, resource_name_filter="orders", pattern_type_filter=MATCH) == {READ, WRITE, TEAM}
    assert described(judged, pattern_type_filter=Pattern.PREFIXED) == {TEAM}
    assert described(judged, principal_filter="User:bob") == {TEAM}
    assert described(judged, operation=Operation.WRITE) == {WRITE}
    assert described(judged, resource_type_filter=ResourceKind.GROUP) == set()


def test_a_rule_holds_for_the_next_request_and_until_it_is_deleted(judged: World) -> None:
    assert produce_as(judged, "alice") == "TOPIC_AUTHORIZATION_FAILED"
    create(judged, WRITE)
    assert produce_as(judged, "alice") == "NONE"
    assert produce_as(judged, "bob") == "TOPIC_AUTHORIZATION_FAILED"
    assert produce_as(judged, "admin") == "NONE", "a super user"
    deleted = judged.ask(ApiKey.DELETE_ACLS, 3, filters=[EVERYONE | {"principal_filter": "User:alice"}, EVERYONE])
    assert [len(each.matching_acls) for each in deleted.filter_results] == [1, 1]
    assert produce_as(judged, "alice") == "TOPIC_AUTHORIZATION_FAILED"
    assert described(judged) == set()


def test_brokers_measure_how_late_they_hear_of_a_changed_rule() -> None:
    world = World(
        1, {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}, machines=2
    ).start()
    world.settle()
    for request in ({"creations": [creation(READ)]}, {"filters": [EVERYONE]}):
        key = ApiKey.CREATE_ACLS if "creations" in request else ApiKey.DELETE_ACLS
        world.ask_at(1, key, 3, **request)
        world.settle()
    for broker_id in (1, 2):
        life = world.machine_of(broker_id).life
        assert life is not None
        assert sum(life.node.access.lag.counts) == 2
        assert life.node.access.lag.sum_s < 1
    world.kill()


def test_rules_outlive_the_broker(judged: World) -> None:
    create(judged, WRITE)
    judged.kill()
    judged.start()
    assert described(judged) == {WRITE}
    assert produce_as(judged, "alice") == "NONE"


def test_a_rule_that_cannot_be_is_refused_beside_others_that_are_made(judged: World) -> None:
    wrong = READ._replace(principal="alice")
    assert create(judged, wrong, READ) == ["INVALID_REQUEST", "NONE"]
    answer = judged.ask(ApiKey.CREATE_ACLS, 3, creations=[creation(READ) | {"operation": 99}])
    assert "99" in (answer.results[0].error_message or "")
    unknown = judged.ask(ApiKey.DESCRIBE_ACLS, 3, **EVERYONE | {"resource_type_filter": 77})
    assert error(unknown.error_code) == "INVALID_REQUEST"
    assert described(judged) == {READ}


def test_those_without_rights_to_the_cluster_see_and_change_no_rule(judged: World) -> None:
    create(judged, READ)
    session = Session(EVERYBODY, "10.0.0.1", Principal("User", "alice"))
    for key, values in (
        (ApiKey.DESCRIBE_ACLS, EVERYONE),
        (ApiKey.CREATE_ACLS, {"creations": [creation(WRITE)]}),
        (ApiKey.DELETE_ACLS, {"filters": [EVERYONE]}),
    ):
        connection = judged.connect()
        connection.session = session
        exchange = connection.request(key, 3, values)
        judged.settle()
        assert "CLUSTER_AUTHORIZATION_FAILED" in str(exchange.answer) or "31" in str(exchange.answer)
    assert described(judged) == {READ}


def test_a_dry_run_refuses_nothing_and_says_once_what_it_would_refuse(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1, {"authorizer.class.name": STANDARD_AUTHORIZER, "authorizer.dry.run": "true"}).start()
    create_topic(world)
    with caplog.at_level(logging.WARNING):
        assert produce_as(world, "alice") == "NONE"
        assert produce_as(world, "alice") == "NONE"
    told = [record.getMessage() for record in caplog.records if "User:alice" in record.getMessage()]
    assert told == ["authorizer.dry.run: User:alice at 10.0.0.1 would be refused: Write of the topic 'orders'"]
    world.kill()


def test_a_dry_run_lets_no_client_pass_for_a_broker() -> None:
    world = World(1, {"authorizer.class.name": STANDARD_AUTHORIZER, "authorizer.dry.run": "true"}).start()
    connection = world.connect()
    clients = Entrance("CLIENTS", Callers.CLIENTS)
    connection.session = Session(clients, "10.0.0.1", Principal("User", "alice"))
    report = connection.request(ApiKey.WATCH_REPORT, 0, {"broker_id": 1, "broker_epoch": 1})
    verified = connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": []})
    world.settle()
    codes = {error(each.answer.error_code) for each in (report, verified)}
    assert codes == {"CLUSTER_AUTHORIZATION_FAILED"}
    world.kill()


def test_every_field_of_a_stored_rule_has_to_be_understood() -> None:
    assert decode_acl(encode_acl(READ)) == READ
    stored = encode_acl(READ)
    for damaged in (b"{}", stored[:-1] + b',"until":1}', stored.replace(b'"permission":3', b'"permission":9')):
        with pytest.raises(ValueError):
            decode_acl(damaged)


def test_super_users_are_divided_by_semicolons() -> None:
    assert principals_in(" User:CN=a,O=b ;User:ops;") == ("User:CN=a,O=b", "User:ops")
