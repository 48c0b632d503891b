"""Delegation tokens: who may have them made, who logs in by them as whom, and when all of that ends."""

import asyncio
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from simulation.world.life import TOKEN_SECRETS
from simulation.world.world import World
from tests.unit.node.speaking import error, fetch_values, only, values_in
from tests.unit.node.test_sasl import Peer as PasswordPeer
from tests.unit.node.test_sasl import asking, world_with_users
from tests.unit.node.test_security_trail import Heard
from tests.unit.security.test_scram import CLIENT_NONCE, final_message

from cordwood.cluster.planner.security import tokens as planner
from cordwood.model.acls import EVERYTHING, THE_CLUSTER, Acl, Pattern, Permission
from cordwood.model.credentials import ScramKeys, ScramMechanism
from cordwood.model.errors import ErrorCode
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.listeners import ONLY_ENTRANCE, Callers, Entrance
from cordwood.node.requests.access import DryRun
from cordwood.security.access_rules import AccessRules
from cordwood.security.sessions import ANONYMOUS, Principal, Session, session_at
from cordwood.security.token_secrets import TokenSecrets
from cordwood.wire.apis import ApiKey

SHA_256 = ScramMechanism.SHA_256
LIFE_MS = 2_000
LONGEST_MS = 7 * LIFE_MS
CHECK_MS = 5_000
FIRST = "n,,n={},r=" + CLIENT_NONCE + ",tokenauth=true"
AT_ONCE = -1


def short_lives() -> World:
    """A broker with users, whose tokens are soon over."""
    return world_with_users(
        {
            "delegation.token.expiry.time.ms": str(LIFE_MS),
            "delegation.token.max.lifetime.ms": str(LONGEST_MS),
            "delegation.token.expiry.check.interval.ms": str(CHECK_MS),
        }
    )


@pytest.fixture
def world() -> Iterator[World]:
    world = short_lives()
    yield world
    world.kill()


class Peer(PasswordPeer):
    """A client, who may ask for tokens and log in by them."""

    def create(self, *renewers: str, owner: str = "", max_lifetime_ms: int = -1, version: int = 3) -> Any:
        named = [{"principal_type": "User", "principal_name": name} for name in renewers]
        of = {"owner_principal_type": "User", "owner_principal_name": owner} if owner else {}
        return self.send(
            ApiKey.CREATE_DELEGATION_TOKEN, version, renewers=named, max_lifetime_ms=max_lifetime_ms, **of
        ).answer

    def renew(self, secret: bytes, period_ms: int = -1) -> Any:
        return self.send(ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=secret, renew_period_ms=period_ms).answer

    def expire(self, secret: bytes, period_ms: int = AT_ONCE) -> Any:
        return self.send(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, hmac=secret, expiry_time_period_ms=period_ms).answer

    def described(self, *owners: str) -> dict[str, Any]:
        named = [{"principal_type": "User", "principal_name": name} for name in owners] if owners else None
        answer = self.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=named).answer
        assert answer.error_code == 0
        return {token.token_id: token for token in answer.tokens}

    def by_token(self, token_id: str, secret: bytes, mechanism: ScramMechanism = SHA_256) -> Any:
        """The last answer of a log-in by a token."""
        assert self.handshake(mechanism.sasl_name) == "NONE"
        challenge = self.token(FIRST.format(token_id).encode())
        assert error(challenge.error_code) == "NONE"
        password = b64encode(secret).decode()
        extensions = ",tokenauth=true"
        return self.token(
            final_message(mechanism, password, challenge.auth_bytes, user=token_id, extensions=extensions)
        )

    @property
    def is_served(self) -> bool:
        return self.metadata().answered


def logged_in(world: World, user: str = "alice") -> Peer:
    peer = Peer(world)
    assert error(peer.scram(user).error_code) == "NONE"
    return peer


def holder(world: World, token: Any, mechanism: ScramMechanism = SHA_256) -> Peer:
    peer = Peer(world)
    answer = peer.by_token(token.token_id, bytes(token.hmac), mechanism)
    assert error(answer.error_code) == "NONE", answer
    return peer


def removed_at_once(world: World) -> None:
    """Lets the controller look for tokens that are over."""
    world.advance(CHECK_MS)


