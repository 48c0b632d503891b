"""A handshake that fails, or never ends: the client says what is wrong and what to do."""

import datetime
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from tests.certificates import Authority, Issued, TlsFiles, name, tls_files
from tests.unit.client.scripted_peer import Peer, ScriptedPeer
from tests.unit.client.test_client_connection import KEY, VERSION, ask, echo

from cordwood.client.connection import Connection
from cordwood.client.errors import BrokerUnreachable, ClientError, SecurityFailure
from cordwood.client.settings import ClientSettings
from cordwood.security.connection_settings import ClientTls, Security

DAY = datetime.timedelta(days=1)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return tls_files(tmp_path)


def connect(peer: ScriptedPeer, tls: ClientTls, host: str = "127.0.0.1") -> Connection:
    return Connection(host, peer.port, ClientSettings("a:1", security=Security(tls), connect_timeout_ms=20_000))


def test_a_certificate_of_an_unknown_authority(files: TlsFiles, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("another authority").pem)
    with ScriptedPeer(echo, files) as peer:
        for tls in (ClientTls(str(other)), ClientTls()):
            with pytest.raises(SecurityFailure, match=r"is not trusted: no authority of .* ssl\.ca\.location has to"):
                connect(peer, tls)
        assert ask(connect(peer, ClientTls(ca_pem=files.authority.pem.decode())), b"one") == b"one"


@pytest.mark.parametrize(
    ("begins", "lasts", "reason"), [(-2 * DAY, DAY, "has expired"), (DAY, DAY, "is not valid yet")]
)
def test_a_certificate_at_the_wrong_time(
    files: TlsFiles, begins: datetime.timedelta, lasts: datetime.timedelta, reason: str
) -> None:
    files.write(files.authority.issue(begins=begins, lasts=lasts))
    with ScriptedPeer(echo, files) as peer, pytest.raises(SecurityFailure, match=reason):
        connect(peer, ClientTls(str(files.truststore)))


def test_a_certificate_for_another_host(files: TlsFiles) -> None:
    files.write(files.authority.issue(hosts=["elsewhere"], addresses=[]))
    with ScriptedPeer(echo, files) as peer:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(SecurityFailure, match=f"for other names than {host}"):
                connect(peer, ClientTls(str(files.truststore)), host)
        unchecked = connect(peer, ClientTls(str(files.truststore), checks_host=False))
        assert ask(unchecked, b"one") == b"one"


def test_a_listener_in_plain_text_that_answers() -> None:
    with (
        ScriptedPeer(lambda peer: peer.socket.sendall(b"HTTP/1.1 400 Bad")) as peer,
        pytest.raises(SecurityFailure, match="speaks plain text at this port"),
    ):
        connect(peer, ClientTls())


def test_a_listener_in_plain_text_that_hangs_up() -> None:
    with ScriptedPeer(lambda peer: None) as peer, pytest.raises(BrokerUnreachable, match="broke off the TLS handshake"):
        connect(peer, ClientTls())


def test_a_listener_with_tls_that_hears_plain_text(files: TlsFiles) -> None:
    with ScriptedPeer(echo, files) as peer:
        connection = Connection("127.0.0.1", peer.port, ClientSettings("a:1"))
        with pytest.raises(BrokerUnreachable, match=r"speaks TLS at this port|may want TLS and a log-in"):
            connection.request(KEY, VERSION, b"?")


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x03\x40\x00"])
def test_a_peer_that_stalls_in_the_handshake_is_not_waited_for_longer_than_allowed(beginning: bytes) -> None:
    done = threading.Event()

    def script(peer: Peer) -> None:
        peer.socket.sendall(beginning)
        done.wait(30)

    with ScriptedPeer(script) as peer:
        settings = ClientSettings("a:1", security=Security(ClientTls()), connect_timeout_ms=200)
        with pytest.raises(BrokerUnreachable, match="did not end the TLS handshake in time"):
            Connection("127.0.0.1", peer.port, settings)
        done.set()


def test_a_peer_that_sends_its_handshake_byte_by_byte_is_not_waited_for_longer_than_allowed() -> None:
    def script(peer: Peer) -> None:
        peer.socket.sendall(b"\x16\x03\x03\x40\x00")
        while True:
            peer.socket.sendall(b"\x02")
            time.sleep(0.02)

    with ScriptedPeer(script) as peer:
        settings = ClientSettings("a:1", security=Security(ClientTls()), connect_timeout_ms=300)
        with pytest.raises(BrokerUnreachable, match="did not end the TLS handshake in time"):
            Connection("127.0.0.1", peer.port, settings)


