"""A node asks who its peers are: nothing is served before the proof, and nothing after the end of a session."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simulation.world.exchange import Connection, Exchange, State
from simulation.world.world import World
from tests.moments import at
from tests.unit.node.speaking import (
    batch_of,
    create_topic,
    error,
    fetch_values,
    only,
    produce_values,
    values_in,
)
from tests.unit.security.test_scram import CLIENT_NONCE, final_message

from cordwood.model.credentials import SASL_MECHANISMS, ScramMechanism, shape_of
from cordwood.model.settings.listeners import Asks, Callers, Entrance
from cordwood.node.apis import SERVED
from cordwood.node.requests.router import may_come_first
from cordwood.security.scram import salted_password
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.requests import RequestHeader

SHA_256, SHA_512 = ScramMechanism
DELAY_MS = 100
SESSION_MS = 60_000
FIRST = "n,,n={},r=" + CLIENT_NONCE


def asking(*mechanisms: str, session_ms: int = 0) -> Entrance:
    return Entrance("USERS", Callers.CLIENTS, Asks(mechanisms or SASL_MECHANISMS, session_ms))


def world_with_users(settings: dict[str, str] | None = None) -> World:
    """A broker with the users alice and bob."""
    world = World(seed=1, settings=settings).start()
    create_topic(world, "orders", 1)
    upsertions = [
        {
            "name": name,
            "mechanism": int(mechanism),
            "iterations": 4096,
            "salt": f"salt of {name:5}".encode(),
            "salted_password": salted_password(mechanism, "secret", f"salt of {name:5}".encode(), 4096),
        }
        for name in ("alice", "bob")
        for mechanism in ScramMechanism
    ]
    answer = world.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=upsertions)
    assert {each.error_code for each in answer.results} == {0}
    world.network.entrance = asking()
    return world


@pytest.fixture
def world() -> Iterator[World]:
    world = world_with_users()
    yield world
    world.kill()


class Peer:
    """A client on one connection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection: Connection = world.connect()

    def send(self, key: ApiKey, version: int, **fields: Any) -> Exchange:
        """Sends a request, and waits for a refusal if that is what it gets."""
        exchange = self.connection.request(key, version, fields)
        self.world.settle()
        if not exchange.ended:
            self.world.advance(DELAY_MS)
        return exchange

    def handshake(self, mechanism: str = "SCRAM-SHA-256") -> str:
        return error(self.send(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism).answer.error_code)

    def token(self, token: bytes, version: int = 2) -> Any:
        return self.send(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token).answer

    def scram(self, user: str = "alice", password: str = "secret", mechanism: ScramMechanism = SHA_256) -> Any:
        """The last answer of an exchange."""
        assert self.handshake(mechanism.sasl_name) == "NONE"
        challenge = self.token(FIRST.format(user).encode())
        assert error(challenge.error_code) == "NONE"
        return self.token(final_message(mechanism, password, challenge.auth_bytes, user=user))

    def plain(self, user: str = "alice", password: str = "secret") -> Any:
        assert self.handshake("PLAIN") == "NONE"
        return self.token(f"\0{user}\0{password}".encode())

    def metadata(self) -> Exchange:
        return self.send(ApiKey.METADATA, 12, topics=None)

    @property
    def principal(self) -> str:
        return str(self.connection.session.principal)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_peer_logs_in_by_scram_and_is_served(world: World, mechanism: ScramMechanism) -> None:
    peer = Peer(world)
    answer = peer.scram(mechanism=mechanism)
    assert (error(answer.error_code), answer.session_lifetime_ms) == ("NONE", 0)
    assert answer.auth_bytes.startswith(b"v=")
    assert (peer.principal, peer.connection.session.mechanism) == ("User:alice", mechanism.sasl_name)
    assert [topic.name for topic in peer.metadata().answer.topics] == ["orders"]


