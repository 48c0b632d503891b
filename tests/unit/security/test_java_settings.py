"""The settings of Java's clients become those of librdkafka."""

import pytest

from cordwood.security.connection_settings import ClientLogIn, ClientTls, Security, parse_security
from cordwood.security.java_settings import in_librdkafkas_names

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOG_IN = f'{SCRAM} required username="alice" password="s3cret";'


def security(**settings: str) -> Security:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return parse_security(in_librdkafkas_names(given))


def test_files_of_certificates() -> None:
    found = security(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location="ca.pem",
        ssl_keystore_type="PEM",
        ssl_keystore_location="client.pem",
        ssl_key_password="open!",
        ssl_endpoint_identification_algorithm="",
    )
    assert found == Security(ClientTls("ca.pem", "", "client.pem", key_password="open!", checks_host=False))
    assert found.for_librdkafka()["ssl.key.location"] == "client.pem"


def test_certificates_without_files() -> None:
    found = security(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates="AUTHORITY",
        ssl_keystore_type="PEM",
        ssl_keystore_certificate_chain="CERTIFICATE",
        ssl_keystore_key="KEY",
    )
    assert found == Security(ClientTls(ca_pem="AUTHORITY", certificate_pem="CERTIFICATE", key_pem="KEY"))


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (LOG_IN, "alice", "s3cret"),
        (f"  {SCRAM}  required\n  username=alice password='s3cret' ;\n", "alice", "'s3cret'"),
        (f'kafkashaded.{SCRAM} required username="a b" password="; \\" = \\\\ \\n \\101";', "a b", '; " = \\ \n A'),
        (f'{SCRAM} required password="p" tokenauth="false" username="u";', "u", "p"),
    ],
)
def test_the_user_of_a_line_of_jaas(text: str, username: str, password: str) -> None:
    found = security(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=text)
    assert found.sasl == ClientLogIn("SCRAM-SHA-512", username, password)


def test_a_line_of_jaas_may_have_a_delegation_token() -> None:
    text = f'{SCRAM} required username="id" password="s3cret" tokenauth="true";'
    found = security(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=text)
    assert found.sasl == ClientLogIn("SCRAM-SHA-512", "id", "s3cret", by_token=True)


def test_librdkafkas_names_are_taken_as_they_are() -> None:
    found = security(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="s3cret"
    )
    assert found.sasl == ClientLogIn("PLAIN", "alice", "s3cret")
    assert in_librdkafkas_names({"acks": "all", "ssl.cipher.suites": "x"}) == {}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"ssl.truststore.location": "t.jks"},
            r"ssl\.truststore\.type is missing.*keytool -list -rfc -keystore t\.jks",
        ),
        ({"ssl.truststore.location": "t", "ssl.truststore.type": "PKCS12"}, r"'PKCS12'.*-keystore t > ca\.pem"),
        ({"ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12"}, r"openssl pkcs12 -in k\.p12 -nodes"),
        ({"ssl.keystore.location": "k.jks", "ssl.keystore.type": "JKS"}, "keytool -importkeystore.*openssl pkcs12"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.password": "s3cret"}, "no meaning for PEM"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "a", "ssl.ca.location": "b"},
            r"ssl\.truststore\.location and ssl\.ca\.location are one setting",
        ),
        ({"sasl.jaas.config": LOG_IN, "sasl.password": "s3cret"}, "both say who logs in"),
        ({"sasl.jaas.config": LOG_IN, "sasl.mechanism": "PLAIN"}, "does not go with sasl.mechanism=PLAIN"),
        (
            {
                "sasl.jaas.config": f'{PLAIN} required username="a" password="s3cret";',
                "sasl.mechanism": "SCRAM-SHA-256",
            },
            "PlainLoginModule, which does not go with",
        ),
        ({"sasl.jaas.config": LOG_IN[:-1]}, "not one log-in, such as"),
        ({"sasl.jaas.config": LOG_IN + LOG_IN}, "not one log-in"),
        ({"sasl.jaas.config": f'{SCRAM} required username="a" password="s3cret'}, "not one log-in"),
        ({"sasl.jaas.config": f'{SCRAM} required username "a" = "s3cret";'}, "not one log-in"),
        ({"sasl.jaas.config": ""}, "not one log-in"),
        ({"sasl.jaas.config": f"{SCRAM} required;"}, "has no username"),
        ({"sasl.jaas.config": f'{SCRAM} required username="a" password="";'}, "has no password"),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required x=s3cret;"},
            "names com.sun.*Krb5",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_the_cure(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        in_librdkafkas_names(given)
    assert "s3cret" not in str(refused.value)
