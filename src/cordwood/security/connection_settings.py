"""The settings of a connection's security, under librdkafka's names: TLS, and the user that logs in.

One parser makes them: `parse_security`. What it returns travels pickled to Spark's executors, and its text (`repr`)
has no secret. Keys and certificates are PEM files, which are read when a connection is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from cordwood.model.credentials import OAUTHBEARER, SASL_MECHANISMS, SCRAM_NAMES

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = {
    PLAINTEXT: (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""By the name of a protocol: TLS, and a log-in."""

PROTOCOL: Final = "security.protocol"
CA_LOCATION: Final = "ssl.ca.location"
CA_PEM: Final = "ssl.ca.pem"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"
CERTIFICATE_PEM: Final = "ssl.certificate.pem"
KEY_PEM: Final = "ssl.key.pem"
KEY_PASSWORD: Final = "ssl.key.password"
HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
MECHANISM: Final = "sasl.mechanism"
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
TOKEN_AUTH: Final = "sasl.tokenauth"
"""A setting of ours: user and password are the id and the secret of a delegation token. librdkafka has none for it."""
METHOD: Final = "sasl.oauthbearer.method"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
HTTPS_CA: Final = "https.ca.location"
_OF_TLS: Final = (CA_LOCATION, CA_PEM, CERTIFICATE, KEY, CERTIFICATE_PEM, KEY_PEM, KEY_PASSWORD, HOST_CHECK)
_OF_PASSWORDS: Final = (USERNAME, PASSWORD, TOKEN_AUTH)
_OF_TOKENS: Final = (METHOD, TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE, HTTPS_CA)
_OF_SASL: Final = (MECHANISM, *_OF_PASSWORDS, *_OF_TOKENS)
NAMES: Final = (PROTOCOL, *_OF_TLS, *_OF_SASL)
_OIDC: Final = "oidc"
_ALIASES: Final = {"sasl.mechanisms": MECHANISM}
_PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")

_PKCS12: Final = (
    f"keys are PEM files here: `openssl pkcs12 -in FILE -nodes -out client.pem` makes one, for {CERTIFICATE} and {KEY}"
)
_INSTEAD: Final = {
    "ssl.truststore": f"{CA_LOCATION} names a PEM file with the authority's certificate",
    "ssl.keystore": _PKCS12,
    "ssl.keystore.key": f"{KEY} names a PEM file",
    "sasl.jaas.config": f"give {MECHANISM}, {USERNAME} and {PASSWORD}",
    "enable.ssl.certificate.verification": f"certificates are always verified: {CA_LOCATION} names their authority",
}
"""The cure for settings of Java's clients, and for librdkafka's that are not taken, by the beginning of the name."""


@dataclass(frozen=True)
class ClientTls:
    ca_location: str = ""
    """A PEM file, or a directory of them. Without it and `ca_pem` the system's authorities are trusted."""
    ca_pem: str = field(default="", repr=False)
    """The authorities' certificates themselves."""
    certificate_location: str = ""
    """The client's certificate, for brokers that ask for one."""
    key_location: str = ""
    """Without it, the key is in the certificate's file."""
    key_password: str = field(default="", repr=False)
    certificate_pem: str = field(default="", repr=False)
    """The client's certificate itself, and in `key_pem` its key."""
    key_pem: str = field(default="", repr=False)
    checks_host: bool = True
    """The certificate has to be for the host name, or the address, that the client connects to."""


@dataclass(frozen=True)
class TokenSource:
    """Where a client gets its tokens: from an OpenID provider, by its client credentials (RFC 6749)."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_location: str = ""
    """A PEM file, or a directory of them; empty: the system's authorities are trusted."""


@dataclass(frozen=True)
class ClientLogIn:
    mechanism: str
    username: str
    """The user; for tokens the id by which the provider knows the client."""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = None
    """None: the mechanism is one of passwords."""
    by_token: bool = False
    """User and password are the id and the secret of a delegation token."""


