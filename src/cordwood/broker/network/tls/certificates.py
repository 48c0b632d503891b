"""The certificates of a listener: read from their files, and looked at before OpenSSL sees them.

OpenSSL says of a wrong file `PEM lib`. Here each fault is told with its file and the cure. `cryptography` is imported
where it is used: a broker without TLS starts without it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from cordwood.model.errors import BadCertificates
from cordwood.model.settings.by_listener import listener_setting
from cordwood.model.settings.tls_settings import ListenerTls, conversion
from cordwood.security.subjects import subject_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

LARGEST_FILE_BYTES: Final = 4 * 1024 * 1024
_KEYSTORE: Final = "ssl.keystore.location"
_TRUSTSTORE: Final = "ssl.truststore.location"
_BEGINNINGS: Final = {
    b"\xfe\xed\xfe\xed": "JKS",
    b"\xce\xce\xce\xce": "JKS",
    b"\x30\x82": "PKCS12",
    b"\x30\x80": "PKCS12",
}
"""The first bytes of the files of Java's programs."""


class OwnCertificates(NamedTuple):
    """The certificates of a listener, as they were read."""

    keystore: bytes
    """The private key and the chain, in PEM."""
    truststore: str
    """The authorities of clients, in PEM; empty if clients are not asked for certificates."""
    expires_s: float
    """The end of the first certificate of the chain that ends, as a Unix time."""


def read_certificates(tls: ListenerTls) -> OwnCertificates:
    """Reads the files of a listener and checks that they can be served. Raises BadCertificates."""
    place = tls.keystore_location
    if place:
        keystore, where = _content(place, _KEYSTORE, tls.listener), f"{place} ({_KEYSTORE} of {tls.listener})"
    else:
        keystore = f"{tls.keystore_key}\n{tls.certificate_chain}\n".encode()
        where = f"ssl.keystore.key with ssl.keystore.certificate.chain of {tls.listener}"
    chain = _chain(keystore, where)
    key = _key(keystore, where, tls)
    if not _fits(key, chain[0]):
        raise BadCertificates(
            f"{where}: the private key does not fit the first certificate ({_subject(chain[0])}): the file needs the "
            "key that the certificate was made for, and that certificate before those of its authorities"
        )
    now = datetime.now(UTC)
    for certificate in chain:
        _check_time(certificate, now, where)
    truststore = _truststore(tls)
    return OwnCertificates(keystore, truststore, min(each.not_valid_after_utc for each in chain).timestamp())


def files_of(tls: ListenerTls) -> tuple[str, ...]:
    """The files that a listener's certificates are read from."""
    return tuple(file for file in (tls.keystore_location, tls.truststore_location) if file)


LONGEST_SUBJECT: Final = 2_048
MOST_ATTRIBUTES: Final = 64
"""A rule as in Kafka's documentation, `^CN=(.*?),OU=(.*?),O=(.*?),...$`, takes 15 ms to refuse a subject with 60
attributes, and minutes with 500: nothing else runs in the process meanwhile."""


def subject_of_peer(der: bytes, now: datetime) -> str:
    """The subject of a client's certificate, as Java writes it. Raises BadSubject, or ValueError for a certificate that
    cannot be read or has expired: the certificate of a resumed session is not looked at by OpenSSL."""
    from cryptography.x509 import load_der_x509_certificate

    certificate = load_der_x509_certificate(der)
    if certificate.not_valid_after_utc < now:
        raise ValueError(
            f"the certificate of the client expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
    subject = _subject(certificate)
    if len(subject) > LONGEST_SUBJECT or subject.count("=") > MOST_ATTRIBUTES:
        raise ValueError(
            f"the subject of the client's certificate has {len(subject)} characters and {subject.count('=')} "
            f"attributes; taken are {LONGEST_SUBJECT} and {MOST_ATTRIBUTES}"
        )
    return subject


def _subject(certificate: Certificate) -> str:
    return subject_text(certificate.subject.public_bytes())


def _content(file: str, setting: str, listener: str) -> bytes:
    where = f"{file} ({setting} of {listener})"
    try:
        with open(file, "rb") as opened:
            content = opened.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise BadCertificates(
            f"{where} cannot be read: {error.strerror}: make it, let the user of the broker read it, or name another "
            f"file with {setting} or {listener_setting(listener, setting)}"
        ) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise BadCertificates(f"{where} has more than {LARGEST_FILE_BYTES} bytes: name a PEM file")
    kind = _BEGINNINGS.get(content[:4]) or _BEGINNINGS.get(content[:2])
    if kind is not None:
        raise BadCertificates(
            f"{where} is a {kind} file, and only PEM is supported: convert it with `{conversion(kind, file)}`"
        )
    return content


def _chain(pem: bytes, where: str) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise BadCertificates(
            f"{where} has no certificate: it needs `-----BEGIN CERTIFICATE-----`, as of `cat key.pem fullchain.pem`"
        )
    try:
        return load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadCertificates(
            f"{where} has a certificate that cannot be read: {_reason(error)}: make the file anew"
        ) from None


def _key(pem: bytes, where: str, tls: ListenerTls) -> PrivateKeyTypes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    start = pem.find(b"PRIVATE KEY-----")
    start = pem.rfind(b"-----BEGIN", 0, start) if start >= 0 else -1
    if start < 0:
        raise BadCertificates(
            f"{where} has no private key: it needs `-----BEGIN PRIVATE KEY-----`, as of `cat key.pem fullchain.pem`"
        )
    password = tls.key_password
    encrypted = b"ENCRYPTED" in pem[start : start + 200]
    setting = f"ssl.key.password, or {listener_setting(tls.listener, 'ssl.key.password')}, in the configuration file"
    if encrypted and not password:
        raise BadCertificates(f"{where}: the private key is encrypted: set {setting}")
    try:
        return load_pem_private_key(pem[start:], password.encode() if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if encrypted and "password" in str(error).lower():
            raise BadCertificates(f"{where}: the password does not open the private key: look at {setting}") from None
        raise BadCertificates(
            f"{where}: the private key cannot be read: {_reason(error)}: make the file anew"
        ) from None


def _reason(error: Exception) -> str:
    """The first sentence of an error."""
    return str(error).partition(". ")[0]


def _fits(key: PrivateKeyTypes, certificate: Certificate) -> bool:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def _check_time(certificate: Certificate, now: datetime, where: str) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise BadCertificates(
            f"{where}: the certificate of {_subject(certificate)} expired on {end:%Y-%m-%d %H:%M} UTC: put a new one "
            "there"
        )
    if now < start:
        raise BadCertificates(
            f"{where}: the certificate of {_subject(certificate)} begins on {start:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} UTC: set this machine's clock, or take another certificate"
        )


def _truststore(tls: ListenerTls) -> str:
    if tls.truststore_location:
        content = _content(tls.truststore_location, _TRUSTSTORE, tls.listener)
        where = f"{tls.truststore_location} ({_TRUSTSTORE} of {tls.listener})"
    else:
        content, where = tls.truststore_certificates.encode(), f"ssl.truststore.certificates of {tls.listener}"
    if not content:
        return ""
    _chain(content, where)
    return content.decode("ascii", errors="replace")
