"""Real clients log in by tokens of a real OpenID server over HTTPS: confluent-kafka, kafka-python and aiokafka."""

import asyncio
import ssl
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from benchmarks.kafka_peer import KafkaJars
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.certificates import TlsFiles, tls_files
from tests.deadline import eventually
from tests.identity_provider import AUDIENCE, ISSUER, SECRET, USER, OpenIdServer, Provider, open_id_server
from tests.interop.conftest import JVM_FLAGS
from tests.interop.raw_batches import batch_of

from cordwood.administration.connection import Connection
from cordwood.client import tokens as kept_tokens
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import LATEST, Cluster
from cordwood.client.errors import BrokerUnreachable, SecurityFailure
from cordwood.embedded import Broker
from cordwood.model.identifiers import TopicPartition
from cordwood.security.connection_settings import TokenSource

TIMEOUT_S = 60
JAVA_OAUTH = "org.apache.kafka.common.security.oauthbearer"
MakeToken = Callable[[], str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def provider(files: TlsFiles) -> Iterator[OpenIdServer]:
    with open_id_server(files) as server:
        yield server


def settings_for(provider: OpenIdServer, **more: str) -> dict[str, str]:
    return {
        "listeners": "INSIDE://127.0.0.1:0,USERS://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,USERS:SASL_SSL",
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.location": str(provider.tls.keystore),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.jwks.endpoint.ssl.truststore.location": str(provider.authorities),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.groups.claim.name": "groups",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        **more,
    }


@pytest.fixture
def broker(provider: OpenIdServer) -> Iterator[Broker]:
    with Broker(settings=settings_for(provider)) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def of_librdkafka(broker: Broker, files: TlsFiles, make: MakeToken, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listeners["USERS"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.truststore),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (make(), time.time() + 600),
        **more,
    }


def by_oidc(broker: Broker, provider: OpenIdServer, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.listeners["USERS"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(provider.authorities),
        "https.ca.location": str(provider.authorities),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.id": USER,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "log.read",
        **more,
    }


class TokenOfPython(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, make: MakeToken) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return self._make()


class TokenOfAio(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, make: MakeToken) -> None:
        self._make = make

    async def token(self) -> str:
        return self._make()


def of_python(broker: Broker, files: TlsFiles, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.listeners["USERS"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


def write(settings: dict[str, Any], topic: str) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]


def read(settings: dict[str, Any], topic: str) -> bytes | None:
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = None
    deadline_s = time.monotonic() + TIMEOUT_S
    while message is None and time.monotonic() < deadline_s:
        message = consumer.poll(1)
    assert message is not None
    value: bytes | None = message.value()
    consumer.close()
    return value


def test_confluent_kafka_with_a_callback(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    settings = of_librdkafka(broker, provider.tls, provider.provider.token)
    write(settings, topic)
    assert read(settings, topic) == b"x"


def test_confluent_kafka_gets_its_tokens_from_the_server(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    write(by_oidc(broker, provider), topic)
    assert read(by_oidc(broker, provider), topic) == b"x"


def test_kafka_python(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    settings = of_python(broker, provider.tls, TokenOfPython(provider.provider.token))
    settings["ssl_cafile"] = str(provider.authorities)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"x"
    consumer.close()
    expired = {**settings, "sasl_oauth_token_provider": TokenOfPython(lambda: provider.provider.token(lasts_s=-1))}
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**expired, bootstrap_timeout_ms=1000)


def test_aiokafka(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    async def story() -> None:
        context = ssl.create_default_context(cafile=str(provider.authorities))
        settings = of_python(broker, provider.tls, TokenOfAio(provider.provider.token)) | {"ssl_context": context}
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"x"
        expired = TokenOfAio(lambda: provider.provider.token(lasts_s=-1))
        refused = AIOKafkaProducer(**{**settings, "sasl_oauth_token_provider": expired})
        with pytest.raises(AioKafkaError):
            await refused.start()

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


# Our own clients


def raw_write(settings: dict[str, Any], topic: str) -> None:
    with Cluster(Bootstrap.of(settings).settings()) as cluster:
        partition = TopicPartition(topic, 0)
        cluster.topics([topic], create=True)
        cluster.produce({partition: [batch_of([b"x"])]})
        assert cluster.list_offsets({partition: LATEST})[partition].offset == 1


def test_the_raw_client_and_the_commands(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    settings = by_oidc(broker, provider)
    raw_write(settings, topic)
    connection = Connection(settings["bootstrap.servers"], TIMEOUT_S, settings)
    assert topic in connection.call(lambda: connection.admin().list_topics(timeout=TIMEOUT_S)).topics
    # All connections of the raw client brought the same token.
    assert len(kept_tokens._kept) >= 1


def test_the_raw_client_names_the_reason_why_it_is_not_let_in(
    broker: Broker, provider: OpenIdServer, topic: str
) -> None:
    with pytest.raises(SecurityFailure, match=r"gave no token: HTTP status 401 'invalid_client' \(sasl.oauthbearer.cl"):
        raw_write(by_oidc(broker, provider, **{"sasl.oauthbearer.client.secret": "wrong"}), topic)
    provider.audience = "billing"
    with pytest.raises(SecurityFailure, match=r"does not take the token of bob: .*invalid_token"):
        raw_write(by_oidc(broker, provider, **{"sasl.oauthbearer.client.id": "bob"}), topic)
    provider.stop()
    with pytest.raises(BrokerUnreachable, match=r"no token \(sasl.oauthbearer.token.endpoint.url\): .*did not answer"):
        kept_tokens._fetch(tokens_of(by_oidc(broker, provider)))


def tokens_of(settings: dict[str, Any]) -> TokenSource:
    sasl = Bootstrap.of(settings).security.sasl
    assert sasl is not None
    assert sasl.tokens is not None
    return sasl.tokens


@pytest.mark.interop
@pytest.mark.timeout(540)
def test_java(broker: Broker, provider: OpenIdServer, topic: str, kafka_jars: KafkaJars, tmp_path: Path) -> None:
    """Java's producer fetches its tokens itself. Its trust of the provider stands in its line of JAAS."""
    log_in = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="{USER}" clientSecret="{SECRET}" scope="log.write" '
        f'ssl.truststore.type="PEM" ssl.truststore.location="{provider.authorities}";'
    )
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(provider.authorities),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{JAVA_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.jaas.config": log_in,
    }
    file = tmp_path / "client.properties"
    file.write_text("\n".join(f"{name}={value}" for name, value in settings.items()))

    def produce() -> str:
        arguments = ("--bootstrap-server", broker.listeners["USERS"], "--topic", topic, "--command-config", str(file))
        flags = (*JVM_FLAGS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/token")
        command = kafka_jars.command("org.apache.kafka.tools.ConsoleProducer", *arguments, jvm_flags=flags)
        done = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=200, check=False)
        return done.stdout + done.stderr

    said = produce()
    assert "Exception" not in said, said
    assert read(by_oidc(broker, provider), topic) == b"x"
    provider.audience = "billing"
    assert '{"status":"invalid_token"}' in produce()


# Tokens that are not taken


@pytest.mark.parametrize("kind", ["expired", "issuer", "audience", "other-key"])
def test_a_token_that_is_not_taken(broker: Broker, provider: OpenIdServer, kind: str) -> None:
    tokens: dict[str, MakeToken] = {
        "expired": lambda: provider.provider.token(lasts_s=-1),
        "issuer": lambda: provider.provider.token(iss="https://other.example"),
        "audience": lambda: provider.provider.token(aud="billing"),
        "other-key": Provider().token,
    }
    errors: list[KafkaError] = []
    producer = Producer(of_librdkafka(broker, provider.tls, tokens[kind], error_cb=errors.append))

    def is_refused() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    eventually(is_refused, what="an authentication error")
    assert any('{"status":"invalid_token"}' in error.str() for error in errors)


def test_a_key_is_rotated_under_load(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    """Connections of before go on, and new ones with the new key are let in: the first of them has it fetched."""
    errors: list[object] = []
    steady = Producer(of_librdkafka(broker, provider.tls, provider.provider.token))

    def send(producer: Producer) -> None:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))

    send(steady)
    assert steady.flush(TIMEOUT_S) == 0
    provider.provider.rotate()
    others = [Producer(of_librdkafka(broker, provider.tls, provider.provider.token)) for _ in range(4)]
    for producer in (steady, *others):
        send(producer)
    for producer in (steady, *others):
        assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * 6
    assert provider.key_requests == 2


def test_a_server_that_goes_down_leaves_its_keys(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    write(of_librdkafka(broker, provider.tls, provider.provider.token), topic)
    provider.stop()
    write(of_librdkafka(broker, provider.tls, provider.provider.token), topic)


def test_a_server_that_comes_later_is_found(provider: OpenIdServer, topic: str) -> None:
    good = provider.answer_keys
    provider.answer_keys = lambda request: request.send_error(503)
    with Broker(settings=settings_for(provider)) as broker:
        eventually(lambda: provider.key_requests >= 2, what="another attempt")
        provider.answer_keys = good
        write(of_librdkafka(broker, provider.tls, provider.provider.token), topic)


def test_clients_bring_a_new_token_before_the_old_one_ends(broker: Broker, provider: OpenIdServer, topic: str) -> None:
    """librdkafka does so on the same connection: no record is lost, and the user stays the same."""
    provider.lasts_s = 3
    errors: list[object] = []
    producer = Producer(by_oidc(broker, provider))
    end_s = time.monotonic() + 3 * provider.lasts_s
    sent = 0
    while time.monotonic() < end_s:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        sent += 1
    assert errors == [None] * sent
