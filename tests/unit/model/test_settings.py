"""A setting takes the values of its row and refuses all others with the reason."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.settings.broker_settings import BROKER_SETTINGS, TOPIC_SETTING_BY_BROKER_NAME, BrokerSettings
from cordwood.model.settings.setting import InvalidSetting, Kind, Setting, attribute_values, table
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS, TopicSettings, resolve

EVERY_SETTING = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, "-5", -5),
        (Kind.LONG, str(2**63 - 1), 2**63 - 1),
        (Kind.DOUBLE, "0.25", 0.25),
        (Kind.STRING, " text ", "text"),
        (Kind.LIST, " a, b ,,c", ("a", "b", "c")),
        (Kind.LIST, "", ()),
    ],
)
def test_text_becomes_a_value_of_the_settings_kind(kind: Kind, text: str, value: object) -> None:
    assert Setting("name", kind, 0, "").parse(text) == value


@pytest.mark.parametrize(
    ("setting", "text", "reason"),
    [
        (Setting("n", Kind.BOOLEAN, False, ""), "yes", "expected true or false"),
        (Setting("n", Kind.INT, 0, ""), "1.5", "expected a 32-bit integer"),
        (Setting("n", Kind.INT, 0, ""), str(2**31), "does not fit a 32-bit integer"),
        (Setting("n", Kind.SHORT, 0, ""), "-32769", "does not fit a 16-bit integer"),
        (Setting("n", Kind.LONG, 0, ""), str(2**63), "does not fit a 64-bit integer"),
        (Setting("n", Kind.INT, 0, "", low=1), "0", "must be at least 1"),
        (Setting("n", Kind.INT, 0, "", high=9), "10", "must be at most 9"),
        (Setting("n", Kind.DOUBLE, 0.0, "", low=0, high=1), "nan", "must be at least 0"),
        (Setting("n", Kind.STRING, "a", "", choices=("a", "b")), "c", "must be one of a, b"),
        (Setting("n", Kind.LIST, (), "", choices=("a", "b")), "a,c", "must be one of a, b"),
    ],
)
def test_a_refusal_names_the_setting_the_text_and_the_reason(setting: Setting, text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=f"^Invalid value {text} for configuration n: {reason}$"):
        setting.parse(text)


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=lambda setting: setting.name)
def test_every_default_is_a_value_that_its_own_text_stands_for(setting: Setting) -> None:
    assert setting.parse(setting.format(setting.default)) == setting.default


@pytest.mark.parametrize("setting", EVERY_SETTING, ids=lambda setting: setting.name)
def test_every_setting_says_what_it_means_in_whole_sentences(setting: Setting) -> None:
    assert len(setting.meaning) > 20
    assert setting.meaning.endswith(".")


@given(st.sampled_from(EVERY_SETTING), st.text(max_size=12))
def test_no_text_does_anything_but_parse_or_be_refused(setting: Setting, text: str) -> None:
    try:
        value = setting.parse(text)
    except InvalidSetting:
        return
    assert setting.parse(setting.format(value)) == value


def test_two_rows_of_one_name_are_our_own_fault() -> None:
    row = Setting("a", Kind.INT, 0, "")
    with pytest.raises(AssertionError):
        table([row, row])


def attributes(settings: Any) -> Mapping[str, object]:
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def test_the_topics_attributes_and_their_table_are_the_same_settings() -> None:
    assert attributes(TopicSettings()) == attribute_values(TOPIC_SETTINGS, {})


def test_the_brokers_attributes_and_their_table_are_the_same_settings() -> None:
    own = {name: row for name, row in BROKER_SETTINGS.items() if name not in TOPIC_SETTING_BY_BROKER_NAME}
    assert attributes(BrokerSettings()) == {**attribute_values(own, {}), "texts": {}}
    assert BrokerSettings.from_texts({}) == BrokerSettings()


def test_every_topic_setting_has_its_default_in_a_broker_setting_that_can_be_altered_while_running() -> None:
    for setting in TOPIC_SETTINGS.values():
        if setting.name.endswith(".throttled.replicas"):
            # A list of one topic's partitions, in Kafka without a default for all topics, too.
            assert setting.broker_name is None
            continue
        assert setting.broker_name is not None
        row = BROKER_SETTINGS[setting.broker_name]
        assert (row.kind, row.default, row.changeable) == (setting.kind, setting.default, True)


def test_a_topic_takes_what_is_set_on_it_then_the_brokers_default_then_the_tables() -> None:
    broker = {"log.retention.ms": "2000", "log.segment.bytes": "5000"}
    settings = resolve({"retention.ms": "1000"}, broker)
    assert (settings.retention_ms, settings.segment_bytes, settings.segment_ms) == (1000, 5000, 604_800_000)


def test_an_unknown_topic_setting_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="Unknown topic config name: retention"):
        resolve({"retention": "1"})


@pytest.mark.parametrize("name", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
def test_throttled_replicas_are_partition_and_broker_or_a_star(name: str) -> None:
    for text in ("", "*", "0:1", "0:1,12:3"):
        resolve({name: text})
    for text in ("0", "a:b", "0:1,*", "*,*", "0:1:2", "0:1 2:3"):
        with pytest.raises(InvalidSetting, match="must be the literal"):
            resolve({name: text})