def test_a_token_is_made_for_its_requester(world: World) -> None:
    token = logged_in(world).create("bob")
    now_ms = world.clock.wall_ms
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms) == (now_ms, now_ms + LIFE_MS)
    assert token.max_timestamp_ms == now_ms + LONGEST_MS
    assert bytes(token.hmac) == TOKEN_SECRETS.hmac_of(token.token_id)
    assert len(token.hmac) == 64


def test_the_store_has_no_secret(world: World) -> None:
    token = logged_in(world).create()
    stored = asyncio.run(world.store.list("")).items
    (row,) = [item.value for item in stored if item.key == f"tokens/{token.token_id}"]
    secret = bytes(token.hmac)
    texts = (secret, secret.hex().encode(), b64encode(secret))
    assert b"alice" in row
    assert not any(text in item.value for item in stored for text in texts)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_holder_acts_as_the_owner_until_the_token_is_over(
    world: World,
    mechanism: ScramMechanism,
) -> None:
    token = logged_in(world).create()
    peer = Peer(world)
    answer = peer.by_token(token.token_id, bytes(token.hmac), mechanism)
    assert (error(answer.error_code), answer.session_lifetime_ms) == ("NONE", LIFE_MS)
    assert (peer.principal, peer.connection.session.token_id) == ("User:alice", token.token_id)
    assert peer.is_served
    world.advance(LIFE_MS)
    assert peer.metadata().hang_up_reason == "Metadata came after its session has ended"
    assert is_refused(world, token.token_id, bytes(token.hmac))


def is_refused(world: World, token_id: str, secret: bytes) -> bool:
    peer = Peer(world)
    answer = peer.by_token(token_id, secret)
    assert error(answer.error_code) in ("NONE", "SASL_AUTHENTICATION_FAILED")
    return not peer.connection.open


def test_without_the_secret_nobody_logs_in(world: World) -> None:
    token = logged_in(world).create()
    assert is_refused(world, token.token_id, b"x" * 64)
    assert is_refused(world, "0" * 32, bytes(token.hmac))
    assert is_refused(world, "alice", bytes(token.hmac)), "a user is no token"
    assert error(Peer(world).scram(token.token_id, b64encode(token.hmac).decode()).error_code) != "NONE", (
        "a token is no user"
    )


def test_keys_are_computed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: Counter[str] = Counter()
    keys_of = TokenSecrets.keys_of

    def counted(secrets: TokenSecrets, token_id: str, mechanism: ScramMechanism) -> ScramKeys:
        computed[token_id] += 1
        return keys_of(secrets, token_id, mechanism)

    monkeypatch.setattr(TokenSecrets, "keys_of", counted)
    token = logged_in(world).create()
    for _ in range(3):
        assert holder(world, token).is_served
    assert computed == {token.token_id: 1}


def test_a_holder_gets_no_tokens(world: World) -> None:
    token = logged_in(world).create()
    secret = bytes(token.hmac)
    peer = holder(world, token)
    for answer in (peer.create(), peer.renew(secret), peer.expire(secret)):
        assert error(answer.error_code) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    answer = peer.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None).answer
    assert (error(answer.error_code), list(answer.tokens)) == ("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", [])
    assert peer.is_served


@pytest.mark.parametrize("name", ["PLAINTEXT", "SSL"])
def test_who_was_not_asked_gets_no_tokens(world: World, name: str) -> None:
    world.network.entrance = ONLY_ENTRANCE if name == "PLAINTEXT" else Entrance(name, Callers.CLIENTS)
    peer = Peer(world)
    assert peer.connection.session.principal == ANONYMOUS
    assert error(peer.create().error_code) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


def test_who_came_with_a_certificate_gets_tokens(world: World) -> None:
    peer = Peer(world)
    peer.connection.session = Session(Entrance("SSL", Callers.CLIENTS), "10.0.0.1", Principal("User", "CN=carol"))
    token = peer.create()
    assert (token.error_code, token.principal_name) == (0, "CN=carol")
    assert holder(world, token).principal == "User:CN=carol"


