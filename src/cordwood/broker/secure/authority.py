"""The authority of one broker, and the certificates that it signs for it: ECDSA on P-256.

`cryptography` takes 50 ms to import: only a secure start imports this module.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Collection
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY: Final = datetime.timedelta(days=1)
AUTHORITY_LASTS: Final = 20 * 365 * _DAY
CERTIFICATE_LASTS: Final = 5 * 365 * _DAY
RENEWED_BEFORE: Final = 365 * _DAY
"""A start renews a certificate that ends within this time: brokers run for long."""

Key = ec.EllipticCurvePrivateKey


def new_authority(now: datetime.datetime) -> tuple[str, str]:
    """The private key and the certificate of a new authority, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Cordwood's own authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key, now, AUTHORITY_LASTS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = builder.add_extension(identifier, critical=False).sign(key, SHA256())
    return _key_text(key), made.public_bytes(Encoding.PEM).decode()


def new_keystore(authority_key: str, authority: str, hosts: Collection[str], now: datetime.datetime) -> str:
    """A new private key for the broker, and its certificate for these hosts, as the text of a keystore."""
    signing = load_pem_private_key(authority_key.encode(), None)
    assert isinstance(signing, Key)
    signer = x509.load_pem_x509_certificate(authority.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("cordwood"), signer.subject, key, now, CERTIFICATE_LASTS)
    names = x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)])
    builder = builder.add_extension(names, critical=False)
    # Brokers of a cluster show each other the certificates of their listeners.
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(usage, critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    made = builder.add_extension(identifier, critical=False).sign(signing, SHA256())
    return _key_text(key) + made.public_bytes(Encoding.PEM).decode()


def why_renew(keystore: str, hosts: Collection[str], now: datetime.datetime) -> str:
    """The reason why a keystore needs a new certificate; empty if it serves."""
    certificate = x509.load_pem_x509_certificates(keystore.encode())[0]
    if certificate.not_valid_after_utc - now < RENEWED_BEFORE:
        return f"the certificate ends on {certificate.not_valid_after_utc:%Y-%m-%d}"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
        return "the certificate is for servers alone, and brokers dial each other"
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = [host for host in sorted(hosts) if _general_name(host) not in named]
    return f"the certificate does not name {', '.join(missing)}" if missing else ""


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime.datetime, lasts: datetime.timedelta
) -> x509.CertificateBuilder:
    # Clocks of clients may be behind.
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(now - _DAY).not_valid_after(now + lasts)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode())


def _key_text(key: Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
