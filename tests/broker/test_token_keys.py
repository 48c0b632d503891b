"""Keys of tokens are read from files and real HTTPS servers, whatever these answer."""

import asyncio
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.certificates import Authority, tls_files
from tests.deadline import eventually
from tests.identity_provider import OpenIdServer, Provider, open_id_server, send

from cordwood.broker.network.token_keys import KeyReader, check_key_files, read_keys
from cordwood.client.transports import https
from cordwood.client.transports.contexts import context_of
from cordwood.model.errors import BadKeys
from cordwood.model.token_trust import KeySource
from cordwood.security.connection_settings import ClientTls
from cordwood.security.key_sets import KeySet


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OpenIdServer]:
    with open_id_server(tls_files(tmp_path)) as server:
        yield server


def source_of(server: OpenIdServer, path: str = "/keys") -> KeySource:
    return KeySource(server.url + path, str(server.authorities), 60_000, 100, 1000)


def file_source(path: Path) -> KeySource:
    return KeySource(f"file:{path}", "", 60_000, 100, 1000)


def refusal(source: KeySource) -> str:
    with pytest.raises(BadKeys) as bad:
        read_keys(source)
    return str(bad.value)


def test_keys_come_from_a_server(server: OpenIdServer) -> None:
    assert read_keys(source_of(server)).ids == "key-1"
    server.provider.rotate()
    assert read_keys(source_of(server)).ids == "key-1, key-2"


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my keys.json"
    file.write_bytes(Provider().key_set())
    assert read_keys(file_source(file)._replace(url=file.as_uri())).ids == "key-1"
    assert read_keys(file_source(file)).ids == "key-1"
    check_key_files([file_source(file)])


def test_files_that_cannot_be_used_are_refused_with_their_names(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    assert f"file:{file} cannot be read: No such file" in refusal(file_source(file))
    file.write_bytes(b"<html>")
    assert f"file:{file} has no keys: it is not JSON" in refusal(file_source(file))
    file.write_bytes(b" " * (https.MOST_BYTES + 1))
    assert f"has more than {https.MOST_BYTES} bytes" in refusal(file_source(file))
    with pytest.raises(BadKeys, match="has more than"):
        check_key_files([file_source(file)])
    missing = KeySource("https://127.0.0.1:1/", str(tmp_path / "ca.pem"), 60_000, 100, 1000)
    with pytest.raises(BadKeys, match=r"jwks\.endpoint\.ssl\.truststore\.location=.*ca\.pem cannot be used"):
        check_key_files([missing])


def test_a_server_need_not_answer_at_the_start(server: OpenIdServer) -> None:
    server.stop()
    check_key_files([source_of(server)])
    assert "did not answer: [Errno 111]" in refusal(source_of(server))


def test_a_server_of_another_authority_is_not_trusted(server: OpenIdServer, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("another authority").pem)
    distrusted = source_of(server)._replace(authorities_file=str(other))
    assert "is not trusted: unable to get local issuer" in refusal(distrusted)
    assert "is not trusted" in refusal(source_of(server)._replace(authorities_file=""))


def test_other_answers_are_no_keys(server: OpenIdServer) -> None:
    def answers(status: int, content: bytes, **headers: str) -> str:
        server.answer_keys = lambda request: send(request, status, content, **headers)
        return refusal(source_of(server))

    assert "HTTP status 500" in answers(500, server.provider.key_set())
    assert "HTTP status 302, and redirects are not taken" in answers(302, b"", Location=server.url)
    assert "it is not JSON" in answers(200, b"\x00\xff garbage")
    assert "it is not a JWK set" in answers(200, b"{}")
    assert "more than 1048576 bytes" in answers(200, b"x" * (https.MOST_BYTES + 1))


def test_an_answer_without_an_end_is_cut(server: OpenIdServer) -> None:
    def flood(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"x" * 65_536)

    server.answer_keys = flood
    assert "more than 1048576 bytes" in refusal(source_of(server))


@pytest.mark.parametrize("place", ["headers", "content", "silence"])
def test_a_slow_server_is_given_up_at_the_deadline(server: OpenIdServer, place: str) -> None:
    """Each byte comes well within a socket's timeout."""
    gone = []

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n" if place == "headers" else b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                if place != "silence":
                    request.wfile.write(b"x")
                time.sleep(0.02)
                request.connection.setblocking(True)
        except OSError:
            gone.append(True)

    server.answer_keys = drip
    began_s = time.monotonic()
    with pytest.raises(https.HttpsFailure, match=r"did not answer within 0\.5 s"):
        https.ask(server.url + "/keys", context_of(ClientTls(str(server.authorities))), most_s=0.5)
    assert time.monotonic() - began_s < 5


def test_a_plain_server_is_no_https_server() -> None:
    async def story() -> str:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            writer.close()

        plain = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = plain.sockets[0].getsockname()[1]
        source = KeySource(f"https://127.0.0.1:{port}/", "", 60_000, 100, 1000)
        async with plain:
            return await asyncio.to_thread(refusal, source)

    assert "did not answer" in asyncio.run(story())


def test_a_fetch_holds_the_loop_up_for_nothing_and_its_result_is_an_event(server: OpenIdServer) -> None:
    async def story() -> list[object]:
        events: list[object] = []
        results: asyncio.Queue[KeySet | Exception] = asyncio.Queue()

        def run_in_node(event: Callable[[], None]) -> None:
            events.append("event")
            event()

        reader = KeyReader(asyncio.get_running_loop(), run_in_node)
        reader.fetch(source_of(server), results.put_nowait)
        reader.fetch(source_of(server, "/keys")._replace(authorities_file="/nowhere"), results.put_nowait)
        found = [await results.get() for _ in range(2)]
        reader.close()
        return [*events, *sorted(type(each).__name__ for each in found)]

    assert asyncio.run(asyncio.wait_for(story(), 30)) == ["event", "event", "BadKeys", "KeySet"]


def test_servers_are_asked_once_for_each_fetch(server: OpenIdServer) -> None:
    read_keys(source_of(server))
    eventually(lambda: server.key_requests == 1, what="one request")