def test_a_peer_logs_in_by_plain_and_is_served(world: World) -> None:
    peer = Peer(world)
    assert error(peer.plain("bob").error_code) == "NONE"
    assert (peer.principal, peer.connection.session.mechanism) == ("User:bob", "PLAIN")
    assert peer.metadata().answered


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: APIS[key].name)
def test_only_versions_and_sasl_are_served_before(world: World, key: int) -> None:
    """The frame has no body: an API that were served would fail on it."""
    peer = Peer(world)
    reply = Exchange(peer.connection, ApiKey.API_VERSIONS, 0, {}, 1)
    reply.state = State.WAITING
    header = RequestHeader(key, SERVED[key].max_version, 1, None, 0)
    may_come = key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    if may_come:
        assert may_come_first(key, peer.connection.session)
        return
    world.node.handle(header, memoryview(bytearray()), reply, at(world.clock.wall_ms))
    assert reply.hang_up_reason == f"{APIS[key].name} came before the peer has logged in"


def test_the_first_version_of_a_handshake_is_offered_and_refused(world: World) -> None:
    """librdkafka 2.0 logs in only where it is offered."""
    assert SERVED[ApiKey.SASL_HANDSHAKE].min_version == 0
    peer = Peer(world)
    assert error(peer.send(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").answer.error_code) == "UNSUPPORTED_VERSION"
    assert peer.scram().auth_bytes.startswith(b"v=")


def test_versions_may_be_asked_before(world: World) -> None:
    peer = Peer(world)
    told = {each.api_key for each in peer.send(ApiKey.API_VERSIONS, 0).answer.api_keys}
    assert {17, 36} <= told
    assert peer.connection.open


def test_wrong_passwords_and_unknown_users_are_refused_alike_and_later(world: World) -> None:
    told = set()
    for user, password in [("alice", "Secret"), ("nobody", "secret"), ("nobody", "")]:
        peer = Peer(world)
        peer.handshake()
        challenge = peer.token(FIRST.format(user).encode()).auth_bytes
        began_ms = world.clock.boot_ms
        refused = peer.token(final_message(SHA_256, password, challenge, user=user))
        told.add((error(refused.error_code), refused.error_message, refused.auth_bytes))
        assert world.clock.boot_ms - began_ms >= DELAY_MS
        assert not peer.connection.open
    message = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert told == {("SASL_AUTHENTICATION_FAILED", message, b"")}


class Work:
    """Counts the hashes that the broker and its peer compute, by kind, algorithm and rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: Counter[tuple[str, str, int]] = Counter()
        derive, digest = hashlib.pbkdf2_hmac, hmac.digest

        def counted_derive(name: str, password: bytes, salt: bytes, rounds: int) -> bytes:
            self.done["pbkdf2", name, rounds] += 1
            return derive(name, password, salt, rounds)

        def counted_digest(key: bytes, message: bytes, name: str) -> bytes:
            self.done["hmac", name, 1] += 1
            return digest(key, message, name)

        monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted_derive)
        monkeypatch.setattr(hmac, "digest", counted_digest)

    def of(self, log_in: Callable[[], object]) -> dict[tuple[str, str, int], int]:
        before = self.done.copy()
        log_in()
        return self.done - before


@pytest.mark.parametrize("mechanism", ["PLAIN", *(each.sasl_name for each in ScramMechanism)])
def test_an_unknown_user_costs_the_work_and_takes_the_steps_of_a_wrong_password(
    world: World, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    work = Work(monkeypatch)
    scram = {each.sasl_name: each for each in ScramMechanism}.get(mechanism)

    def steps(user: str) -> list[tuple[object, ...]]:
        """What the peer sees: the answers but for their random parts, and the end of the connection."""
        peer = Peer(world)
        assert peer.handshake(mechanism) == "NONE"
        began_ms = world.clock.boot_ms
        if scram is None:
            answers = [peer.token(f"\0{user}\0wrong".encode())]
        else:
            answers = [peer.token(FIRST.format(user).encode())]
            answers.append(peer.token(final_message(scram, "wrong", answers[0].auth_bytes, user=user)))
        told = [
            (error(each.error_code), each.error_message, len(each.auth_bytes), each.session_lifetime_ms)
            for each in answers
        ]
        return [*told, (peer.connection.open, world.clock.boot_ms - began_ms)]

    # "alice" and "nobod" are as long as each other, and so are the salts of users and the made up ones.
    seen: list[list[tuple[object, ...]]] = []
    known, unknown = (work.of(lambda user=user: seen.append(steps(user))) for user in ("alice", "nobod"))  # type: ignore[misc]
    assert seen[0] == seen[1]
    assert known == unknown
    assert known, "nothing was counted"


def test_an_unknown_user_has_keys_of_the_usual_shape_that_stay_the_same(world: World) -> None:
    authentications = world.node.authentications
    known = authentications._find("alice", SHA_256)
    unknown = authentications._find("nobody", SHA_256)
    assert (known.is_known, unknown.is_known) == (True, False)
    assert shape_of(unknown.keys)[0] == shape_of(known.keys)[0] == 4096
    assert len(unknown.keys.stored_key) == 32
    assert authentications._find("nobody", SHA_256) == unknown
    assert authentications._find("nobody2", SHA_256).keys.salt != unknown.keys.salt
    assert len(authentications._find("nobody", SHA_512).keys.stored_key) == 64
    world.kill()
    world.start()
    assert world.node.authentications._find("nobody", SHA_256) == unknown


def test_log_ins_are_counted_by_mechanism_and_outcome(world: World) -> None:
    Peer(world).scram()
    Peer(world).scram(password="wrong")
    Peer(world).plain()
    assert Peer(world).handshake("GSSAPI") == "UNSUPPORTED_SASL_MECHANISM"
    assert world.node.authentications.log_ins == {
        ("SCRAM-SHA-256", "logged in"): 1,
        ("SCRAM-SHA-256", "refused"): 1,
        ("PLAIN", "logged in"): 1,
        ("none", "refused"): 1,
    }


def test_wrong_passwords_of_plain_are_refused(world: World) -> None:
    for user, password in [("alice", "Secret"), ("nobody", "secret")]:
        peer = Peer(world)
        refused = peer.plain(user, password)
        assert error(refused.error_code) == "SASL_AUTHENTICATION_FAILED"
        assert refused.error_message == "Authentication failed: Invalid username or password"
        assert not peer.connection.open


def test_a_failure_holds_up_nobody_else(world: World) -> None:
    world.network.entrance = asking()
    guesser = Peer(world)
    guesser.handshake()
    waiting = guesser.connection.request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"nonsense"})
    world.settle()
    assert not waiting.ended
    other = Peer(world)
    exchange = other.connection.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    world.settle()
    assert exchange.answered
    assert not waiting.ended


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(world: World) -> None:
    world.network.entrance = asking("SCRAM-SHA-512")
    peer = Peer(world)
    answer = peer.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI").answer
    assert (error(answer.error_code), list(answer.mechanisms)) == ("UNSUPPORTED_SASL_MECHANISM", ["SCRAM-SHA-512"])
    assert not peer.connection.open


def test_messages_out_of_order_end_the_connection(world: World) -> None:
    peer = Peer(world)
    assert error(peer.token(b"\0alice\0secret").error_code) == "ILLEGAL_SASL_STATE"
    assert not peer.connection.open
    peer = Peer(world)
    peer.handshake()
    assert peer.handshake() == "ILLEGAL_SASL_STATE"
    assert not peer.connection.open
    peer = Peer(world)
    peer.handshake()
    metadata = peer.metadata()
    assert "before the peer has logged in" in metadata.hang_up_reason
    assert not peer.connection.open


def test_a_listener_that_asks_nobody_says_so(world: World) -> None:
    world.network.entrance = Entrance("PLAINTEXT", Callers.CLIENTS)
    peer = Peer(world)
    assert peer.handshake() == "ILLEGAL_SASL_STATE"
    assert "asks nobody" in peer.token(b"").error_message
    assert peer.metadata().answered


def test_a_session_ends_and_goes_on_after_another_proof(world: World) -> None:
    world.network.entrance = asking(session_ms=SESSION_MS)
    peer = Peer(world)
    assert peer.scram().session_lifetime_ms == SESSION_MS
    world.advance(SESSION_MS - 1)
    assert peer.metadata().answered
    world.advance(1)
    assert peer.scram().session_lifetime_ms == SESSION_MS
    assert peer.metadata().answered
    world.advance(SESSION_MS)
    assert "after its session has ended" in peer.metadata().hang_up_reason
    assert not peer.connection.open


def test_a_fetch_that_waits_is_answered_without_records_when_its_session_ends(world: World) -> None:
    world.network.entrance = asking(session_ms=SESSION_MS)
    peer, writer = Peer(world), Peer(world)
    peer.scram()
    waiting = peer.connection.request(
        ApiKey.FETCH, 12, fetch_values(("orders", 0, 0), min_bytes=10_000, max_wait_ms=10 * SESSION_MS)
    )
    writer.scram("bob")
    writer.connection.request(ApiKey.PRODUCE, 9, produce_values("orders", batch_of(world, b"secret")))
    world.advance(SESSION_MS - 1)
    assert not waiting.ended
    world.advance(1)
    part = only(waiting.answer)
    assert (part.error_code, part.high_watermark, values_in(part)) == (0, 1, [])
    assert peer.scram().session_lifetime_ms == SESSION_MS
    again = peer.connection.request(ApiKey.FETCH, 12, fetch_values(("orders", 0, 0)))
    world.settle()
    assert values_in(only(again.answer)) == [b"secret"]


def test_the_end_holds_for_clients_that_do_not_know_of_it(world: World) -> None:
    """SaslAuthenticate 0 tells no end."""
    world.network.entrance = asking("PLAIN", session_ms=SESSION_MS)
    for key, version in [(ApiKey.METADATA, 12), (ApiKey.API_VERSIONS, 3)]:
        peer = Peer(world)
        peer.handshake("PLAIN")
        assert error(peer.token(b"\0alice\0secret", version=0).error_code) == "NONE"
        world.advance(SESSION_MS)
        fields = {"client_software_name": "x", "client_software_version": "1"} if key == ApiKey.API_VERSIONS else {}
        last = peer.send(key, version, **fields)
        assert "after its session has ended" in last.hang_up_reason


def test_a_peer_stays_the_user_that_it_was(world: World) -> None:
    world.network.entrance = asking(session_ms=SESSION_MS)
    peer = Peer(world)
    peer.scram("alice")
    refused = peer.scram("bob")
    assert error(refused.error_code) == "SASL_AUTHENTICATION_FAILED"
    assert "Cannot change principals" in refused.error_message
    assert not peer.connection.open
    peer = Peer(world)
    peer.scram("alice")
    assert "not supported for re-authentication" in peer.plain("alice").error_message


def test_a_user_that_was_removed_cannot_prove_itself_again(world: World) -> None:
    world.network.entrance = asking(session_ms=SESSION_MS)
    peer = Peer(world)
    peer.scram("alice")
    other = Peer(world)
    other.scram("bob")
    deletions = [{"name": "alice", "mechanism": 1}, {"name": "alice", "mechanism": 2}]
    fields = {"deletions": deletions, "upsertions": []}
    assert other.send(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **fields).answer.results[0].error_code == 0
    assert peer.metadata().answered, "until its session ends"
    assert "during re-authentication" in peer.scram("alice").error_message


def test_the_checks_of_a_connection_that_closed_are_dropped(world: World) -> None:
    peers = [Peer(world) for _ in range(5)]
    for peer in peers:
        peer.handshake("PLAIN")
    for peer in peers:
        peer.connection.request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})
    for peer in peers[:4]:
        peer.connection.close()
    world.settle()
    world.advance(DELAY_MS)
    assert peers[4].principal == "User:alice"
    authentications = world.node.authentications
    assert len(authentications._peers) == 1
    assert not authentications._checks._waiting
    assert not authentications._checks._running
