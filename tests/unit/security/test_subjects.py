"""Subjects of certificates, letter for letter as Java writes them."""

import shutil
import subprocess
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import Authority, name

from cordwood.broker.network.tls.certificates import MOST_ATTRIBUTES, subject_of_peer
from cordwood.security.subjects import BadSubject, subject_text

UID = ObjectIdentifier("0.9.2342.19200300.100.1.1")
OF_NOBODY = ObjectIdentifier("1.2.3.4.55555")


def of(*attributes: tuple[ObjectIdentifier, str] | x509.NameAttribute[str]) -> x509.Name:
    return x509.Name(
        [each if isinstance(each, x509.NameAttribute) else x509.NameAttribute(*each) for each in attributes]
    )


NAMES = {
    "CN=alice,O=Woods": name(CN="alice", O="Woods"),
    "CN=alice,OU=Saw,L=Hull,ST=Yorkshire,C=GB": of(
        (NameOID.COUNTRY_NAME, "GB"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Yorkshire"),
        (NameOID.LOCALITY_NAME, "Hull"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Saw"),
        (NameOID.COMMON_NAME, "alice"),
    ),
    "UID=al,DC=woods,DC=example,STREET=1 Elm": of(
        (NameOID.STREET_ADDRESS, "1 Elm"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example", Kind.IA5String),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "woods", Kind.IA5String),
        (UID, "al"),
    ),
    r"CN=Woods\, Inc. \+ \"Sons\"": of((NameOID.COMMON_NAME, 'Woods, Inc. + "Sons"')),
    r"CN=\#1 a\=b\<c\>d\;e\\f": of((NameOID.COMMON_NAME, r"#1 a=b<c>d;e\f")),
    r"CN=\ \ two each side\ \ ": of((NameOID.COMMON_NAME, "  two each side  ")),
    "CN=Jürgen Ångström 木": of((NameOID.COMMON_NAME, "Jürgen Ångström 木")),
    "1.2.840.113549.1.9.1=#160561406a2e6b,CN=a": of(
        (NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@j.k", Kind.IA5String)
    ),
    "1.2.3.4.55555=#0c026869": of((OF_NOBODY, "hi")),
    "CN=alice+UID=al,O=Woods": x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Woods")]),
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(NameOID.COMMON_NAME, "alice"), x509.NameAttribute(UID, "al")]
            ),
        ]
    ),
    "": x509.Name([]),
}


@pytest.mark.parametrize(("text", "subject"), NAMES.items())
def test_a_subject_is_written_in_the_form_of_rfc_2253(text: str, subject: x509.Name) -> None:
    assert subject_text(subject.public_bytes()) == text


def test_java_writes_the_same(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    authority = Authority()
    names = {text: subject for text, subject in NAMES.items() if text}  # Java refuses a certificate without a subject
    for number, subject in enumerate(names.values()):
        (tmp_path / f"{number}.pem").write_bytes(authority.issue(subject).certificate_pem)
    program = tmp_path / "Subjects.java"
    program.write_text(
        """import java.io.*; import java.nio.charset.StandardCharsets; import java.security.cert.*;
        class Subjects {
          public static void main(String[] files) throws Exception {
            PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
            for (String file : files) {
              try (InputStream in = new FileInputStream(file)) {
                var found = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
                out.println(found.getSubjectX500Principal().getName());
              }
            }
          }
        }"""
    )
    files = [str(tmp_path / f"{number}.pem") for number in range(len(names))]
    command = ["java", "-XX:TieredStopAtLevel=1", str(program), *files]
    ended = subprocess.run(command, check=True, capture_output=True, timeout=120, encoding="utf-8")
    assert ended.stdout.split("\n")[:-1] == list(names)


def refused_or_read(der: bytes) -> None:
    with suppress(BadSubject):
        subject_text(der)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_name_raise_nothing_else(der: bytes) -> None:
    refused_or_read(der)


@given(st.integers(0, 200), st.binary(max_size=3))
def test_a_name_that_was_changed_is_read_or_refused(place: int, put: bytes) -> None:
    der = name(CN="alice", O="Woods").public_bytes()
    place %= len(der)
    refused_or_read(der[:place] + put + der[place + 1 :])


def test_a_subject_with_very_many_attributes_is_no_clients() -> None:
    """A rule like that of Kafka's documentation would look at it for minutes."""
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "a")] * (MOST_ATTRIBUTES + 1)
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(units)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    der = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    with pytest.raises(ValueError, match=f"has 324 characters and {MOST_ATTRIBUTES + 1} attributes"):
        subject_of_peer(der, now)
