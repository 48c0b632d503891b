"""Settings of TLS: for all listeners and for one of them; secrets that nobody sees."""

import pytest

from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.configuration import InvalidConfiguration, load_settings
from cordwood.model.settings.setting import InvalidSetting

TWO = {
    "listeners": "PLAINTEXT://h:1,OUT.SIDE://h:2,CLIENTS://h:3",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT.SIDE:SSL,CLIENTS:SSL",
    "ssl.keystore.location": "all.pem",
}


def test_a_listener_may_differ_from_all_others() -> None:
    texts = {
        **TWO,
        "listener.name.out.side.ssl.keystore.location": "outside.pem",
        "listener.name.out.side.ssl.enabled.protocols": "TLSv1.3",
    }
    found = BrokerSettings.from_texts(texts).tls_listeners
    assert sorted(found) == ["CLIENTS", "OUT.SIDE"]
    assert (found["CLIENTS"].keystore_location, found["OUT.SIDE"].keystore_location) == ("all.pem", "outside.pem")
    assert found["CLIENTS"].versions == ("TLSv1.2", "TLSv1.3")
    assert found["OUT.SIDE"].versions == ("TLSv1.3",)


def test_metrics_with_tls_are_a_listener_of_their_own() -> None:
    texts = {"metrics.listener": "https://h:9", "listener.name.https.ssl.keystore.location": "metrics.pem"}
    assert BrokerSettings.from_texts(texts).tls_listeners["HTTPS"].keystore_location == "metrics.pem"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssl.keystore.location": ""}, "the listener CLIENTS speaks TLS and has no certificate"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "CLIENTS has two certificates"),
        ({"ssl.client.auth": "required"}, "has no authorities to check them with: set ssl.truststore.location"),
        ({"ssl.client.auth": "maybe"}, "must be one of none, requested, required"),
        ({"ssl.keystore.type": "PKCS12"}, "only PEM is supported: convert the file with `openssl pkcs12"),
        ({"ssl.truststore.type": "JKS"}, "keytool -importkeystore"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must be one of TLSv1.2, TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "must name TLSv1.2, TLSv1.3 or both"),
        ({"ssl.principal.mapping.rules": "alice"}, "must begin with DEFAULT"),
        ({"listener.name.inside.ssl.client.auth": "none"}, "is for the listener INSIDE, and there is only CLIENTS"),
        ({"listener.name.clients.num.partitions": "3"}, "Unknown broker config name"),
        ({"listener.name.CLIENTS.ssl.client.auth": "none"}, "Unknown broker config name"),
    ],
)
def test_a_listener_that_cannot_speak_is_refused_with_the_reason(more: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason.replace("(", r"\(")):
        BrokerSettings.from_texts({**TWO, **more})


def test_brokers_of_a_cluster_check_each_others_certificates() -> None:
    of_cluster = {"cluster.store": "etcd://e:1", "cluster.name": "woods", "node.id": "1"}
    BrokerSettings.from_texts({**TWO, **of_cluster})
    with_tls = {**TWO, **of_cluster, "inter.broker.listener.name": "CLIENTS"}
    with pytest.raises(InvalidSetting, match="no authorities to check each other's certificates with"):
        BrokerSettings.from_texts(with_tls)
    BrokerSettings.from_texts({**with_tls, "ssl.truststore.location": "ca.pem"})


SECRET = "timber-and-oak"


def test_a_secret_is_shown_to_nobody() -> None:
    settings = BrokerSettings.from_texts({**TWO, "ssl.key.password": SECRET, "ssl.keystore.key": ""})
    tls = settings.tls_listeners["CLIENTS"]
    assert tls.key_password == SECRET
    assert SECRET not in repr(settings)
    assert SECRET not in repr(tls)


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.clients.ssl.key.password"])
def test_a_secret_on_the_command_line_is_refused_with_other_ways(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match="set it in the configuration file") as refused:
        load_settings(flags=[f"{name}={SECRET}"])
    assert SECRET not in str(refused.value)
    assert f"CORDWOOD_{name.upper().replace('.', '_')}" in str(refused.value)


def test_a_secret_comes_from_the_file_or_the_environment() -> None:
    toml = (
        '[ssl]\nkeystore.location = "a.pem"\nkey.password = "one"\n[listener.name.clients.ssl]\nkey.password = "two"\n'
    )
    environment = {"CORDWOOD_LISTENER_NAME_SSL_SSL_KEY_PASSWORD": "three"}
    listeners = ["listeners=SSL://h:1,CLIENTS://h:2", "listener.security.protocol.map=SSL:SSL,CLIENTS:SSL"]
    flags = [*listeners, "inter.broker.listener.name=SSL"]
    found = load_settings(toml, environment, flags).tls_listeners
    assert (found["SSL"].key_password, found["CLIENTS"].key_password) == ("three", "two")
