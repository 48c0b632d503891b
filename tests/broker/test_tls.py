"""TLS at a listener: nothing in plain text on the wire, strangers who hold nobody up, bad peers, and certificates that
change."""

import asyncio
import datetime
import logging
import random
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import TlsClient, client_context, echo
from tests.broker.test_sending import CONTENT, Slice, file_with_content, response_of
from tests.certificates import Authority, name, rsa_key
from tests.deadline import eventually_here

from cordwood.broker.network.tls import layer, listeners
from cordwood.model.settings.listeners import Asks, Callers, Entrance
from cordwood.security.sessions import ANONYMOUS, Principal
from cordwood.wire.requests import RequestHeader

pytestmark = pytest.mark.parametrize("tls", [True], ids=["tls"])


async def answered(client: Any, request: bytes) -> None:
    await client.send(request)
    await client.receive_response()


# The wire


@pytest.mark.parametrize("kind", ["disk", "cold"])
async def test_no_byte_of_a_record_is_on_the_wire(
    serving: Any, request_frame: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_with_content(kind, tmp_path)

    def no_sendfile(*_: object) -> int:
        raise AssertionError("records left past the encryption")

    monkeypatch.setattr("os.sendfile", no_sendfile)
    parts = [Slice(file, 0, 1000), Slice(file, 100, 300_000), Slice(file, 7, len(CONTENT) - 7)]
    async with serving() as broker:
        client = await broker.connect()
        broker.node.answer = lambda header, body, reply: reply.send(response_of(1, *parts))
        await client.send(request_frame(1))
        _, body = await client.receive_response()
        assert len(body) > sum(part.length for part in parts)
        assert len(client.wire) > len(body)
        wire = bytes(client.wire)
        for start in range(0, len(CONTENT) - 16, 5_000):
            assert CONTENT[start : start + 16] not in wire
            assert CONTENT[start : start + 16] in body


async def test_an_answer_of_many_megabytes_arrives_whole(serving: Any, request_frame: Any) -> None:
    content = random.Random(2).randbytes(12_000_001)
    async with serving() as broker:
        client = await broker.connect()
        frame = struct.pack(">ii", 4 + len(content), 5) + content
        broker.node.answer = lambda header, body, reply: reply.send(frame)
        await client.send(request_frame(5) + request_frame(5))
        assert await client.receive_response() == (5, content)
        assert await client.receive_response() == (5, content)


# Who the peer is


async def test_a_client_with_a_certificate_is_its_subject(serving: Any, request_frame: Any, tmp_path: Path) -> None:
    settings = {"ssl.client.auth": "requested", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    async with serving(settings=settings) as broker:
        certificate = broker.files.client(name(CN="alice", O="Woods"))
        alice = await broker.connect(context=client_context(broker.files, certificate))
        nobody = await broker.connect()
        for client in (alice, nobody):
            await answered(client, request_frame(1))
        assert broker.node.reply(0).session.principal == Principal("User", "CN=alice,O=Woods")
        assert broker.node.reply(1).session.principal == ANONYMOUS


async def test_rules_make_a_name_of_the_subject(
    serving: Any, request_frame: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),O=Woods$/$1/U,RULE:.*O=Nobody$//",
    }
    async with serving(settings=settings) as broker:
        certificate = broker.files.client(name(CN="alice", O="Woods"))
        alice = await broker.connect(context=client_context(broker.files, certificate))
        await answered(alice, request_frame(1))
        assert broker.node.reply(0).session.principal == Principal("User", "ALICE")
        other = broker.files.client(name(CN="bob", O="Elsewhere"))
        await refused(broker, client_context(broker.files, other))
        await eventually_here(lambda: "no rule of ssl.principal.mapping.rules matches" in caplog.text)
        assert "CN=bob,O=Elsewhere" in caplog.text
        await refused(broker, client_context(broker.files, broker.files.client(name(CN="eve", O="Nobody"))))
        await eventually_here(lambda: "an empty name" in caplog.text)


# Handshakes that fail


async def refused(broker: Any, context: ssl.SSLContext) -> None:
    """A client with this context is refused, at the latest at its first request."""

    async def ask() -> None:
        client = await broker.connect(context=context)
        await answered(client, struct.pack(">ihhih", 10, 3, 0, 1, -1))

    with pytest.raises((ssl.SSLError, ConnectionError, struct.error)):
        await ask()
    await eventually_here(lambda: broker.tls.failures > 0)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no certificate", "give the client a key and a certificate"),
        ("of another authority", "no authority in ssl.truststore.location vouches for the peer's certificate"),
        ("expired", "the client needs a new certificate"),
        ("does not trust", "the peer does not trust the broker's certificate"),
        ("too old", "an older version of TLS than ssl.enabled.protocols allows"),
    ],
)
async def test_a_failed_handshake_is_told_with_the_cure(
    serving: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str, words: str
) -> None:
    caplog.set_level(logging.INFO)
    settings = {"ssl.client.auth": "required", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    if case == "too old":
        settings["ssl.enabled.protocols"] = "TLSv1.3"
    async with serving(settings=settings) as broker:
        own = broker.files.client(name(CN="alice"))
        context = client_context(broker.files, None if case == "no certificate" else own)
        if case == "of another authority":
            own.write_bytes(Authority("others").issue(name(CN="alice")).keystore())
            context.load_cert_chain(own)
        elif case == "expired":
            day = datetime.timedelta(days=1)
            own.write_bytes(broker.files.authority.issue(name(CN="alice"), begins=-2 * day, lasts=day).keystore())
            context.load_cert_chain(own)
        elif case == "does not trust":
            context = ssl.create_default_context()
            context.load_cert_chain(own)
        elif case == "too old":
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        await refused(broker, context)
        await eventually_here(lambda: words in caplog.text)
        assert broker.node.requests == []


async def test_a_client_without_tls_is_told_in_the_log(
    serving: Any, request_frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as broker:
        for beginning, spoken in (
            (request_frame(1), "the Kafka protocol in plain text"),
            (b"GET / HTTP/1.1\r\n", "HTTP"),
        ):
            client = await broker.stranger()
            await client.send(beginning)
            assert await client.closed()
            assert f"takes TLS only, and the peer speaks {spoken}" in caplog.text
        assert "security.protocol=SSL" in caplog.text
        assert broker.node.requests == []


async def test_a_handshake_has_ten_seconds(
    serving: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(layer, "HANDSHAKE_S", 0.2)
    async with serving() as broker:
        silent, half = await broker.stranger(), await broker.stranger()
        await half.send(first_bytes(broker)[:20])
        assert await silent.closed()
        assert await half.closed()
        assert "it took more than 0.2 s" in caplog.text
        assert len(broker.connections) == 0


def first_bytes(broker: Any) -> bytes:
    """How a client begins."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(broker.files).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_garbage_after_the_handshake_ends_the_connection(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        await answered(client, request_frame(1))
        await broker.loop.sock_sendall(client.socket, b"\x17\x03\x03\x00\x40" + bytes(64))
        assert await broker_closed(client)
        assert broker.failures == []


async def broker_closed(client: TlsClient) -> bool:
    try:
        while await client.loop.sock_recv(client.socket, 1 << 16):
            pass
    except ConnectionError:
        pass
    return True


# Strangers


async def test_a_connection_counts_before_its_handshake(serving: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(max_connections_per_address=2) as broker:
        strangers = [await broker.stranger() for _ in range(2)]
        await eventually_here(lambda: len(broker.connections), to_be=2)
        third = await broker.stranger()
        assert await third.closed()
        assert "max.connections.per.ip" in caplog.text
        assert len(strangers) == 2


async def test_strangers_without_a_handshake_make_way_for_clients(
    serving: Any, request_frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(max_connections=3) as broker:
        client = await broker.connect()
        strangers = [await broker.stranger() for _ in range(2)]
        await eventually_here(lambda: len(broker.connections), to_be=3)
        monkeypatch.setattr("cordwood.broker.network.connections.MAKES_WAY_AFTER_S", 100.0)
        assert await (await broker.stranger()).closed(), "a stranger has a moment for its handshake"
        monkeypatch.setattr("cordwood.broker.network.connections.MAKES_WAY_AFTER_S", 0.0)
        others = []
        for stranger in strangers:
            others.append(await broker.connect())
            await answered(others[-1], request_frame(0))  # with TLS 1.3 a client is done before the broker is
            assert await stranger.closed()
        assert await (await broker.stranger()).closed(), "whoever has finished a handshake makes way for nobody"
        for other in (client, *others):
            await answered(other, request_frame(1))


async def test_strangers_who_do_not_log_in_make_way_for_users(
    serving: Any, request_frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordwood.broker.network.connections.MAKES_WAY_AFTER_S", 0.0)
    asked = Entrance("SASL_SSL", Callers.CLIENTS, Asks(("SCRAM-SHA-256",)))
    async with serving(max_connections=2) as broker:
        broker.server.close()
        broker.server = await broker.loop.create_server(lambda: broker.make_connection(asked), "127.0.0.1", 0)
        broker.address = broker.server.sockets[0].getsockname()
        broker.node.answer = log_in
        user = await broker.connect()
        await answered(user, request_frame(1))
        broker.node.answer = echo
        idler = await broker.connect()
        await answered(idler, request_frame(1))
        another = await broker.connect()
        assert await idler.closed()
        for each in (user, another):
            await answered(each, request_frame(2))


def log_in(header: RequestHeader, body: bytes, reply: Any) -> None:
    reply.begin(reply.session._replace(mechanism="SCRAM-SHA-256", ends_ms=None))
    echo(header, body, reply)


async def test_two_hundred_half_handshakes_hold_nobody_up(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        client = await broker.connect()
        begin = first_bytes(broker)
        strangers = [await broker.stranger() for _ in range(200)]
        for stranger in strangers:
            await stranger.send(begin)
        slowest_s = 0.0
        while broker.tls_resources.threads.waiting:
            began_s = broker.loop.time()
            await answered(client, request_frame(1))
            slowest_s = max(slowest_s, broker.loop.time() - began_s)
        other = await broker.connect(source="127.0.0.2")
        await answered(other, request_frame(2))
        # All handshakes together take 0.3 s of CPU: nobody waits for all of them.
        assert slowest_s < 0.2
        for stranger in strangers:
            assert (await stranger.some(1 << 16))[0] == 0x16


async def test_strangers_who_leave_in_the_middle_leave_nothing_behind(serving: Any, request_frame: Any) -> None:
    async with serving() as broker:
        begin = first_bytes(broker)
        for length in (0, 1, 5, 100, len(begin)):
            stranger = await broker.stranger()
            await stranger.send(begin[:length])
            stranger.close()
        await eventually_here(lambda: broker.connections.accepted, to_be=5)
        await eventually_here(lambda: len(broker.connections), to_be=0)
        await answered(await broker.connect(), request_frame(1))


async def test_more_connections_than_the_rate_wait_for_their_turn(serving: Any, request_frame: Any) -> None:
    async with serving(max_creation_rate=10) as broker:
        began_s = broker.loop.time()
        clients = await asyncio.gather(*(broker.connect() for _ in range(14)))
        for client in clients:
            await answered(client, request_frame(1))
        assert broker.loop.time() - began_s >= 0.25


# Versions and suites


@pytest.mark.parametrize(
    ("settings", "offered", "spoken"),
    [
        ({}, "TLSv1_3", ("TLSv1.3", None)),
        ({}, "TLSv1_2", ("TLSv1.2", None)),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1_3", ("TLSv1.2", None)),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1_3",
            ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},
            "TLSv1_2",
            ("TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ),
    ],
)
async def test_versions_and_suites_are_those_of_the_settings(
    serving: Any, request_frame: Any, settings: dict[str, str], offered: str, spoken: tuple[str, str | None]
) -> None:
    async with serving(settings=settings) as broker:
        context = client_context(broker.files)
        context.maximum_version = ssl.TLSVersion[offered]
        client = await broker.connect(context=context)
        await answered(client, request_frame(1))
        version, suite = spoken
        assert client.tls.version() == version
        assert suite is None or client.tls.cipher()[0] == suite


# Certificates that change


async def test_a_changed_certificate_serves_the_next_connection(
    serving: Any, request_frame: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.05)
    caplog.set_level(logging.INFO)
    async with serving() as broker:
        listener = broker.tls["SSL"]
        before = await broker.connect()
        new = broker.files.authority.issue(name(CN="new broker"), key=rsa_key())
        broker.files.write(new)
        await eventually_here(lambda: listener.expires_s == new.certificate.not_valid_after_utc.timestamp())
        after = await broker.connect()
        for client in (before, after):
            await answered(client, request_frame(1))
        assert common_name(before) == "broker"
        assert common_name(after) == "new broker"
        await eventually_here(lambda: "serving changed certificates of SSL" in caplog.text)


def common_name(client: TlsClient) -> str:
    found = client.tls.getpeercert()
    assert found is not None
    return dict(part for parts in found["subject"] for part in parts)["commonName"]  # type: ignore[misc]


async def test_a_pair_that_does_not_fit_is_refused_and_the_old_one_stays(
    serving: Any, request_frame: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.05)
    async with serving() as broker:
        one, other = broker.files.authority.issue(), broker.files.authority.issue()
        broker.files.keystore.write_bytes(one.key_pem() + other.certificate_pem)
        await eventually_here(lambda: "the private key does not fit the first certificate" in caplog.text)
        broker.files.keystore.unlink()
        await eventually_here(lambda: "cannot be read: No such file" in caplog.text)
        await answered(await broker.connect(), request_frame(1))
        # One line for each state of the files, however often they are looked at.
        assert caplog.text.count("does not fit") == 1