def test_a_token_is_renewed_by_owner_and_renewers_up_to_its_end(world: World) -> None:
    alice, bob = logged_in(world), logged_in(world, "bob")
    own, shared = alice.create(), alice.create("bob")
    assert error(bob.renew(bytes(own.hmac)).error_code) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert bob.renew(bytes(shared.hmac), 1000).expiry_timestamp_ms == world.clock.wall_ms + 1000
    for _ in range(6):
        world.advance(LIFE_MS - 1)
        renewed = alice.renew(bytes(own.hmac))
        assert renewed.expiry_timestamp_ms == min(world.clock.wall_ms + LIFE_MS, own.max_timestamp_ms)
    assert renewed.expiry_timestamp_ms == own.max_timestamp_ms - 6
    world.advance(LIFE_MS)
    assert error(alice.renew(bytes(own.hmac)).error_code) == "DELEGATION_TOKEN_EXPIRED"


def test_a_wanted_life_is_bounded(world: World) -> None:
    alice, now_ms = logged_in(world), world.clock.wall_ms
    short, long = alice.create(max_lifetime_ms=500), alice.create(max_lifetime_ms=2**62)
    assert (short.expiry_timestamp_ms - now_ms, short.max_timestamp_ms - now_ms) == (500, 500)
    assert (long.expiry_timestamp_ms - now_ms, long.max_timestamp_ms - now_ms) == (LIFE_MS, LONGEST_MS)
    assert alice.renew(bytes(long.hmac), 2**62).expiry_timestamp_ms == now_ms + LIFE_MS
    assert alice.expire(bytes(long.hmac), 2**62).expiry_timestamp_ms == now_ms + LONGEST_MS


def test_an_ended_token_ends_its_sessions_at_once(world: World) -> None:
    alice = logged_in(world)
    token, other = alice.create(), alice.create()
    ended, goes_on = holder(world, token), holder(world, other)
    answer = alice.expire(bytes(token.hmac))
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, world.clock.wall_ms)
    assert not ended.is_served
    assert goes_on.is_served
    assert alice.is_served
    assert is_refused(world, token.token_id, bytes(token.hmac))
    assert error(alice.expire(bytes(token.hmac)).error_code) == "DELEGATION_TOKEN_NOT_FOUND"


def test_a_fetch_that_waits_does_not_outlive_a_token_that_is_ended(world: World) -> None:
    alice = logged_in(world)
    token = alice.create()
    peer = holder(world, token)
    fields = fetch_values(("orders", 0, 0), max_wait_ms=2**31 - 1)
    waiting = peer.connection.request(ApiKey.FETCH, 12, fields)
    world.settle()
    assert not waiting.ended
    assert alice.expire(bytes(token.hmac)).error_code == 0
    world.settle()
    assert values_in(only(waiting.answer)) == []
    assert not peer.is_served


def test_a_session_goes_on_with_a_renewed_token(world: World) -> None:
    alice = logged_in(world)
    token = alice.create()
    peer = holder(world, token)
    world.advance(LIFE_MS - 1)
    assert alice.renew(bytes(token.hmac)).error_code == 0
    world.advance(LIFE_MS - 1)
    assert peer.is_served
    world.advance(1)
    assert not peer.is_served


def test_a_session_by_a_token_is_renewed_by_another_one(world: World) -> None:
    world.network.entrance = asking(session_ms=1_000)
    alice = logged_in(world)
    one, other = alice.create(), alice.create()
    peer = holder(world, one)
    world.advance(1_000)
    assert error(peer.by_token(other.token_id, bytes(other.hmac)).error_code) == "NONE"
    assert logged_in(world).expire(bytes(one.hmac)).error_code == 0
    assert peer.is_served
    bobs = logged_in(world, "bob").create()
    assert error(peer.by_token(bobs.token_id, bytes(bobs.hmac)).error_code) == "SASL_AUTHENTICATION_FAILED"
    assert not peer.connection.open


