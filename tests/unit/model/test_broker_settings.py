"""A broker's settings: addresses, contradictions, and what is set while it runs."""

import pytest

from cordwood.model.broker_settings import BROKER_SETTINGS, BrokerSettings
from cordwood.model.listeners import Listener, parse_listener
from cordwood.model.settings import InvalidSetting


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092)),
        ("localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092)),
    ],
)
def test_an_address_is_written_as_kafka_writes_it_or_just_as_host_and_port(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SSL://host:9092", "only PLAINTEXT is"),
        ("host", "must end in a port"),
        ("host:http", "must end in a port"),
        ("host:65536", "must end in a port"),
        ("host:٣", "must end in a port"),
        ("::1:9092", "needs brackets"),
        ("a:1,b:2", "must name one listener"),
        ("", "must name one listener"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        BrokerSettings.from_texts({"listeners": text})


def test_clients_cannot_be_told_to_connect_to_every_address() -> None:
    with pytest.raises(InvalidSetting, match="wildcard"):
        BrokerSettings.from_texts({"advertised.listeners": "0.0.0.0:9092"})


def test_what_clients_are_told_is_what_is_listened_on_unless_it_is_set() -> None:
    assert BrokerSettings().advertised_listener is None
    settings = BrokerSettings.from_texts({"advertised.listeners": "PLAINTEXT://log.example:19092"})
    assert settings.advertised_listener == Listener("PLAINTEXT", "log.example", 19092)
    assert settings.listener == Listener("PLAINTEXT", "127.0.0.1", 9092)


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


def test_no_name_is_the_beginning_of_another_so_that_toml_can_hold_them_all_as_tables() -> None:
    for name in BROKER_SETTINGS:
        assert not any(other.startswith(name + ".") for other in BROKER_SETTINGS)


def test_every_setting_is_declared_in_one_area() -> None:
    declared = [name for area in BrokerSettings.__bases__ for name in area.__annotations__]
    assert len(declared) == len(set(declared))
    assert {*declared, "texts"} == set(BrokerSettings.__dataclass_fields__)
