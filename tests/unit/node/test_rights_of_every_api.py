"""Every API in every version, as a user without rights and with one right too few: nothing is done, nothing told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.exchange import EVERYBODY, Exchange
from simulation.world.world import World
from tests.unit.node.requests_of_every_api import Names, requests_of
from tests.unit.node.speaking import batch_of, create_topic, fill

from cordwood.model.acls import EVERYTHING, THE_CLUSTER, Acl, Pattern, Permission
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.model.operations import Operation, ResourceKind
from cordwood.node.apis import SERVED
from cordwood.node.requests.rights import RIGHTS, Right, Without, rights_for
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import Entity

MALLORY = "User:mallory"
HOST = "10.0.0.9"
STAGE = ("payroll", "elsewhere", "accounts", "watchers", "payer", "books")
"""The names of all that there is."""
RECORDS_BY_ID = 13
"""From this version on Fetch and Produce name topics by their ids."""
REFUSALS = frozenset(kind.refusal for kind in ResourceKind)

EVERY_VERSION = [
    pytest.param(ApiKey(key), version, id=f"{APIS[key].name}-{version}")
    for key, api in sorted(SERVED.items())
    for version in range(api.min_version, api.max_version + 1)
    if RIGHTS[key]
]

EVERY_RIGHT = [
    pytest.param(
        ApiKey(key), api.max_version, right, id=f"{APIS[key].name}-{right.operation}-{right.kind.name}-{place}"
    )
    for key, api in sorted(SERVED.items())
    for place, right in enumerate(rights_for(key, api.max_version))
    if right.without not in (Without.LEFT_OUT, Without.NOT_THE_HOLDER)
]


@pytest.fixture
def judged() -> Iterator[World]:
    """A broker with a topic, a group, a transaction and a family, and an authorizer without a rule."""
    world = World(seed=1).start()
    create_topic(world, "payroll", partitions=1)
    create_topic(world, "elsewhere", partitions=1)
    fill(world, "payroll", b"a secret")
    world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["accounts"])
    world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["payer"])
    position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "payroll", "partitions": [position]}]
    committed = world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="accounts", topics=topics)
    assert committed.topics[0].partitions[0].error_code == 0
    member = {"group_id": "watchers", "member_id": "w", "rebalance_timeout_ms": 10_000, "topic_partitions": []}
    heartbeat = world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **member, subscribed_topic_names=["payroll"])
    assert heartbeat.error_code == 0
    begun = world.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="payer", transaction_timeout_ms=60_000)
    assert begun.error_code == 0
    joined = world.ask(ApiKey.FAMILY_JOIN, 0, family="books", batch_id=1, timeout_ms=60_000)
    assert joined.error_code == 0
    world.node.access.rules = AccessRules()
    yield world
    world.kill()


def existing(world: World) -> Names:
    topic_id = world.node.image.topics["payroll"].topic_id
    return Names("payroll", topic_id, "newcomer", "accounts", "watchers", "payer", "books", *batches(world))


def absent(world: World) -> Names:
    return Names("vanished", TopicId(int=77), "latecomer", "nobody", "none", "idler", "no-family", *batches(world))


def batches(world: World) -> tuple[bytes, bytes]:
    """Without a transaction, and with one."""
    transaction: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return batch_of(world, b"one"), batch_of(world, b"one", **transaction)


def asked(world: World, key: ApiKey, version: int, values: dict[str, Any]) -> Exchange:
    connection = world.connect()
    connection.session = Session(EVERYBODY, HOST, Principal("User", "mallory"))
    exchange = connection.request(key, version, values)
    world.settle()
    connection.close()
    world.settle()
    return exchange


def told(answer: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in an answer, with the name of its field."""
    if isinstance(answer, Entity):
        for field, value in vars(answer).items():
            yield from told(value, field)
    elif isinstance(answer, (list, tuple)):
        for each in answer:
            yield from told(each, name)
    else:
        yield name, answer


