"""A broker's settings: addresses, contradictions, and changes while it runs."""

import pytest

from cordwood.model.settings.broker_settings import BROKER_SETTINGS, BrokerSettings
from cordwood.model.settings.configuration import InvalidConfiguration, load_settings
from cordwood.model.settings.listeners import Callers, Entrance, Listener, ListenerAddress, parse_address
from cordwood.model.settings.setting import InvalidSetting


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ListenerAddress("PLAINTEXT", "127.0.0.1", 9092)),
        ("localhost:0", ListenerAddress("PLAINTEXT", "localhost", 0)),
        ("PLAINTEXT://:9092", ListenerAddress("PLAINTEXT", "", 9092)),
        ("PLAINTEXT://[::1]:9092", ListenerAddress("PLAINTEXT", "::1", 9092)),
    ],
)
def test_an_address_is_written_as_kafka_writes_it_or_just_as_host_and_port(
    text: str, listener: ListenerAddress
) -> None:
    assert parse_address(text) == listener
    assert parse_address(str(listener)) == listener


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SASL_SSL://host:9092", "SASL_SSL speaks TLS and has no certificate"),
        ("SSL://host:9092", "the listener SSL speaks TLS and has no certificate: set ssl.keystore.location"),
        ("CLIENTS://host:9092", "has no protocol for the listener CLIENTS: add CLIENTS:PLAINTEXT"),
        ("CLI ENTS://host:9092", "is no name of a listener"),
        ("host", "must end in a port"),
        ("host:http", "must end in a port"),
        ("host:65536", "must end in a port"),
        ("host:٣", "must end in a port"),
        ("::1:9092", "needs brackets"),
        ("a:1,b:2", "two listeners have the name PLAINTEXT"),
        ("PLAINTEXT://a:1,CLIENTS://b:1", "PLAINTEXT and CLIENTS have the same port"),
        ("PLAINTEXT://127.0.0.1:1,CLIENTS://[::1]:1,X://0.0.0.0:1", "PLAINTEXT and X have the same port"),
        ("", "must name a listener"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        BrokerSettings.from_texts({"listeners": text})


def test_clients_cannot_be_told_to_connect_to_every_address() -> None:
    with pytest.raises(InvalidSetting, match="wildcard"):
        BrokerSettings.from_texts({"advertised.listeners": "0.0.0.0:9092"})


def test_what_clients_are_told_is_what_is_listened_on_unless_it_is_set() -> None:
    here = ListenerAddress("PLAINTEXT", "127.0.0.1", 9092)
    told = ListenerAddress("PLAINTEXT", "log.example", 19092)
    assert BrokerSettings().listener_list == (Listener(here, "PLAINTEXT", None, between_brokers=True),)
    settings = BrokerSettings.from_texts({"advertised.listeners": "PLAINTEXT://log.example:19092"})
    assert settings.listener_list == (Listener(here, "PLAINTEXT", told, between_brokers=True),)


def several(**texts: str) -> BrokerSettings:
    """Settings of two listeners, with changes."""
    named = {
        "listeners": "clients://:9092,BROKERS://127.0.0.1:9093",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    named |= {name.replace("_", "."): text for name, text in texts.items()}
    return BrokerSettings.from_texts({name: text for name, text in named.items() if text})


def test_several_listeners_have_names_and_one_of_them_is_for_brokers() -> None:
    settings = several(advertised_listeners="CLIENTS://log.example:443")
    assert [str(listener.address) for listener in settings.listener_list] == [
        "CLIENTS://:9092",
        "BROKERS://127.0.0.1:9093",
    ]
    clients, brokers = settings.listener_list
    assert clients.entrance(only=False, clustered=True) == Entrance("CLIENTS", Callers.CLIENTS)
    assert brokers.entrance(only=False, clustered=True) == Entrance("BROKERS", Callers.BROKERS)
    assert brokers.entrance(only=True, clustered=True) == Entrance("BROKERS", Callers.BOTH)
    assert brokers.entrance(only=True, clustered=False) == Entrance("BROKERS", Callers.ALONE)
    assert clients.advertised == ListenerAddress("CLIENTS", "log.example", 443)
    assert brokers.advertised is None, "the listener is told by its own address"


def test_without_a_choice_brokers_use_the_only_listener_or_that_of_the_name_plaintext() -> None:
    (only,) = several(listeners="CLIENTS://:9092", inter_broker_listener_name="").listener_list
    assert only.between_brokers
    listeners, protocols = "CLIENTS://:9092,PLAINTEXT://:9093", "CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    settings = several(listeners=listeners, listener_security_protocol_map=protocols, inter_broker_listener_name="")
    assert [listener.between_brokers for listener in settings.listener_list] == [False, True]


def test_two_listeners_share_a_port_as_ipv4_and_ipv6() -> None:
    settings = several(listeners="CLIENTS://127.0.0.1:9092,BROKERS://[::1]:9092")
    assert {listener.address.port for listener in settings.listener_list} == {9092}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("inter_broker_listener_name", "", r"must name the one of listeners \(CLIENTS, BROKERS\) that brokers use"),
        ("inter_broker_listener_name", "INNER", r"INNER, which is not one of listeners \(CLIENTS, BROKERS\)"),
        ("advertised_listeners", "OTHERS://h:1", r"OTHERS, which is not one of listeners \(CLIENTS, BROKERS\)"),
        ("advertised_listeners", "CLIENTS://0.0.0.0:1", "wildcard"),
        ("advertised_listeners", "CLIENTS://h:1,CLIENTS://i:2", "advertised twice"),
        ("advertised_listeners", "CLIENTS://h", "must end in a port"),
        ("listener_security_protocol_map", "CLIENTS:PLAINTEXT", "no protocol for the listener BROKERS"),
        ("listener_security_protocol_map", "CLIENTS:TLS,BROKERS:PLAINTEXT", "'TLS' is no security protocol"),
        ("listener_security_protocol_map", "CLIENTS:SASL_SSL,BROKERS:PLAINTEXT", "speaks TLS and has no certificate"),
        ("listener_security_protocol_map", "CLIENTS", "must be the name of a listener and its protocol"),
        ("listener_security_protocol_map", "CLIENTS:SSL,clients:SSL", "two protocols"),
    ],
)
def test_settings_of_listeners_that_contradict_each_other_are_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        several(**{name: text})


