"""Certificates that cannot be served are refused with the file and the cure."""

import datetime
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from tests.certificates import Authority, Issued, name, rsa_key

from cordwood.broker.network.tls.certificates import read_certificates
from cordwood.broker.network.tls.contexts import make_context, openssl_name
from cordwood.model.errors import BadCertificates
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.tls_settings import ListenerTls

DAY = datetime.timedelta(days=1)
AUTHORITY = Authority()
ISSUED = AUTHORITY.issue()
NO_KEY = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


def settings(file: Path, **more: str) -> ListenerTls:
    texts = {name.replace("_", "."): text for name, text in more.items()}
    texts = {"listeners": "CLIENTS://h:1", "listener.security.protocol.map": "CLIENTS:SSL", **texts}
    found = BrokerSettings.from_texts({**texts, "ssl.keystore.location": str(file)})
    return found.tls_listeners["CLIENTS"]


def context_of(tls: ListenerTls) -> ssl.SSLContext:
    return make_context(tls, read_certificates(tls))


def refusal(tls: ListenerTls) -> str:
    with pytest.raises(BadCertificates) as refused:
        context_of(tls)
    return str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.pem"


def test_a_key_and_its_certificate_are_served(file: Path) -> None:
    for issued in (ISSUED, AUTHORITY.issue(key=rsa_key())):
        file.write_bytes(issued.keystore())
        tls = settings(file)
        context_of(tls)
        assert read_certificates(tls).expires_s == issued.certificate.not_valid_after_utc.timestamp()


def test_the_first_certificate_of_the_chain_that_ends_counts(file: Path) -> None:
    soon = Authority("soon").issue(name(CN="between"), lasts=5 * DAY)
    file.write_bytes(ISSUED.keystore() + soon.certificate_pem)
    assert read_certificates(settings(file)).expires_s == soon.certificate.not_valid_after_utc.timestamp()


def test_an_encrypted_key_needs_its_password(file: Path) -> None:
    file.write_bytes(ISSUED.keystore("timber"))
    context_of(settings(file, ssl_key_password="timber"))
    assert "the private key is encrypted: set ssl.key.password" in refusal(settings(file))
    wrong = refusal(settings(file, ssl_key_password="oak"))
    assert "the password does not open the private key" in wrong
    assert "oak" not in wrong


def test_texts_take_the_place_of_a_file() -> None:
    texts = {
        "listeners": "SSL://h:1",
        "ssl.keystore.key": ISSUED.key_pem().decode(),
        "ssl.keystore.certificate.chain": ISSUED.certificate_pem.decode(),
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": AUTHORITY.pem.decode(),
    }
    context = context_of(BrokerSettings.from_texts(texts).tls_listeners["SSL"])
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def bad(content: bytes | None, *words: str) -> tuple[bytes | None, tuple[str, ...]]:
    return content, words


def expired() -> Issued:
    return AUTHORITY.issue(begins=-2 * DAY, lasts=DAY)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        bad(None, "cannot be read: No such file or directory", "listener.name.clients.ssl.keystore.location"),
        bad(b"", "has no certificate"),
        bad(ISSUED.key_pem(), "has no certificate", "cat key.pem fullchain.pem"),
        bad(ISSUED.certificate_pem, "has no private key", "cat key.pem fullchain.pem"),
        bad(ISSUED.key_pem() + AUTHORITY.issue().certificate_pem, "the private key does not fit", "CN=broker"),
        bad(ISSUED.key_pem() + AUTHORITY.pem + ISSUED.certificate_pem, "does not fit the first certificate"),
        bad(expired().keystore(), "the certificate of CN=broker expired on", "put a new one there"),
        bad(AUTHORITY.issue(begins=DAY).keystore(), "begins on", "set this machine's clock"),
        bad(ISSUED.key_pem() + ISSUED.certificate_pem[:200], "has a certificate that cannot be read"),
        bad(NO_KEY + ISSUED.certificate_pem, "the private key cannot be read"),
        bad(ISSUED.pkcs12(), "is a PKCS12 file", "openssl pkcs12 -in", "broker.pem"),
        bad(b"\xfe\xed\xfe\xed\0\0\0\2", "is a JKS file", "keytool -importkeystore -srckeystore", "&& openssl pkcs12"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused_with_the_cure(
    file: Path, content: bytes | None, words: tuple[str, ...]
) -> None:
    if content is not None:
        file.write_bytes(content)
    said = refusal(settings(file))
    assert f"{file} (ssl.keystore.location of CLIENTS)" in said
    for part in words:
        assert part in said


def test_the_file_of_authorities_is_looked_at_too(file: Path, tmp_path: Path) -> None:
    file.write_bytes(ISSUED.keystore())
    trusted = tmp_path / "ca.pem"
    tls = settings(file, ssl_client_auth="required", ssl_truststore_location=str(trusted))
    assert f"{trusted} (ssl.truststore.location of CLIENTS) cannot be read" in refusal(tls)
    trusted.write_bytes(b"nothing")
    assert "has no certificate" in refusal(tls)
    trusted.write_bytes(AUTHORITY.pem)
    assert context_of(tls).verify_mode is ssl.CERT_REQUIRED
    assert context_of(replace(tls, client_auth="requested")).verify_mode is ssl.CERT_OPTIONAL


@pytest.mark.parametrize(
    ("suite", "known_as"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_suites_have_the_names_of_iana(file: Path, suite: str, known_as: str) -> None:
    assert openssl_name(suite) == known_as
    file.write_bytes(ISSUED.keystore())
    context = context_of(settings(file, ssl_cipher_suites=suite))
    assert known_as in {each["name"] for each in context.get_ciphers()}
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssl_cipher_suites": "TLS_MADE_UP_WITH_PINE"}, "OpenSSL has no suite TLS_MADE_UP_WITH_PINE"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "cannot be chosen one by one"),
        (
            {"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA", "ssl_enabled_protocols": "TLSv1.3"},
            "has no suite of TLSv1.3",
        ),
    ],
)
def test_suites_that_cannot_be_had_are_refused(file: Path, more: dict[str, str], reason: str) -> None:
    file.write_bytes(ISSUED.keystore())
    assert reason in refusal(settings(file, **more))


def test_all_suites_of_tls_1_3_leave_that_version_alone(file: Path) -> None:
    file.write_bytes(ISSUED.keystore())
    suites = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    context = context_of(settings(file, ssl_cipher_suites=suites))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