def test_what_is_over_is_removed(world: World) -> None:
    alice = logged_in(world)
    short, long = alice.create(max_lifetime_ms=1_000), alice.create()
    assert alice.expire(bytes(long.hmac), LONGEST_MS).error_code == 0
    world.advance(1_000)
    assert error(alice.renew(bytes(short.hmac)).error_code) == "DELEGATION_TOKEN_EXPIRED"
    assert error(alice.expire(bytes(short.hmac), 0).error_code) == "DELEGATION_TOKEN_EXPIRED"
    assert set(world.node.image.tokens.rows) == {short.token_id, long.token_id}
    removed_at_once(world)
    assert set(world.node.image.tokens.rows) == {long.token_id}
    assert alice.expire(bytes(long.hmac), 0).error_code == 0
    assert not [token for token in alice.described().values() if token.expiry_timestamp > world.clock.wall_ms]


def test_many_that_are_over_are_removed_together(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "REMOVED_AT_ONCE", 2)
    alice = logged_in(world)
    for _ in range(5):
        alice.create(max_lifetime_ms=1_000)
    world.advance(1_000)
    removed_at_once(world)
    assert not world.node.image.tokens.rows


def test_tokens_are_described_to_those_whose_they_are(world: World) -> None:
    alice, bob = logged_in(world), logged_in(world, "bob")
    own, shared = alice.create(), alice.create("bob", "dora")
    (told,) = bob.described().values()
    assert (told.token_id, told.principal_name, bytes(told.hmac)) == (shared.token_id, "alice", bytes(shared.hmac))
    assert [each.principal_name for each in told.renewers] == ["bob", "dora"]
    assert set(alice.described()) == {own.token_id, shared.token_id}
    assert set(alice.described("dora")) == {shared.token_id}
    answer = alice.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=[]).answer
    assert (answer.error_code, list(answer.tokens)) == (0, [])


def test_without_rules_nobody_gets_the_token_of_another(world: World) -> None:
    alice, bob = logged_in(world), logged_in(world, "bob")
    alice.create()
    assert error(bob.create(owner="alice").error_code) == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    assert bob.described() == {}
    world.node.access.rules = AccessRules()
    world.node.access._dry_run = DryRun()
    assert error(bob.create(owner="alice").error_code) == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    assert bob.described() == {}


def test_where_everybody_may_do_what_no_rule_is_about_tokens_still_need_one(world: World) -> None:
    """Otherwise any user could act as a super user."""
    world.node.access.rules = AccessRules(everyone_without_rules=True)
    alice, bob = logged_in(world), logged_in(world, "bob")
    token = alice.create()
    assert error(bob.create(owner="alice").error_code) == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    assert bob.described() == {}
    assert error(bob.expire(bytes(token.hmac)).error_code) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert set(alice.described()) == {token.token_id}


def allow(world: World, operation: Operation, kind: ResourceKind, name: str) -> None:
    rules = world.node.access.rules = world.node.access.rules or AccessRules()
    rules.add(Acl(kind, Pattern.LITERAL, name, "User:bob", EVERYTHING, operation, Permission.ALLOW))


def test_with_a_right_a_user_gets_the_tokens_of_another(world: World) -> None:
    alice, bob = logged_in(world), logged_in(world, "bob")
    allow(world, Operation.CREATE_TOKENS, ResourceKind.USER, "User:alice")
    theirs, own = bob.create(owner="alice"), alice.create()
    assert (theirs.principal_name, theirs.token_requester_principal_name) == ("alice", "bob")
    assert holder(world, theirs).principal == "User:alice"
    assert set(bob.described()) == {theirs.token_id}
    allow(world, Operation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, own.token_id)
    assert set(bob.described()) == {theirs.token_id, own.token_id}
    allow(world, Operation.DESCRIBE_TOKENS, ResourceKind.USER, "User:alice")
    third = alice.create()
    assert set(bob.described("alice")) == {theirs.token_id, own.token_id, third.token_id}
    assert error(bob.renew(bytes(own.hmac)).error_code) == "DELEGATION_TOKEN_OWNER_MISMATCH"


def test_who_administers_the_cluster_ends_tokens_of_others_and_renews_none(world: World) -> None:
    alice, bob = logged_in(world), logged_in(world, "bob")
    token = alice.create()
    thief, secret = holder(world, token), bytes(token.hmac)
    assert error(bob.expire(secret).error_code) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    allow(world, Operation.ALTER, ResourceKind.CLUSTER, THE_CLUSTER)
    assert error(bob.renew(secret).error_code) == "DELEGATION_TOKEN_OWNER_MISMATCH"
    assert thief.is_served
    assert error(bob.expire(secret).error_code) == "NONE"
    assert not thief.is_served


