"""The node tells the security trail of every change and every refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.world import World
from tests.unit.node.requests_of_every_api import requests_of
from tests.unit.node.speaking import SET, TOPIC, create_topic, error
from tests.unit.node.test_rights_of_every_api import (
    EVERY_VERSION,
    MALLORY,
    asked,
    existing,
    grant_everything,
)
from tests.unit.node.test_sasl import Peer, asking

from cordwood.model.acls import THE_CLUSTER
from cordwood.model.credentials import ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.node.requests.rights import RIGHTS, Without
from cordwood.node.security.changes import CHANGES, CHANGING, INTERRUPTED
from cordwood.security.access_rules import AccessRules
from cordwood.security.scram import salted_password
from cordwood.security.sessions import Session
from cordwood.security.trail.port import Changed
from cordwood.wire.apis import APIS, ApiKey

CHANGING_APIS = sorted(
    key
    for key, rights in RIGHTS.items()
    if key != ApiKey.EXPIRE_DELEGATION_TOKEN
    and CHANGING & {operation for right in rights for operation, _ in ((right.operation, right.kind), *right.instead)}
)
"""APIs that a right lets change something. A handler tells of tokens by their ids: test_delegation_tokens.py."""
HERE = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


class Heard:
    """A trail that remembers."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, Changed]] = []
        self.refusals: list[tuple[str, str, Operation, ResourceKind, str, bool]] = []
        self.log_ins: list[tuple[str, ...]] = []

    def changed(self, session: Session, api: str, changed: Changed) -> None:
        self.changes.append((str(session.principal), api, changed))

    def refused(
        self, session: Session, api: str, operation: Operation, kind: ResourceKind, name: str, *, enforced: bool
    ) -> None:
        self.refusals.append((str(session.principal), api, operation, kind, name, enforced))

    def logged_in(self, session: Session) -> None:
        self.log_ins.append((str(session.principal), session.mechanism or ""))

    def not_logged_in(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        self.log_ins.append((user, mechanism, reason))

    def handshake_failed(self, listener: str, host: str, reason: str) -> None:
        raise AssertionError("a node has no TLS")

    @property
    def made(self) -> list[Changed]:
        return [changed for _, _, changed in self.changes if changed.error_code in HERE]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def world(heard: Heard) -> Iterator[World]:
    world = World(seed=1, trail=heard, settings={"authorizer.class.name": STANDARD_AUTHORIZER, **ADMIN}).start()
    create_topic(world, "payroll", partitions=1)
    create_topic(world, "elsewhere", partitions=1)
    world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["accounts"])
    position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="accounts", topics=[{"name": "payroll", "partitions": [position]}])
    heard.changes.clear()
    yield world
    world.kill()


ADMIN = {"super.users": "User:ANONYMOUS"}
"""The requests of `World.ask` come from User:ANONYMOUS."""


def test_every_api_that_creates_deletes_or_alters_tells_its_changes() -> None:
    told = {*CHANGES, ApiKey.METADATA}
    names = [APIS[key].name for key in CHANGING_APIS if key not in told]
    assert not names, f"node/security/changes.py lacks what these APIs change: {names}"
    assert told <= set(CHANGING_APIS), "node/security/changes.py has an API that needs no right to change anything"
    assert INTERRUPTED.keys() <= CHANGES.keys()


@pytest.mark.parametrize("key", CHANGING_APIS, ids=lambda key: APIS[key].name)
def test_a_change_is_told_with_who_made_it_in_every_version(world: World, heard: Heard, key: int) -> None:
    api = world.node.served_apis
    versions = next(range(each.min_version, each.max_version + 1) for each in api if each.key == key)
    names = existing(world)
    for version in versions:
        grant_everything(world)
        if key == ApiKey.DELETE_ACLS:
            (rule,) = requests_of(ApiKey.CREATE_ACLS, 3, names)
            assert asked(world, ApiKey.CREATE_ACLS, 3, rule).answered
            grant_everything(world)
        heard.changes.clear()
        for values in requests_of(ApiKey(key), version, names):
            assert asked(world, ApiKey(key), version, values).answered
        if key == ApiKey.METADATA and version != versions.start:
            continue  # the topic is there by now
        assert heard.changes, f"version {version}"
        for who, name, changed in heard.changes:
            assert (who, name) == (MALLORY, APIS[key].name)
            assert changed.operation in CHANGING
            assert changed.name
            assert changed.error_code in set(ErrorCode)
    assert not heard.refusals


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_refusal_is_told_and_changes_nothing(world: World, heard: Heard, key: ApiKey, version: int) -> None:
    world.node.access.rules = AccessRules()
    requests = requests_of(key, version, existing(world))
    for values in requests:
        assert asked(world, key, version, values).answered
    rights = {(right.operation, right.kind) for right in RIGHTS[key] if right.without is not Without.LEFT_OUT}
    assert {(operation, kind) for _, _, operation, kind, _, _ in heard.refusals} <= rights
    needed = rights & {(right.operation, right.kind) for right in RIGHTS[key] if right.holds_in(version)}
    assert bool(heard.refusals) == bool(needed and requests)
    assert {(who, api, enforced) for who, api, _, _, _, enforced in heard.refusals} <= {(MALLORY, APIS[key].name, True)}
    assert not heard.made