@dataclass(frozen=True)
class Security:
    """Who a client is, and how it knows its brokers. Without settings: plain text, and no log-in."""

    tls: ClientTls | None = None
    sasl: ClientLogIn | None = None

    @property
    def protocol(self) -> str:
        wanted = (self.tls is not None, self.sasl is not None)
        return next(name for name, offered in _PROTOCOLS.items() if offered == wanted)

    def for_librdkafka(self) -> dict[str, str]:
        """The settings for a client on librdkafka."""
        settings = {PROTOCOL: self.protocol}
        if self.tls is not None:
            settings |= {
                CA_LOCATION: self.tls.ca_location,
                CA_PEM: self.tls.ca_pem,
                CERTIFICATE: self.tls.certificate_location,
                # librdkafka does not look for a key in the certificate's file.
                KEY: self.tls.key_location or self.tls.certificate_location,
                CERTIFICATE_PEM: self.tls.certificate_pem,
                KEY_PEM: self.tls.key_pem,
                KEY_PASSWORD: self.tls.key_password,
                HOST_CHECK: "https" if self.tls.checks_host else "none",
            }
        if self.sasl is not None:
            settings[MECHANISM] = self.sasl.mechanism
            if (tokens := self.sasl.tokens) is None:
                settings |= {USERNAME: self.sasl.username, PASSWORD: self.sasl.password}
                settings |= {TOKEN_AUTH: "true"} if self.sasl.by_token else {}
            else:
                settings |= {
                    METHOD: _OIDC,
                    TOKEN_URL: tokens.url,
                    CLIENT_ID: tokens.client_id,
                    CLIENT_SECRET: tokens.client_secret,
                    SCOPE: tokens.scope,
                    HTTPS_CA: tokens.ca_location,
                }
        return {name: value for name, value in settings.items() if value}


PLAIN_TEXT: Final = Security()


def parse_security(given: Mapping[str, str]) -> Security:
    """The security that settings under librdkafka's names describe; names that are not about security are left alone.
    Raises ValueError, with the setting's name and the cure, and without any value that is a secret."""
    settings: dict[str, str] = {}
    for name, value in given.items():
        known = _ALIASES.get(name, name)
        if known in NAMES:
            if known in settings and settings[known] != value:
                raise ValueError(f"{MECHANISM} and sasl.mechanisms are one setting, and have two values")
            settings[known] = value
        elif cure := _not_taken(name):
            raise ValueError(cure)
    protocol = settings.get(PROTOCOL, PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{PROTOCOL}={settings[PROTOCOL]!r:.60}: it is one of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    for names, is_used, needed in ((_OF_TLS, has_tls, "SSL or SASL_SSL"), (_OF_SASL, has_sasl, "SASL_SSL")):
        unused = [name for name in names if settings.get(name)]
        if unused and not is_used:
            raise ValueError(f"{unused[0]} has no effect with {PROTOCOL}={protocol}: set {PROTOCOL} to {needed}")
    return Security(_tls(settings) if has_tls else None, _sasl(settings) if has_sasl else None)


def _not_taken(name: str) -> str:
    """The error for a name that is meant for the security of a connection, and is not taken; "": it is another's."""
    if not name.startswith(_PREFIXES):
        near = get_close_matches(name, NAMES, n=1, cutoff=0.85)
        return f"{name} is not a setting: is {near[0]} meant?" if near else ""
    cure = next((cure for beginning, cure in _INSTEAD.items() if name.startswith(beginning)), "")
    if not cure:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.8)
        cure = f"is {near[0]} meant?" if near else f"the settings are {', '.join(NAMES)}"
    return f"{name} is not taken: {cure}"