def test_a_token_keeps_the_groups_of_its_owner(world: World) -> None:
    """A rule that denies a group would otherwise end with the token of the identity provider."""
    peer = Peer(world)
    groups = ("Group:barred", "Group:traders")
    peer.connection.session = session_at(asking(), "10.0.0.1")._replace(
        principal=Principal("User", "alice", groups), mechanism="OAUTHBEARER", ends_ms=None
    )
    token = peer.create()
    assert holder(world, token).connection.session.principal == Principal("User", "alice", groups)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"renewers": [{"principal_type": "Group", "principal_name": "ops"}]}, "INVALID_PRINCIPAL_TYPE"),
        ({"renewers": [{"principal_type": "User", "principal_name": ""}]}, "INVALID_PRINCIPAL_TYPE"),
        ({"renewers": [{"principal_type": "User", "principal_name": f"u{n}"} for n in range(101)]}, "INVALID_REQUEST"),
    ],
    ids=["a group", "nobody", "too many"],
)
def test_impossible_principals_are_refused(world: World, values: dict[str, Any], code: str) -> None:
    alice = logged_in(world)
    answer = alice.send(ApiKey.CREATE_DELEGATION_TOKEN, 3, max_lifetime_ms=-1, **values).answer
    assert (error(answer.error_code), answer.token_id, bytes(answer.hmac)) == (code, "", b"")
    assert not world.node.image.tokens.rows


def test_one_requester_cannot_use_up_all_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_TOKENS_OF_A_REQUESTER", 2)
    monkeypatch.setattr(planner, "MAX_TOKENS", 3)
    alice, bob = logged_in(world), logged_in(world, "bob")
    assert [error(alice.create().error_code) for _ in range(3)] == ["NONE", "NONE", "POLICY_VIOLATION"]
    assert [error(bob.create().error_code) for _ in range(2)] == ["NONE", "POLICY_VIOLATION"]


def test_where_there_is_no_key_there_are_no_tokens(world: World) -> None:
    alice = logged_in(world)
    token = alice.create()
    secret = bytes(token.hmac)
    world.node.delegation_tokens.secrets = None
    for answer in (alice.create(), alice.renew(secret), alice.expire(secret)):
        assert error(answer.error_code) == "DELEGATION_TOKEN_AUTH_DISABLED"
    answer = alice.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None).answer
    assert error(answer.error_code) == "DELEGATION_TOKEN_AUTH_DISABLED"
    assert is_refused(world, token.token_id, secret)


def test_tokens_wait_for_the_version_of_the_metadata() -> None:
    old = World(seed=1, settings={"metadata.version.max": "2"}).start()
    peer = Peer(old)
    peer.connection.session = Session(Entrance("SSL", Callers.CLIENTS), "10.0.0.1", Principal("User", "carol"))
    assert error(peer.create().error_code) == "UNSUPPORTED_VERSION"
    old.kill()


def test_the_trail_has_each_change_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard = Heard()
    world = World(seed=1, trail=heard).start()
    peer = Peer(world)
    peer.connection.session = Session(Entrance("SSL", Callers.CLIENTS), "10.0.0.1", Principal("User", "carol"))
    token = peer.create("dora")
    secret = bytes(token.hmac)
    peer.renew(secret)
    peer.expire(secret, 5)
    peer.expire(secret)
    told = [(api, changed.operation, changed.name, changed.error_code) for _, api, changed in heard.changes]
    assert told == [
        ("CreateDelegationToken", Operation.CREATE_TOKENS, "User:carol", ErrorCode.NONE),
        ("RenewDelegationToken", Operation.ALTER, token.token_id, ErrorCode.NONE),
        ("ExpireDelegationToken", Operation.ALTER, token.token_id, ErrorCode.NONE),
        ("ExpireDelegationToken", Operation.ALTER, token.token_id, ErrorCode.NONE),
    ]
    all_texts = caplog.text + repr(heard.changes)
    assert b64encode(secret).decode() not in all_texts
    assert secret.hex() not in all_texts
    world.kill()