def errors_in(answer: Any) -> set[int]:
    """Every error code in an answer."""
    return {value for name, value in told(answer) if name.endswith("error_code") and value}


def plainly(answer: Any, names: Names) -> str:
    """An answer as text, without the names of the request."""
    text = " | ".join(f"{name}={value}" for name, value in told(answer))
    for name in names[:-2]:
        text = text.replace(str(name), "NAME")
    return re.sub(r"simulated-[0-9a-f-]{36}", "MEMBER", text)


def state_of(world: World) -> tuple[Any, ...]:
    """All that requests could change: the metadata, and the ends and starts of all logs."""
    logs = sorted((str(each.name), each.log.offsets.start, each.log.offsets.end) for each in world.node.hosted)
    return world.node.image.revision, logs


def grant_everything(world: World, *denied: tuple[Operation, ResourceKind]) -> None:
    rules = world.node.access.rules = AccessRules()
    for kind in ResourceKind:
        name = THE_CLUSTER if kind is ResourceKind.CLUSTER else EVERYTHING
        allowed = Acl(kind, Pattern.LITERAL, name, MALLORY, EVERYTHING, Operation.ALL, Permission.ALLOW)
        rules.add(allowed)
        for operation, of_kind in denied:
            if of_kind is kind:
                rules.add(allowed._replace(operation=operation, permission=Permission.DENY))


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_user_without_rights_changes_nothing_and_learns_nothing(judged: World, key: ApiKey, version: int) -> None:
    before = state_of(judged)
    there, nowhere = existing(judged), absent(judged)
    for about_one, about_none in zip(requests_of(key, version, there), requests_of(key, version, nowhere), strict=True):
        one, none = asked(judged, key, version, about_one), asked(judged, key, version, about_none)
        assert one.answered, one.hang_up_reason
        codes = errors_in(one.answer)
        by_id = key in (ApiKey.FETCH, ApiKey.PRODUCE) and version >= RECORDS_BY_ID
        if by_id and codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
            assert errors_in(none.answer) == {ErrorCode.UNKNOWN_TOPIC_ID}
        else:
            assert plainly(one.answer, there) == plainly(none.answer, nowhere)
        assert codes <= {*REFUSALS, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_ID}, codes
        hidden = set(STAGE) - set(map(str, told_names(about_one)))
        seen = {str(value) for _, value in told(one.answer)}
        assert not hidden & seen
    assert state_of(judged) == before


def told_names(values: Any) -> Iterator[Any]:
    """Every value in a request."""
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        for each in values:
            yield from told_names(each)
    else:
        yield values


@pytest.mark.parametrize(("key", "version", "right"), EVERY_RIGHT)
def test_with_one_right_too_few_the_request_is_refused(judged: World, key: ApiKey, version: int, right: Right) -> None:
    grant_everything(judged, (right.operation, right.kind), *right.instead)
    codes: set[int] = set()
    for values in requests_of(key, version, existing(judged)):
        exchange = asked(judged, key, version, values)
        codes |= errors_in(exchange.answer) if exchange.answered else set()
    refusal = {right.kind.refusal}
    if right.operation is Operation.DESCRIBE and right.kind is ResourceKind.TOPIC:
        refusal.add(ErrorCode.UNKNOWN_TOPIC_ID)  # the newest requests name topics by their ids
    assert refusal & codes, f"{APIS[key].name} does not ask for {right.operation} of the {right.of}"


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_with_all_rights_nothing_is_refused(judged: World, key: ApiKey, version: int) -> None:
    grant_everything(judged)
    for values in requests_of(key, version, existing(judged)):
        exchange = asked(judged, key, version, values)
        codes = errors_in(exchange.answer) if exchange.answered else set()
        assert not codes & REFUSALS, exchange.answer


def test_every_served_api_is_in_the_table() -> None:
    assert set(SERVED) <= set(RIGHTS)
