"""The settings of OAUTHBEARER, under Kafka's names (KIP-768): whose tokens are taken, and what is read from them."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from cordwood.model.settings.by_listener import Settings, listener_setting, value_at
from cordwood.model.settings.setting import InvalidSetting, Value, int32, int64, settings_of, string, string_list, table
from cordwood.model.token_trust import KeySource, TokenRules, TokenTrust

_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


def _check_url(value: Value) -> str | None:
    text = str(value)
    if not text:
        return None
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return f"is not an address: {error}"
    if parts.scheme == "file":
        is_local = parts.netloc in ("", "localhost") and bool(parts.path)
        return None if is_local else "must name a file of this machine, as file:///etc/cordwood/keys.json"
    if parts.scheme != "https" or not parts.hostname:
        return "must begin with https:// or file: (who can change the keys on their way can log in as anybody)"
    if parts.username is not None or parts.password is not None:
        return "must have no user and no password: settings are shown to clients"
    return None


def _check_claim(value: Value) -> str | None:
    return None if value else "must name a claim"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class OAuthSettings:
    """Tokens of an identity provider."""

    sasl_oauthbearer_clock_skew_seconds: int = int32(
        30,
        "How much the clocks of the identity provider and of the broker may differ: so long after its end, and before "
        "its beginning, a token is taken.",
        low=0,
        high=3600,
        by_listener=True,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = string_list(
        (),
        "A token is taken if its claim `aud` names one of these. Not set: tokens for other services are taken, too, "
        "which a start warns of.",
        by_listener=True,
    )
    sasl_oauthbearer_expected_issuer: str = string(
        "", "A token is taken if its claim `iss` is this. Not set: it may be anything.", by_listener=True
    )
    sasl_oauthbearer_groups_claim_name: str = string(
        "",
        "The claim with the groups of the user: a list, or a text with spaces between them. Rules of access for "
        "`Group:NAME` hold for the session. A token with more than 256 groups is refused. Not set: no groups.",
        by_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(
        3_600_000,
        "How often the keys are fetched. A key id that is unknown has them fetched, too, at most once a minute. A file "
        "is read every 10 s at least.",
        low=1000,
        by_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(
        10_000, "The longest pause before keys that could not be fetched are fetched again.", low=1, by_listener=True
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        100,
        "The first pause before keys that could not be fetched are fetched again; it doubles each time. The keys of "
        "before go on meanwhile.",
        low=1,
        by_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_ssl_truststore_location: str = string(
        "",
        "The PEM file with the authorities that sign the certificate of the address of `" + _URL + "`. Not set: those "
        "of the system.",
        by_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = string(
        "",
        "Where the keys are by which the identity provider signs its tokens, as a JWK set: `https://...`, or `file:` "
        "with a path. Needed where `sasl.enabled.mechanisms` has OAUTHBEARER. An answer has at most 1 MiB, and 10 s.",
        check=_check_url,
        by_listener=True,
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope",
        "The claim with the token's scopes. A token in which it is neither a text nor a list of texts is refused, as "
        "by Apache Kafka; nothing else depends on it.",
        check=_check_claim,
        by_listener=True,
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", "The claim with the name of the user.", check=_check_claim, by_listener=True
    )


_TABLE: Final = table(settings_of(OAuthSettings, changeable=False))


def token_trust_of(settings: Settings, listener: str) -> TokenTrust:
    """Whose tokens a listener takes. Raises InvalidSetting if it is not said where their keys are."""

    def value(name: str) -> Value:
        return value_at(settings, _TABLE[f"sasl.oauthbearer.{name}"], listener)

    def text(name: str) -> str:
        return str(value(name))

    def number(name: str) -> int:
        return int(text(name))

    audiences = value("expected.audience")
    assert isinstance(audiences, tuple)
    if not text("jwks.endpoint.url"):
        raise InvalidSetting(
            f"the listener {listener} takes OAUTHBEARER, and has no keys to check tokens with: set {_URL}, or "
            f"{listener_setting(listener, _URL)}, to the address of the identity provider's JWK set"
        )
    source = KeySource(
        text("jwks.endpoint.url"),
        text("jwks.endpoint.ssl.truststore.location"),
        number("jwks.endpoint.refresh.ms"),
        number("jwks.endpoint.retry.backoff.ms"),
        number("jwks.endpoint.retry.backoff.max.ms"),
    )
    rules = TokenRules(
        text("expected.issuer"),
        audiences,
        text("sub.claim.name"),
        text("groups.claim.name"),
        text("scope.claim.name"),
        number("clock.skew.seconds"),
    )
    return TokenTrust(source, rules)
