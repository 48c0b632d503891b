"""Settings of OAUTHBEARER: whose tokens a listener takes, and values that no broker starts with."""

import pytest

from cordwood.broker.network.listener_warnings import warn_of_listeners
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.setting import InvalidSetting
from cordwood.model.token_trust import KeySource, TokenRules

URL = "sasl.oauthbearer.jwks.endpoint.url"
TWO = {
    "listeners": "INSIDE://h:1,USERS://h:2,PARTNERS://h:3",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,USERS:SASL_SSL,PARTNERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "ssl.keystore.location": "all.pem",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    URL: "https://login.example.com/keys",
}


def test_a_listener_has_the_trust_of_all_or_one_of_its_own() -> None:
    texts = {
        **TWO,
        "sasl.oauthbearer.expected.audience": "orders, log",
        f"listener.name.partners.{URL}": "file:/etc/keys%201.json",
        "listener.name.partners.sasl.oauthbearer.clock.skew.seconds": "5",
        "listener.name.partners.sasl.oauthbearer.sub.claim.name": "name",
    }
    settings = BrokerSettings.from_texts(texts)
    inside, users, partners = (settings.asks_at(listener) for listener in settings.listener_list)
    assert inside is None
    assert users is not None
    assert users.tokens is not None
    assert users.tokens.source == KeySource("https://login.example.com/keys", "", 3_600_000, 100, 10_000)
    assert users.tokens.source.path == ""
    assert users.tokens.rules == TokenRules("", ("orders", "log"), "sub", "", "scope", 30)
    assert partners is not None
    assert partners.tokens is not None
    assert partners.tokens.source.path == "/etc/keys 1.json"
    assert (partners.tokens.rules.skew_s, partners.tokens.rules.user_claim) == (5, "name")
    assert settings.key_sources == [users.tokens.source, partners.tokens.source]


def test_listeners_with_one_provider_share_its_keys() -> None:
    assert len(BrokerSettings.from_texts(TWO).key_sources) == 1
    without = {name: text for name, text in TWO.items() if name != "sasl.enabled.mechanisms"}
    assert BrokerSettings.from_texts(without).key_sources == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({URL: ""}, f"the listener USERS takes OAUTHBEARER, and has no keys to check tokens with: set {URL}"),
        ({URL: "http://login.example.com/keys"}, "must begin with https:// or file:"),
        ({URL: "login.example.com"}, "must begin with https:// or file:"),
        ({URL: "https:///keys"}, "must begin with https:// or file:"),
        ({URL: "https://h:99999/"}, "is not an address"),
        ({URL: "https://me:secret@h/"}, "must have no user and no password"),
        ({URL: "file://elsewhere/keys"}, "must name a file of this machine"),
        ({URL: "file:"}, "must name a file of this machine"),
        ({"sasl.oauthbearer.sub.claim.name": ""}, "must name a claim"),
        ({"sasl.oauthbearer.clock.skew.seconds": "3601"}, "at most 3600"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "at least 1000"),
    ],
)
def test_values_that_no_broker_starts_with(more: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        BrokerSettings.from_texts({**TWO, **more})
    assert reason in str(refusal.value)


def test_a_start_warns_of_tokens_in_plain_text_and_for_any_service(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_listeners(BrokerSettings.from_texts(TWO), clustered=False)
    assert [text for text in caplog.messages if "tokens" in text] == [
        "the listener USERS takes tokens that were issued for any service: set sasl.oauthbearer.expected.audience",
        "clients of the listener PARTNERS send their tokens in plain text, and whoever reads one is that user until it "
        "ends: give the listener the security protocol SASL_SSL",
        "the listener PARTNERS takes tokens that were issued for any service: set sasl.oauthbearer.expected.audience",
    ]