def test_a_dry_run_tells_what_it_would_refuse(heard: Heard) -> None:
    dry = {"authorizer.class.name": STANDARD_AUTHORIZER, "authorizer.dry.run": "true"}
    world = World(seed=1, trail=heard, settings=dry).start()
    create_topic(world)
    assert ("CreateTopics", Operation.CREATE, ResourceKind.TOPIC, "orders", False) in [
        refusal[1:] for refusal in heard.refusals
    ]
    assert [changed.name for changed in heard.made] == ["orders"]
    world.kill()


def test_a_request_that_only_checks_is_no_change(world: World, heard: Heard) -> None:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "configs": []}
    world.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000, validate_only=True)
    world.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": "payroll", "count": 2}], validate_only=True)
    assert not heard.changes


def test_a_change_says_what_changed_and_a_failed_one_its_error(world: World, heard: Heard) -> None:
    for value in ("60000", "soon"):
        change = {"name": "retention.ms", "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC, "resource_name": "payroll", "configs": [change]}
        world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert [(error(changed.error_code), changed.change) for _, _, changed in heard.changes] == [
        ("NONE", "retention.ms=60000"),
        ("INVALID_CONFIG", "retention.ms=soon"),
    ]


def test_values_of_secrets_and_of_unknown_settings_are_not_told(world: World, heard: Heard) -> None:
    for name in ("ssl.keystore.key", "sasl.jaas.config", "listener.name.users.ssl.key.password"):
        change: dict[str, Any] = {"name": name, "value": "s3cret"}
        resource = {"resource_type": 4, "resource_name": "1"}
        world.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource | {"configs": [change]}])
        change["config_operation"] = SET
        world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource | {"configs": [change]}])
    assert len(heard.changes) == 6
    assert not heard.made
    assert "s3cret" not in repr(heard.changes)
    assert heard.changes[0][2].name == THE_CLUSTER


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda key: key.name)
def test_a_kind_of_resource_that_nobody_knows_hides_no_change(world: World, heard: Heard, key: ApiKey) -> None:
    change: dict[str, Any] = {"name": "retention.ms", "value": "60000", "config_operation": SET}
    if key == ApiKey.ALTER_CONFIGS:
        del change["config_operation"]
    asked_for = [(99, "payroll"), (TOPIC, "payroll")]
    resources = [{"resource_type": kind, "resource_name": name, "configs": [change]} for kind, name in asked_for]
    world.ask(key, 1, resources=resources)
    assert [(error(changed.error_code), changed.name) for _, _, changed in heard.changes] == [
        ("INVALID_REQUEST", THE_CLUSTER),
        ("NONE", "payroll"),
    ]


def test_wide_requests_are_told_whole(world: World, heard: Heard) -> None:
    topics = [{"name": f"t{n}", "num_partitions": 1, "replication_factor": 1, "configs": []} for n in range(450)]
    world.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=1000)
    assert [changed.name for changed in heard.made] == [topic["name"] for topic in topics]


def test_a_client_that_hangs_up_leaves_its_changes_behind(world: World, heard: Heard) -> None:
    """Deleting many groups takes steps: a client that closes its connection between two of them hides nothing."""
    names = [f"group-{number}" for number in range(450)]
    connection = world.connect()
    connection.request(ApiKey.DELETE_GROUPS, 2, {"groups_names": names})
    while not len(world.node.turns):
        world.do(world.steps()[0][1])
    connection.close()
    world.settle()
    assert {changed.name for _, _, changed in heard.changes} == set(names)
    assert {changed.operation for _, _, changed in heard.changes} == {Operation.DELETE}


def test_a_claim_to_be_a_broker_hides_no_change(world: World, heard: Heard) -> None:
    from cordwood.wire.requests import Sender

    connection = world.connect()
    topic = {"name": "hidden", "num_partitions": 1, "replication_factor": 1, "configs": []}
    connection.request(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 1000}, sender=Sender(1, 99))
    world.settle()
    assert [changed.name for changed in heard.made] == ["hidden"]


def test_log_ins_are_told_and_what_comes_before_them(heard: Heard) -> None:
    world = World(seed=1, trail=heard).start()
    mechanism = ScramMechanism.SHA_256
    salted = salted_password(mechanism, "secret", b"salt", 4096)
    upsertion = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": salted}
    world.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[upsertion])
    assert [(changed.kind, changed.name, changed.change) for changed in heard.made] == [
        (ResourceKind.USER, "alice", "SCRAM-SHA-256 set, 4096 iterations")
    ]
    world.network.entrance = asking()
    Peer(world).scram("alice")
    Peer(world).scram("alice", "wrong")
    Peer(world).scram("nobody")
    Peer(world).plain("alice", "wrong")
    Peer(world).metadata()
    Peer(world).handshake("GSSAPI")
    wrong = "failed: the password is wrong, or there is no such user"
    assert heard.log_ins == [
        ("User:alice", "SCRAM-SHA-256"),
        ("alice", "SCRAM-SHA-256", f"SCRAM-SHA-256 {wrong}"),
        ("nobody", "SCRAM-SHA-256", f"SCRAM-SHA-256 {wrong}"),
        ("alice", "PLAIN", f"PLAIN {wrong}"),
        ("", "none", "Metadata came before the peer has logged in"),
        ("", "", "'GSSAPI' is not taken here"),
    ]
    assert "secret" not in repr(heard.log_ins)
    world.kill()


def test_without_a_trail_no_request_is_wrapped() -> None:
    world = World(seed=1).start()
    served: dict[int, Any] = world.node._router._served  # type: ignore[assignment]
    assert all("recording" not in repr(each.handle) for each in served.values())
    world.kill()