def test_metrics_are_served_over_http_and_https_only() -> None:
    with pytest.raises(InvalidSetting, match="over HTTP or HTTPS, not as SSL"):
        BrokerSettings.from_texts({"metrics.listener": "SSL://h:1"})


def test_a_request_that_may_be_sent_must_fit_into_memory() -> None:
    with pytest.raises(InvalidSetting, match="would never fit"):
        BrokerSettings.from_texts({"queued.max.request.bytes": "1000000"})


def test_defaults_of_topics_that_contradict_each_other_are_refused() -> None:
    texts = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(InvalidSetting, match="conflict"):
        BrokerSettings.from_texts(texts)


def test_a_default_of_topics_is_checked_as_the_topics_setting_is() -> None:
    with pytest.raises(InvalidSetting, match=r"must be one of delete, compact"):
        BrokerSettings.from_texts({"log.cleanup.policy": "shred"})


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"Unknown broker config name: log\.retention"):
        BrokerSettings.from_texts({"log.retention": "1"})


def test_what_is_set_while_running_holds_over_what_the_broker_was_started_with() -> None:
    started = BrokerSettings.from_texts({"log.retention.ms": "1000", "log.segment.bytes": "1000", "node.id": "7"})
    changed = started.changed_by({"log.retention.ms": "2000", "log.segment.bytes": "2000"}, {"log.retention.ms": "3"})
    assert changed.topic_settings.retention_ms == 3
    assert changed.topic_settings.segment_bytes == 2000
    assert changed.node_id == 7
    assert started.topic_settings.retention_ms == 1000


def test_stored_changes_that_this_version_does_not_take_do_not_stop_a_broker_from_starting() -> None:
    changed = BrokerSettings().changed_by({"from.the.future": "1", "log.retention.ms": "soon", "node.id": "9"})
    assert changed == BrokerSettings()


def test_toml_can_hold_all_names_as_tables_but_one_of_kafkas_which_needs_quotes() -> None:
    both = [(name, other) for name in BROKER_SETTINGS for other in BROKER_SETTINGS if other.startswith(name + ".")]
    assert both == [("max.connections", "max.connections.per.ip")]
    settings = load_settings('max.connections = 7\n"max.connections.per.ip" = 5')
    assert (settings.max_connections, settings.max_connections_per_ip) == (7, 5)
    with pytest.raises(InvalidConfiguration, match="put such names in quotes"):
        load_settings("max.connections = 7\nmax.connections.per.ip = 5")


def test_every_setting_is_declared_in_one_area() -> None:
    declared = [name for area in BrokerSettings.__bases__ for name in area.__annotations__]
    assert len(declared) == len(set(declared))
    assert {*declared, "texts"} == set(BrokerSettings.__dataclass_fields__)


def test_a_list_of_directories_names_each_once() -> None:
    settings = BrokerSettings.from_texts({"log.dirs": "/disk-1, /disk-2"})
    assert settings.data_directories == ("/disk-1", "/disk-2")
    with pytest.raises(InvalidSetting, match="twice"):
        BrokerSettings.from_texts({"log.dirs": "/disk-1,/disk-2,/disk-1"})
    with pytest.raises(InvalidSetting, match="without a name"):
        BrokerSettings.from_texts({"log.dirs": "/disk-1,"})
