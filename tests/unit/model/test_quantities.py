"""Durations and sizes as people write them, in settings and on the command line."""

import pytest

from cordwood.model.quantities import duration_ms, in_plain_unit, size_bytes
from cordwood.model.settings.broker_settings import BROKER_SETTINGS
from cordwood.model.settings.configuration import InvalidConfiguration, load_settings
from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250", 250),
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("2w", 1_209_600_000),
        ("1.5h", 5_400_000),
        (" 10 S ", 10_000),
        ("0.25s", 250),
    ],
)
def test_a_duration(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("67108864", 67_108_864),
        ("10B", 10),
        ("64k", 65_536),
        ("64KiB", 65_536),
        ("64kb", 65_536),
        ("10MiB", 10 << 20),
        ("10GiB", 10 << 30),
        ("10g", 10 << 30),
        ("1TiB", 1 << 40),
        ("1.5GiB", 3 << 29),
    ],
)
def test_a_size(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "d", "1y", "ten", "-1d", "1d12h", "1..5s", "1e3s", "0.3ms"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "GiB", "1PiB", "10 apples", "-1k", "0.3B"])
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        size_bytes(text)


@pytest.mark.parametrize(
    ("name", "text", "plain"),
    [
        ("retention.ms", "1d", "86400000"),
        ("retention.ms", "86400000", "86400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.bytes", "10GiB", "10737418240"),
        ("segment.bytes", "64m", "67108864"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("log.scrub.bytes.per.second", "1MiB", "1048576"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "2h", "120"),
        ("num.partitions", "3", "3"),
        ("group.max.size", "10", "10"),
        ("cleanup.policy", "delete", "delete"),
        ("somebody.elses.ms", "1h", "3600000"),
        ("listeners", "PLAINTEXT://:9092", "PLAINTEXT://:9092"),
    ],
)
def test_a_setting_takes_units_that_fit_its_name(name: str, text: str, plain: str) -> None:
    assert in_plain_unit(name, text) == plain


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "10GiB", "use ms, s, m, h, d or w"),
        ("retention.bytes", "1d", "use B, KiB, MiB, GiB or TiB"),
        ("log.retention.hours", "90m", "is no whole number of hours"),
    ],
)
def test_a_unit_that_does_not_fit_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        in_plain_unit(name, text)


def test_a_brokers_configuration_takes_units_from_every_source() -> None:
    settings = load_settings(
        '[log]\nretention.bytes = "10GiB"\nroll.ms = "1d"\n',
        {"CORDWOOD_CONNECTIONS_MAX_IDLE_MS": "5m"},
        ["log.retention.ms=2d", "log.segment.bytes=64MiB"],
    )
    assert settings.topic_settings.retention_bytes == 10 << 30
    assert settings.topic_settings.segment_ms == 86_400_000
    assert settings.connections_max_idle_ms == 300_000
    assert settings.topic_settings.retention_ms == 2 * 86_400_000
    assert settings.topic_settings.segment_bytes == 64 << 20
    with pytest.raises(InvalidConfiguration, match=r"flags: Invalid value 10GiB for configuration log\.retention\.ms"):
        load_settings(flags=["log.retention.ms=10GiB"])


def test_every_duration_and_size_of_the_broker_takes_a_unit() -> None:
    for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS, *ONE_GROUP_SETTINGS):
        words = name.split(".")
        if "ms" in words:
            assert in_plain_unit(name, "1s") == "1000", name
        elif "bytes" in words:
            assert in_plain_unit(name, "1KiB") == "1024", name
