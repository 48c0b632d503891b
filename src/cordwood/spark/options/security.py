"""The options of a connection's security, of reads and of writes: TLS, and the user that logs in.

Names are those of Java's clients, as in Spark's Kafka source and sink, and those of librdkafka, each with `kafka.`
before it. Spark hides the values of options whose names or values have the word `password` in them, in plans, in its UI
and in event logs; all others show.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.client.bootstrap import SERVERS, Bootstrap
from cordwood.security.connection_settings import NAMES, PLAIN_TEXT, Security, parse_security
from cordwood.security.java_settings import JAVA_NAMES, in_librdkafkas_names

SECURITY_KEYS: Final = frozenset((*NAMES, *JAVA_NAMES))
"""The keys that are obeyed, without `kafka.`."""

_OPENSSL: Final = "TLS is OpenSSL's, in the versions 1.2 and 1.3 with its own suites"
_LOG_INS: Final = "log-ins are by SCRAM, PLAIN, or a token of an OpenID provider (sasl.oauthbearer.method=oidc)"
_WITHOUT_EFFECT: Final = {
    "security.providers": _OPENSSL,
    "ssl.cipher.suites": _OPENSSL,
    "ssl.enabled.protocols": _OPENSSL,
    "ssl.protocol": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.engine.factory.class": _OPENSSL,
    "sasl.client.callback.handler.class": _LOG_INS,
}
_PREFIXES_WITHOUT_EFFECT: Final = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.")


def why_without_effect(key: str) -> str | None:
    """The reason why a key about security, without `kafka.`, has no effect; None if it is obeyed or unknown."""
    return _LOG_INS if key.startswith(_PREFIXES_WITHOUT_EFFECT) else _WITHOUT_EFFECT.get(key)


def security_of(options: Mapping[str, str]) -> Security:
    """The security that options with names in lower case describe. Raises ValueError, without any secret."""
    given = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    security = parse_security(in_librdkafkas_names(given))
    if security.tls is not None and security.tls.key_pem and "ENCRYPTED" not in security.tls.key_pem:
        raise ValueError(
            "a private key in an option shows in Spark's UI and event log: name its file "
            "(ssl.keystore.location), or encrypt it and give ssl.key.password, which Spark hides"
        )
    return security


def connection_options(bootstrap: Bootstrap) -> dict[str, str]:
    """The options of a read or a write by which Spark reaches these brokers."""
    secure = bootstrap.for_librdkafka() if bootstrap.security != PLAIN_TEXT else {SERVERS: bootstrap.servers}
    return {f"kafka.{name}": value for name, value in secure.items()}
