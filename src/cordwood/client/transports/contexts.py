"""OpenSSL's view of the settings of TLS, and its failures in words that have a cure."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.security.connection_settings import (
    CA_LOCATION,
    CA_PEM,
    CERTIFICATE,
    CERTIFICATE_PEM,
    HOST_CHECK,
    KEY,
    KEY_PASSWORD,
    KEY_PEM,
    ClientTls,
)

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAME: Final = frozenset({62, 64})
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""Numbers of OpenSSL (X509_V_ERR_…)."""


class TlsRefused(Exception):
    """No connection over TLS: a setting, or a certificate, is wrong. Another attempt would end alike."""


def context_of(tls: ClientTls, name: str = "the broker") -> ssl.SSLContext:
    """Reads the files of the settings. Raises TlsRefused, which names the setting and the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_host
    _trust(context, tls, name)
    if tls.certificate_pem:
        with _as_file(f"{tls.key_pem}\n{tls.certificate_pem}".encode()) as path:
            _take_certificate(context, path, path, f"{CERTIFICATE_PEM} and {KEY_PEM}", tls.key_password, name)
    elif tls.certificate_location:
        key = tls.key_location or tls.certificate_location
        told = f"{CERTIFICATE}={tls.certificate_location} with {KEY}={key}"
        _take_certificate(context, tls.certificate_location, key, told, tls.key_password, name)
    return context


def _trust(context: ssl.SSLContext, tls: ClientTls, name: str) -> None:
    setting, shown = (CA_PEM, CA_PEM) if tls.ca_pem else (CA_LOCATION, f"{CA_LOCATION}={tls.ca_location}")
    try:
        if tls.ca_pem:
            context.load_verify_locations(cadata=tls.ca_pem)
        elif not tls.ca_location:
            context.load_default_certs()
        else:
            _trust_location(context, tls.ca_location)
    except ssl.SSLError as error:
        raise TlsRefused(f"{name} cannot be verified: {shown} has no certificate in PEM: {_words(error)}") from error
    except OSError as error:
        raise TlsRefused(f"{name} cannot be verified: {shown} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TlsRefused(f"{name} cannot be verified: {setting} is not text in PEM") from error


def _trust_location(context: ssl.SSLContext, location: str) -> None:
    if os.path.isdir(location):
        context.load_verify_locations(capath=location)
    else:
        context.load_verify_locations(cafile=location)


def _take_certificate(
    context: ssl.SSLContext, certificate: str, key: str, told: str, key_password: str, name: str
) -> None:
    """`told` names the settings and their files."""
    try:
        # Without an answer OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, lambda: key_password)
    except ssl.SSLError as error:
        words = _words(error)
        is_closed = key_password or "decrypt" in words or "pem lib" in words
        cure = f": {KEY_PASSWORD} has to open it" if is_closed else ""
        raise TlsRefused(f"{told} cannot be used for {name}: {words}{cure}") from None
    except OSError as error:
        raise TlsRefused(f"{told} cannot be read: {error.strerror}") from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A file of the content, which only its owner may read while it is there: OpenSSL takes a key from no other place.
    On Linux it is in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def handshake_failure(error: Exception, name: str, host: str, tls: ClientTls) -> TlsRefused:
    """The failure of a handshake, with the cure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsRefused(f"{name} is not trusted: {_distrust(error, host, tls)}")
    if not isinstance(error, ssl.SSLError):
        return TlsRefused(
            f"{name} speaks plain text at this port, and the client was told to speak TLS: name the port of a listener "
            "with TLS, or set security.protocol to a protocol without SSL"
        )
    return TlsRefused(f"{name} and the client did not agree on TLS: {failure_words(error)}")


def _distrust(error: ssl.SSLCertVerificationError, host: str, tls: ClientTls) -> str:
    told = error.verify_message
    trusted = tls.ca_location or (CA_PEM if tls.ca_pem else "the system's authorities")
    if error.verify_code == _EXPIRED:
        return f"its certificate, or that of its authority, has expired ({told}): the broker needs a new one"
    if error.verify_code == _NOT_YET_VALID:
        return f"its certificate is not valid yet ({told}): compare the clocks of the two machines"
    if error.verify_code in _WRONG_NAME:
        return (
            f"its certificate is for other names than {host} ({told}): connect by a name of the certificate, or give "
            f"the broker one with this name; {HOST_CHECK}=none compares no names"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"no authority of {trusted} signed its certificate ({told}): {CA_LOCATION} has to name its authority"
    return told


_CURES: Final = {
    "certificate required": f"the listener asks for a certificate: set {CERTIFICATE} and {KEY}",
    "unknown ca": f"the listener trusts another authority than that of {CERTIFICATE}",
    "certificate expired": f"the certificate of {CERTIFICATE} has expired",
    "bad certificate": f"the listener refuses the certificate of {CERTIFICATE}",
    "wrong version number": "the listener speaks plain text, or another protocol",
    "protocol version": "the listener has TLS 1.2 or 1.3 switched off",
    "handshake failure": f"the two have no suite in common, or the listener asks for a certificate ({CERTIFICATE})",
}


def failure_words(error: ssl.SSLError) -> str:
    """OpenSSL's reason, with the cure where there is one. A listener refuses a client's certificate by an alert that
    comes after the handshake."""
    words = _words(error)
    cure = next((f": {cure}" for part, cure in _CURES.items() if part in words), "")
    return f"{words}{cure}"


def _words(error: ssl.SSLError) -> str:
    """OpenSSL's reason, without its place in a file of C."""
    return str(error.reason or error).replace("_", " ").lower()
