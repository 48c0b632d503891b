"""Certificates for tests, made by an authority of the test's own."""

import datetime
import functools
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def name(**attributes: str) -> x509.Name:
    """`name(CN="alice", O="Woods")`, written in the order of a certificate: the last attribute comes first."""
    types = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
    return x509.Name([x509.NameAttribute(types[kind], text) for kind, text in reversed(attributes.items())])


class Issued(NamedTuple):
    key: PrivateKey
    certificate: x509.Certificate

    def key_pem(self, password: str = "") -> bytes:
        hiding: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hiding)

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def keystore(self, password: str = "") -> bytes:
        """The content of `ssl.keystore.location`."""
        return self.key_pem(password) + self.certificate_pem

    def pkcs12(self) -> bytes:
        return serialize_key_and_certificates(b"broker", self.key, self.certificate, None, NoEncryption())


class Authority:
    """Signs certificates of brokers and clients."""

    def __init__(self, common_name: str = "woods authority") -> None:
        self.name = name(CN=common_name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(self.name, self.name, self.key, -DAY, 3650 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        self.certificate = builder.sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        subject: x509.Name | None = None,
        *,
        key: PrivateKey | None = None,
        hosts: Sequence[str] = ("localhost",),
        addresses: Sequence[str] = ("127.0.0.1", "::1"),
        begins: datetime.timedelta = -DAY,
        lasts: datetime.timedelta = 365 * DAY,
    ) -> Issued:
        """A certificate for a server and a client, of 127.0.0.1 and localhost. `begins` counts from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, hosts), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(name(CN="broker") if subject is None else subject, self.name, key, begins, lasts)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(identifier, critical=False)
        return Issued(key, builder.sign(self.key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, begins: datetime.timedelta, lasts: datetime.timedelta
) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.UTC) + begins
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(start + lasts)


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


class TlsFiles(NamedTuple):
    """What a broker with TLS and its clients have."""

    authority: Authority
    keystore: Path
    truststore: Path
    """The certificate of the authority."""

    def write(self, issued: Issued) -> None:
        """Puts another certificate into the place of the keystore, as an operator does."""
        new = self.keystore.with_suffix(".new")
        new.write_bytes(issued.keystore())
        new.replace(self.keystore)

    def client(self, subject: x509.Name) -> Path:
        """A file with the key and certificate of a client."""
        file = self.keystore.with_name(f"client-{subject.rfc4514_string().replace('/', '-')}.pem")
        file.write_bytes(self.authority.issue(subject).keystore())
        return file


def tls_files(directory: Path) -> TlsFiles:
    """Files of the authority of all tests of this process: keys take a while to make."""
    authority = _authority()
    files = TlsFiles(authority, directory / "broker.pem", directory / "ca.pem")
    files.keystore.write_bytes(_of_broker().keystore())
    files.truststore.write_bytes(authority.pem)
    return files


@functools.cache
def _authority() -> Authority:
    return Authority()


@functools.cache
def _of_broker() -> Issued:
    return _authority().issue()
