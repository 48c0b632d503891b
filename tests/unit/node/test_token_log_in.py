"""Peers log in by tokens (OAUTHBEARER): who they are, when their sessions end, and when keys are fetched for them."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from simulation.world.world import World
from tests.identity_provider import AUDIENCE, ISSUER, Provider
from tests.unit.node.speaking import create_topic, error
from tests.unit.node.test_sasl import Peer

from cordwood.model.acls import Acl, Pattern, Permission
from cordwood.model.errors import BadKeys
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.model.settings.listeners import Asks, Callers, Entrance
from cordwood.model.token_trust import KeySource, TokenRules, TokenTrust
from cordwood.node.security.token_keys import MOST_WAITING, UNKNOWN_KEY_PAUSE_MS
from cordwood.security.key_sets import KeySet, parse_key_set
from cordwood.wire.apis import ApiKey

MINUTE_MS = UNKNOWN_KEY_PAUSE_MS
HOUR_MS = 60 * MINUTE_MS
URL = "https://woods.example/keys"
SKEW_S = 30
REFUSED = '{"status":"invalid_token"}'


class Fetches:
    """The driver's part: a test answers each fetch."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: list[Callable[[KeySet | Exception], None]] = []

    def __call__(self, source: KeySource, done: Callable[[KeySet | Exception], None]) -> None:
        assert source.url == URL
        self.count += 1
        self.waiting.append(done)

    def answer(self, result: KeySet | Exception) -> None:
        self.waiting.pop(0)(result)


class Broker:
    """A broker that takes tokens, and its provider."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, session_ms: int = 0) -> None:
        self.world = World(
            seed=1,
            settings={
                "listeners": "SASL_SSL://127.0.0.1:0",
                "ssl.keystore.location": "broker.pem",
                "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
                "sasl.oauthbearer.jwks.endpoint.url": URL,
                **(settings or {}),
            },
        ).start()
        create_topic(self.world, "orders", 1)
        self.provider = Provider(clock=lambda: self.world.clock.wall_ms / 1000)
        (source,) = self.world.node.image.static_settings.key_sources
        rules = TokenRules(ISSUER, (AUDIENCE,), "sub", "groups", "scope", SKEW_S)
        asks = Asks(("OAUTHBEARER", "PLAIN"), session_ms, TokenTrust(source, rules))
        self.world.network.entrance = Entrance("USERS", Callers.CLIENTS, asks)
        self.fetches = Fetches()
        self.drive(lambda: self.world.node.authentications.token_keys.begin(self.fetches))

    def drive(self, event: Callable[[], None]) -> None:
        """An event of the driver."""
        life = self.world.machines[0].life
        assert life is not None
        life.driver.run(event)
        self.world.settle()

    def fetched(self, result: KeySet | Exception | None = None) -> None:
        keys = parse_key_set(self.provider.key_set()) if result is None else result
        self.drive(lambda: self.fetches.answer(keys))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that has fetched the keys of the provider."""
    broker = Broker()
    broker.fetched()
    yield broker
    broker.world.kill()


class Client(Peer):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.world)
        self.broker = broker

    def bearer(self, token: str) -> Any:
        """The answer to a token; None while there is none."""
        assert self.handshake("OAUTHBEARER") == "NONE"
        return self.token(message(token))

    def log_in(self, token: str | None = None) -> Any:
        answer = self.bearer(self.broker.provider.token() if token is None else token)
        assert (error(answer.error_code), answer.auth_bytes) == ("NONE", b"")
        return answer

    def is_refused(self, token: str) -> bool:
        answer = self.bearer(token)
        assert (error(answer.error_code), answer.auth_bytes) == ("NONE", REFUSED.encode())
        last = self.token(b"\x01")
        assert (error(last.error_code), last.error_message) == ("SASL_AUTHENTICATION_FAILED", REFUSED)
        return not self.connection.open

    def waits(self, token: str) -> Any:
        """Sends a token that gets no answer yet."""
        assert self.handshake("OAUTHBEARER") == "NONE"
        exchange = self.connection.request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message(token)})
        self.world.settle()
        assert not exchange.ended
        return exchange


