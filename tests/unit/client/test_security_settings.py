"""The security of a connection, from settings under librdkafka's names."""

import pickle

import pytest

from cordwood.client.settings import ClientSettings
from cordwood.security.connection_settings import (
    PLAIN_TEXT,
    ClientLogIn,
    ClientTls,
    Security,
    TokenSource,
    parse_security,
)

LOG_IN = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "s3cret"}


TOKENS = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": "s3cret",
}


def test_without_settings_a_connection_is_in_plain_text() -> None:
    assert parse_security({}) == parse_security({"security.protocol": "plaintext", "acks": "all"}) == PLAIN_TEXT
    assert PLAIN_TEXT.for_librdkafka() == {"security.protocol": "PLAINTEXT"}


def test_all_settings_and_back_to_librdkafka() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "client.pem",
        "ssl.key.location": "client.key",
        "ssl.key.password": "open!",
        "ssl.endpoint.identification.algorithm": "none",
        **LOG_IN,
    }
    security = parse_security({**given, "sasl.mechanisms": "SCRAM-SHA-256", "client.id": "x"})
    assert security == Security(
        ClientTls("ca.pem", "", "client.pem", "client.key", "open!", checks_host=False),
        ClientLogIn("SCRAM-SHA-256", "alice", "s3cret"),
    )
    assert security.for_librdkafka() == given


def test_a_certificate_may_have_no_file_and_a_key_may_be_in_the_certificates_file() -> None:
    given = {"security.protocol": "SSL", "ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY"}
    assert parse_security(given).for_librdkafka() == {**given, "ssl.endpoint.identification.algorithm": "https"}
    both = parse_security({"security.protocol": "SSL", "ssl.certificate.location": "both.pem"})
    assert both.for_librdkafka()["ssl.key.location"] == "both.pem"


def test_tokens_of_a_provider_and_back_to_librdkafka() -> None:
    more = {"sasl.oauthbearer.scope": "log", "https.ca.location": "ca.pem"}
    given = {"security.protocol": "SASL_PLAINTEXT", **TOKENS, **more}
    security = parse_security(given)
    tokens = TokenSource("https://login.example.com/token", "alice", "s3cret", "log", "ca.pem")
    assert security == Security(None, ClientLogIn("OAUTHBEARER", "alice", tokens=tokens))
    assert security.for_librdkafka() == given
    assert "s3cret" not in repr(security)


def test_no_secret_is_shown() -> None:
    inline = {"ssl.certificate.pem": "CERT", "ssl.key.pem": "s3cret", "ssl.ca.pem": "AUTHORITY"}
    security = parse_security({"security.protocol": "sasl_ssl", "ssl.key.password": "open!", **inline, **LOG_IN})
    settings = ClientSettings("SASL_SSL://a:1", security=security)
    assert pickle.loads(pickle.dumps(settings)) == settings
    for text in (repr(settings), str(settings), repr(security)):
        assert "alice" in text
        assert "s3cret" not in text
        assert "open!" not in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"security.protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (LOG_IN, "sasl.mechanism has no effect with security.protocol=PLAINTEXT"),
        ({"ssl.ca.location": "ca.pem"}, "set security.protocol to SSL or SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing.*SCRAM-SHA-512"),
        (
            {"security.protocol": "SASL_SSL", **LOG_IN, "sasl.mechanism": "GSSAPI"},
            "'GSSAPI' is not taken: one of PLAIN",
        ),
        ({"security.protocol": "SASL_SSL", **LOG_IN, "sasl.mechanisms": "PLAIN"}, "have two values"),
        ({"security.protocol": "SASL_SSL", **LOG_IN, "sasl.password": ""}, "sasl.password is missing"),
        ({"security.protocol": "SASL_SSL", **LOG_IN, "sasl.mechanism": "OAUTHBEARER"}, "sasl.username has no effect"),
        (
            {"security.protocol": "SASL_SSL", **LOG_IN, "sasl.oauthbearer.method": "oidc"},
            "oauthbearer.method has no effe",
        ),
        ({"security.protocol": "SASL_SSL", **TOKENS, "sasl.oauthbearer.method": ""}, "so it is oidc"),
        ({"security.protocol": "SASL_SSL", **TOKENS, "sasl.oauthbearer.client.secret": ""}, "client.secret is missing"),
        (
            {"security.protocol": "SASL_SSL", **TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://h/token"},
            "token.endpoint.url is https://HOST/PATH",
        ),
        ({"sasl.oauthbearer.config": "principal=alice"}, "is sasl.oauthbearer.scope meant|is not taken"),
        ({"security.protocl": "SSL"}, "is security.protocol meant"),
        ({"sasl.user": "alice"}, "is sasl.username meant"),
        ({"ssl.truststore.location": "t.jks"}, "ssl.ca.location names a PEM file"),
        ({"ssl.keystore.location": "k.p12"}, "openssl pkcs12"),
        ({"sasl.jaas.config": '... password="s3cret";'}, "give sasl.mechanism, sasl.username and sasl.password"),
        ({"enable.ssl.certificate.verification": "false"}, "always verified"),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "without ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "no"}, "https, or none"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "x", "ssl.ca.location": "y"}, "both given"),
        ({"security.protocol": "SSL", "ssl.key.pem": "s3cret"}, "belong together"),
        (
            {
                "security.protocol": "SSL",
                "ssl.key.pem": "s3cret",
                "ssl.certificate.pem": "x",
                "ssl.certificate.location": "y",
            },
            "a client has one certificate",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_with_the_cure(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_security(given)
    assert "s3cret" not in str(refused.value)


def test_an_address_with_another_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="is PLAINTEXT, not SSL"):
        ClientSettings("SSL://a:1")