class AskingPeer(ScriptedPeer):
    """Asks its clients for a certificate."""

    def __init__(self, files: TlsFiles) -> None:
        super().__init__(echo, files)
        assert self._context is not None
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(files.truststore)


def test_a_client_proves_itself_by_a_certificate(files: TlsFiles, tmp_path: Path) -> None:
    issued = files.authority.issue(name(CN="alice"))
    certificate, key = _client_files(issued, tmp_path, "open!")
    with AskingPeer(files) as peer:
        tls = ClientTls(str(files.truststore), "", certificate, key, "open!")
        assert ask(connect(peer, tls), b"one") == b"one"
        with pytest.raises(SecurityFailure, match=r"ssl\.key\.password has to open it") as refused:
            connect(peer, ClientTls(str(files.truststore), "", certificate, key, "wrong!"))
        assert "wrong!" not in str(refused.value)
        with pytest.raises(SecurityFailure, match=r"ssl\.key\.password"):
            connect(peer, ClientTls(str(files.truststore), "", certificate, key))
        with pytest.raises(
            SecurityFailure, match=r"missing\.pem with ssl\.key\.location=.* cannot be read: No such file"
        ):
            connect(peer, ClientTls(str(files.truststore), "", "missing.pem", key))


def test_a_client_proves_itself_by_a_certificate_that_is_in_no_file(files: TlsFiles, tmp_path: Path) -> None:
    issued = files.authority.issue(name(CN="alice"))
    certificate, key = (Path(path).read_text() for path in _client_files(issued, tmp_path, "open!"))

    def tls(key_password: str) -> ClientTls:
        authority = files.authority.pem.decode()
        return ClientTls(ca_pem=authority, certificate_pem=certificate, key_pem=key, key_password=key_password)

    with AskingPeer(files) as peer:
        assert ask(connect(peer, tls("open!")), b"one") == b"one"
        with pytest.raises(
            SecurityFailure, match=r"ssl\.certificate\.pem .* ssl\.key\.password has to open it"
        ) as refused:
            connect(peer, tls("wrong!"))
        assert "PRIVATE KEY" not in str(refused.value)


def test_the_key_may_be_in_the_file_of_the_certificate(files: TlsFiles, tmp_path: Path) -> None:
    certificate, key = (
        Path(path) for path in _client_files(files.authority.issue(name(CN="alice")), tmp_path, "open!")
    )
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with AskingPeer(files) as peer:
        tls = ClientTls(str(files.truststore), "", str(both), key_password="open!")
        assert ask(connect(peer, tls), b"one") == b"one"


def test_a_client_without_the_certificate_that_a_listener_asks_for(files: TlsFiles) -> None:
    with (
        AskingPeer(files) as peer,
        pytest.raises(ClientError, match=r"certificate required: the listener asks for a certificate: set"),
    ):
        # A request on its way could meet the end of the connection before the reason.
        connect(peer, ClientTls(str(files.truststore))).receive(1)


def test_authorities_that_cannot_be_read(files: TlsFiles, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    with ScriptedPeer(echo, files) as peer:
        for location, reason in [("missing.pem", "cannot be read: No such file"), ("empty.pem", "has no certificate")]:
            with pytest.raises(SecurityFailure, match=rf"ssl\.ca\.location=.*{location} {reason}"):
                connect(peer, ClientTls(str(tmp_path / location)))
        with pytest.raises(SecurityFailure, match=r"ssl\.ca\.pem"):
            connect(peer, ClientTls(ca_pem="nothing"))


def test_the_socket_of_a_failed_handshake_is_closed(files: TlsFiles) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"no TLS here")
                while data := accepted.recv(4096):
                    heard.append(data)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SecurityFailure):
            Connection("127.0.0.1", listener.getsockname()[1], ClientSettings("a:1", security=Security(ClientTls())))
        thread.join(30)
        assert not thread.is_alive()
    assert heard


def _client_files(issued: Issued, directory: Path, password: str) -> tuple[str, str]:
    certificate, key = directory / "client.pem", directory / "client.key"
    certificate.write_bytes(issued.certificate_pem)
    key.write_bytes(issued.key_pem(password))
    return str(certificate), str(key)