def message(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_a_peer_logs_in_by_a_token_and_is_served(broker: Broker) -> None:
    client = Client(broker)
    assert client.log_in().session_lifetime_ms == (600 + SKEW_S) * 1000
    assert (client.principal, client.connection.session.mechanism) == ("User:alice", "OAUTHBEARER")
    assert [topic.name for topic in client.metadata().answer.topics] == ["orders"]


def test_tokens_that_are_not_taken_get_the_same_answer_and_the_log_has_the_reason(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    provider = broker.provider
    for token in (
        provider.token(lasts_s=-60),
        provider.token(iss="https://other.example"),
        provider.token(aud="billing"),
        Provider(clock=provider.clock).token(),
        "nonsense",
    ):
        assert Client(broker).is_refused(token)
    refused = Client(broker)
    refused.bearer(provider.token(lasts_s=-60))
    last = refused.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert "the token expired at" in last.hang_up_reason


def test_a_session_ends_with_the_token(broker: Broker) -> None:
    client = Client(broker)
    client.log_in(broker.provider.token(lasts_s=60))
    broker.world.advance((60 + SKEW_S) * 1000 - 1)
    assert client.metadata().answered
    broker.world.advance(1)
    client.log_in(broker.provider.token(lasts_s=60))
    assert client.metadata().answered
    broker.world.advance((60 + SKEW_S) * 1000)
    assert "after its session has ended" in client.metadata().hang_up_reason


def test_a_session_ends_with_the_listeners_time_if_that_is_sooner() -> None:
    broker = Broker(session_ms=5000)
    broker.fetched()
    client = Client(broker)
    assert client.log_in().session_lifetime_ms == 5000
    assert client.log_in(broker.provider.token(lasts_s=-SKEW_S + 1)).session_lifetime_ms == 1000
    broker.world.kill()


def test_a_peer_stays_the_user_that_it_was(broker: Broker) -> None:
    client = Client(broker)
    client.log_in()
    client.log_in(broker.provider.token(groups=["traders"]))
    assert client.connection.session.principal.groups == ("Group:traders",)
    refused = client.bearer(broker.provider.token("bob"))
    assert "Cannot change principals" in refused.error_message
    assert not client.connection.open


def test_rules_of_groups_hold_for_their_members_and_denials_win() -> None:
    broker = Broker({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;Group:admins"})
    broker.fetched()
    for principal, permission in [("Group:traders", Permission.ALLOW), ("Group:barred", Permission.DENY)]:
        acl = Acl(ResourceKind.TOPIC, Pattern.LITERAL, "orders", principal, "*", Operation.DESCRIBE, permission)
        broker.world.node.access.rules.add(acl)  # type: ignore[union-attr]

    def sees(*groups: str) -> bool:
        client = Client(broker)
        client.log_in(broker.provider.token(groups=list(groups)))
        return bool(client.metadata().answer.topics)

    assert [sees(), sees("traders"), sees("x", "traders"), sees("barred", "traders"), sees("barred", "admins")] == [
        False, True, True, False, True,
    ]  # fmt: skip
    broker.world.kill()


# Keys


def test_peers_that_come_before_the_keys_wait_for_them() -> None:
    broker = Broker()
    clients = [Client(broker) for _ in range(3)]
    waiting = [client.waits(broker.provider.token(user)) for client, user in zip(clients, "abc", strict=True)]
    clients[2].connection.close()
    broker.fetched()
    assert [client.principal for client in clients[:2]] == ["User:a", "User:b"]
    assert all(exchange.answered for exchange in waiting[:2])
    assert broker.fetches.count == 1
    broker.world.kill()


def test_a_rotated_key_is_fetched_for_the_first_token_that_names_it(broker: Broker) -> None:
    old = broker.provider.token()
    broker.provider.rotate()
    client = Client(broker)
    exchange = client.waits(broker.provider.token())
    assert broker.fetches.count == 2
    other = Client(broker)
    other.log_in(old)
    broker.fetched()
    assert exchange.answered
    assert client.principal == "User:alice"


def test_strangers_with_made_up_keys_cause_one_fetch_a_minute(broker: Broker) -> None:
    def made_up(number: int) -> str:
        return broker.provider.sign(broker.provider.claims(), kid=f"made-up-{number}")

    waiting = Client(broker)
    waiting.waits(made_up(0))
    broker.fetched()
    assert waiting.token(b"\x01").error_message == REFUSED
    for number in range(1, 20):
        assert Client(broker).is_refused(made_up(number))
    assert broker.fetches.count == 2
    broker.world.advance(MINUTE_MS)
    Client(broker).waits(made_up(20))
    assert broker.fetches.count == 3


def test_waiting_peers_are_bounded(broker: Broker) -> None:
    token = broker.provider.sign(broker.provider.claims(), kid="made-up")
    keys = broker.world.node.authentications.token_keys
    ((source, of_source),) = keys._sources.items()
    Client(broker).waits(token)
    of_source._waiting *= MOST_WAITING
    assert not keys.wait_for_newer(source, keys.of(source), lambda: None)
    assert Client(broker).is_refused(token)


def test_a_fetch_that_fails_keeps_the_keys_and_is_said_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.world.advance(HOUR_MS)
    assert broker.fetches.count == 2
    pauses_ms = []
    for _ in range(10):
        broker.fetched(BadKeys("the provider did not answer"))
        before_ms, before = broker.world.clock.boot_ms, broker.fetches.count
        while broker.fetches.count == before:
            broker.world.advance(100)
        pauses_ms.append(broker.world.clock.boot_ms - before_ms)
        Client(broker).log_in()
    assert broker.world.node.authentications.token_keys.failures() == [(URL, 10)]
    assert pauses_ms == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in said] == [
        "the keys of tokens (sasl.oauthbearer.jwks.endpoint.url) could not be fetched, and those of before go on: the "
        "provider did not answer"
    ]
    broker.fetched()
    assert broker.world.node.authentications.token_keys.failures() == [(URL, 0)]
    broker.world.advance(HOUR_MS - 1)
    count = broker.fetches.count
    broker.world.advance(1)
    assert broker.fetches.count == count + 1


def test_no_token_is_taken_before_there_are_keys(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    exchange = Client(broker).waits(broker.provider.token())
    broker.fetched(BadKeys("the provider did not answer"))
    assert exchange.answer.auth_bytes == REFUSED.encode()
    assert "no token is taken until they are" in caplog.text
    broker.world.kill()


def test_a_key_that_the_provider_has_dropped_is_forgotten(broker: Broker) -> None:
    token = broker.provider.token()
    dropped = broker.provider.key_id
    broker.provider.rotate()
    del broker.provider.keys[dropped]
    broker.world.advance(HOUR_MS)
    broker.fetched()
    client = Client(broker)
    client.waits(broker.provider.sign(broker.provider.claims(), kid=dropped))
    broker.fetched()
    assert client.token(b"\x01").error_message == REFUSED
    assert Client(broker).is_refused(token)
