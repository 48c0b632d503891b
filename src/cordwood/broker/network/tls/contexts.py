"""An `ssl.SSLContext` from the settings and certificates of a listener."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.broker.network.tls.certificates import OwnCertificates
from cordwood.model.errors import BadCertificates
from cordwood.model.settings.tls_settings import NO_CERTIFICATE, REQUESTED, TLS_1_2, TLS_1_3, ListenerTls

SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3 that OpenSSL offers. Python 3.11 has no way to choose among them."""

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


def make_context(tls: ListenerTls, certificates: OwnCertificates) -> ssl.SSLContext:
    """Raises BadCertificates if OpenSSL refuses the certificates or the settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = set(tls.versions)
    if tls.cipher_suites:
        versions &= _choose_suites(context, tls)
    if not versions:
        raise BadCertificates(
            f"ssl.cipher.suites of {tls.listener} has no suite of {' or '.join(tls.versions)}, which "
            "ssl.enabled.protocols allows"
        )
    context.minimum_version = min(_VERSIONS[each] for each in versions)
    context.maximum_version = max(_VERSIONS[each] for each in versions)
    _load_certificates(context, tls, certificates)
    if tls.client_auth != NO_CERTIFICATE:
        context.verify_mode = ssl.CERT_OPTIONAL if tls.client_auth == REQUESTED else ssl.CERT_REQUIRED
        _load_authorities(context, tls, certificates)
    return context


def make_dialling_context(tls: ListenerTls, certificates: OwnCertificates) -> ssl.SSLContext:
    """The context of connections to other brokers' listeners of this name: with the certificate of the own listener,
    and its authorities. Raises BadCertificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_hosts
    context.minimum_version = min(_VERSIONS[each] for each in tls.versions)
    context.maximum_version = max(_VERSIONS[each] for each in tls.versions)
    _load_certificates(context, tls, certificates)
    _load_authorities(context, tls, certificates)
    return context


def _load_certificates(context: ssl.SSLContext, tls: ListenerTls, certificates: OwnCertificates) -> None:
    try:
        with _as_file(certificates.keystore) as path:
            # A key that is not encrypted needs no password; without one OpenSSL would ask at the terminal.
            context.load_cert_chain(path, password=lambda: tls.key_password)
    except (ssl.SSLError, ValueError) as error:
        where = tls.keystore_location or "ssl.keystore.certificate.chain"
        raise BadCertificates(
            f"OpenSSL refuses {where} of {tls.listener}: {_words(error)}: make a key of another kind or size"
        ) from None


def _load_authorities(context: ssl.SSLContext, tls: ListenerTls, certificates: OwnCertificates) -> None:
    try:
        context.load_verify_locations(cadata=certificates.truststore)
    except ssl.SSLError as error:
        where = tls.truststore_location or "ssl.truststore.certificates"
        raise BadCertificates(
            f"OpenSSL refuses {where} of {tls.listener}: {_words(error)}: make the file anew"
        ) from None


def _choose_suites(context: ssl.SSLContext, tls: ListenerTls) -> set[str]:
    """Allows only the suites that the settings name. Returns the versions of TLS that have one."""
    newer = [suite for suite in tls.cipher_suites if suite in SUITES_OF_1_3]
    older = [suite for suite in tls.cipher_suites if suite not in SUITES_OF_1_3]
    if newer and len(set(newer)) < len(SUITES_OF_1_3) and TLS_1_3 in tls.versions:
        raise BadCertificates(
            f"ssl.cipher.suites of {tls.listener} names {', '.join(newer)}: the suites of TLS 1.3 cannot be chosen one "
            f"by one in Python: name all of them ({', '.join(SUITES_OF_1_3)}), or none, which leaves TLS 1.2"
        )
    versions = {TLS_1_3} if newer else set()
    if older:
        versions.add(TLS_1_2)
        names = [openssl_name(suite) for suite in older]
        for suite, name in zip(older, names, strict=True):
            _check_suite(suite, name, tls.listener)
        context.set_ciphers(":".join(names))
    return versions


def _check_suite(suite: str, name: str, listener: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
    except ssl.SSLError:
        known = ", ".join((*SUITES_OF_1_3, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"))
        raise BadCertificates(
            f"ssl.cipher.suites of {listener}: OpenSSL has no suite {suite}: names are those of IANA, such as {known}"
        ) from None


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2: ECDHE-RSA-AES128-GCM-SHA256 of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return suite
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20-POLY1305"
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _words(error: ssl.SSLError | ValueError) -> str:
    """OpenSSL's reason without its place in a file of C."""
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A file in memory, of which nothing reaches a disk: OpenSSL gets the bytes that were checked, whatever happens to
    their file meanwhile."""
    descriptor = os.memfd_create("certificates")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def handshake_words(error: Exception) -> str:
    """The reason of a failed handshake, for a log line, with the cure where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        words = f"certificate verify failed: {error.verify_message}"
    else:
        words = _words(error) if isinstance(error, ssl.SSLError) else str(error)
    cure = next((cure for part, cure in _CURES.items() if part in words), "")
    return f"{words}: {cure}" if cure else words


_CURES: Final = {
    "unknown ca": "the peer does not trust the broker's certificate, or not its host name: give the client the "
    "certificate of its authority (ssl.ca.location, ssl.truststore.location)",
    "certificate unknown": "the peer does not trust the broker's certificate: give the client the certificate of its "
    "authority (ssl.ca.location, ssl.truststore.location)",
    "bad certificate": "the peer refuses the broker's certificate",
    "certificate expired": "the peer takes the broker's certificate for expired",
    "peer did not return a certificate": "the listener asks for one (ssl.client.auth=required): give the client a key "
    "and a certificate",
    "has expired": "the client needs a new certificate",
    "certificate verify failed": "no authority in ssl.truststore.location vouches for the peer's certificate",
    "no shared cipher": "the peer has none of the broker's cipher suites (ssl.cipher.suites), or none for its kind of "
    "key",
    "unsupported protocol": "the peer speaks an older version of TLS than ssl.enabled.protocols allows",
    "wrong version number": "the peer does not speak TLS",
    "http request": "the peer speaks HTTP without TLS",
}