def _tls(settings: Mapping[str, str]) -> ClientTls:
    check = settings.get(HOST_CHECK, "https").lower()
    if check not in ("https", "none", ""):
        raise ValueError(f"{HOST_CHECK}={check!r:.60}: it is https, or none")
    if settings.get(CA_LOCATION) and settings.get(CA_PEM):
        raise ValueError(f"{CA_LOCATION} and {CA_PEM} are both given: one of them names the authorities")
    if settings.get(KEY) and not settings.get(CERTIFICATE):
        raise ValueError(f"{KEY} is given without {CERTIFICATE}: a key alone proves nothing")
    if bool(settings.get(KEY_PEM)) != bool(settings.get(CERTIFICATE_PEM)):
        raise ValueError(f"{CERTIFICATE_PEM} and {KEY_PEM} belong together: one of them is missing")
    if settings.get(CERTIFICATE) and settings.get(CERTIFICATE_PEM):
        raise ValueError(f"{CERTIFICATE} and {CERTIFICATE_PEM} are both given: a client has one certificate")
    return ClientTls(
        # librdkafka has this word for the system's authorities.
        "" if settings.get(CA_LOCATION) == "probe" else settings.get(CA_LOCATION, ""),
        settings.get(CA_PEM, ""),
        settings.get(CERTIFICATE, ""),
        settings.get(KEY, ""),
        settings.get(KEY_PASSWORD, ""),
        settings.get(CERTIFICATE_PEM, ""),
        settings.get(KEY_PEM, ""),
        # Java's clients have an empty text for "none".
        checks_host=check == "https",
    )


def _sasl(settings: Mapping[str, str]) -> ClientLogIn:
    _have(settings, MECHANISM, f": one of {', '.join(SASL_MECHANISMS)}")
    mechanism = settings[MECHANISM].upper()
    if mechanism not in SASL_MECHANISMS:
        raise ValueError(f"{MECHANISM}={settings[MECHANISM]!r:.60} is not taken: one of {', '.join(SASL_MECHANISMS)}")
    others = _OF_PASSWORDS if mechanism == OAUTHBEARER else _OF_TOKENS
    if unused := [name for name in others if settings.get(name)]:
        raise ValueError(f"{unused[0]} has no effect with {MECHANISM}={mechanism}")
    if mechanism == OAUTHBEARER:
        tokens = _tokens(settings)
        return ClientLogIn(mechanism, tokens.client_id, tokens=tokens)
    for name in (USERNAME, PASSWORD):
        _have(settings, name)
    by_token = settings.get(TOKEN_AUTH, "false").lower()
    if by_token not in ("true", "false"):
        raise ValueError(f"{TOKEN_AUTH}={settings[TOKEN_AUTH]!r:.60}: it is true, or false")
    if by_token == "true" and mechanism not in SCRAM_NAMES:
        raise ValueError(
            f"{TOKEN_AUTH} has no effect with {MECHANISM}={mechanism}: a delegation token logs in by SCRAM"
        )
    return ClientLogIn(mechanism, settings[USERNAME], settings[PASSWORD], by_token=by_token == "true")


def _have(settings: Mapping[str, str], name: str, hint: str = "") -> None:
    if not settings.get(name):
        raise ValueError(f"{name} is missing, and the protocol asks for a log-in{hint}")


def _tokens(settings: Mapping[str, str]) -> TokenSource:
    method = settings.get(METHOD, "default")
    if method.lower() != _OIDC:
        raise ValueError(
            f"{METHOD}={method!r:.60}: tokens come from an OpenID provider, so it is {_OIDC}; a callback of a program "
            "has no place in settings"
        )
    for name in (TOKEN_URL, CLIENT_ID, CLIENT_SECRET):
        _have(settings, name)
    url = settings[TOKEN_URL]
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "https" and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(f"{TOKEN_URL} is https://HOST/PATH, without a user: a secret is sent there")
    return TokenSource(
        url, settings[CLIENT_ID], settings[CLIENT_SECRET], settings.get(SCOPE, ""), settings.get(HTTPS_CA, "")
    )
