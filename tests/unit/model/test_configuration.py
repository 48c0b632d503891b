"""The sources of a broker's settings, their precedence, and the errors for mistakes."""

import re
from pathlib import Path

import pytest

from cordwood.model.settings.broker_settings import BROKER_SETTINGS, COARSER_UNITS, OTHER_NAMES, BrokerSettings
from cordwood.model.settings.configuration import NOT_SETTINGS, InvalidConfiguration, load_settings, variable_name
from cordwood.model.settings.configuration_reference import reference_markdown
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def retention_ms(settings: BrokerSettings) -> int:
    return settings.topic_settings.retention_ms


def test_without_any_source_everything_is_at_its_default() -> None:
    assert load_settings() == BrokerSettings()


def test_flags_hold_over_the_environment_which_holds_over_the_file_which_holds_over_defaults() -> None:
    file = "log.retention.ms = 1\nlog.segment.bytes = 1001\nnum.partitions = 3\nnode.id = 4"
    environment = {
        "CORDWOOD_LOG_RETENTION_MS": "2",
        "CORDWOOD_LOG_SEGMENT_BYTES": "1002",
        "CORDWOOD_NUM_PARTITIONS": "5",
    }
    settings = load_settings(file, environment, ["log.retention.ms=3", "log.segment.bytes=1003"])
    assert retention_ms(settings) == 3
    assert settings.topic_settings.segment_bytes == 1003
    assert (settings.num_partitions, settings.node_id) == (5, 4)
    assert settings.delete_topic_enable


def test_toml_may_write_names_dotted_quoted_or_as_tables_and_values_as_what_they_are() -> None:
    settings = load_settings(
        """
        num.partitions = 3
        "auto.create.topics.enable" = false
        listeners = ["127.0.0.1:19092"]
        [log]
        dirs = "/data = with a sign"
        retention.ms = "60000"
        [log.cleaner]
        enable = false
        min.cleanable.ratio = 0.25
        """
    )
    assert settings.num_partitions == 3
    assert not settings.auto_create_topics_enable
    assert settings.listener_list[0].address.port == 19092
    assert settings.data_directories == ("/data = with a sign",)
    assert retention_ms(settings) == 60_000
    assert not settings.log_cleaner_enable
    assert settings.topic_settings.min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("num.partitions = ", "broker.toml is not valid TOML"),
        ("num.partitions = [[1]]", "num.partitions must be a string, a number, a boolean or a list"),
        ("num.partitions = 1979-05-27", "num.partitions must be a string"),
        ('"log.dirs" = "a"\n[log]\ndirs = "b"', "broker.toml sets log.dirs twice"),
        ("num.partitons = 3", "Unknown broker config name: num.partitons; did you mean num.partitions?"),
        ("retention.ms = 3", "it is a topic's setting, whose default on the broker is log.retention.ms"),
        ("num.partitions = 0", "broker.toml: Invalid value 0 for configuration num.partitions: must be at least 1"),
        ("log.retention.hours = 1.5", "broker.toml: Invalid value 1.5 for configuration log.retention.hours"),
    ],
)
def test_a_mistake_in_the_file_is_said_with_its_place_and_reason(file: str, reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=re.escape(reason)):
        load_settings(file, file_name="broker.toml")


def test_every_mistake_of_all_sources_is_named_at_once() -> None:
    file = "num.partitions = 0\nno.such = 1\n[log]\nretention.ms = 'soon'\nsegment.bytes = {a = 1979-05-27}\n"
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(file, {"CORDWOOD_NODE_IDD": "1"}, ["node.id=x"], file_name="broker.toml")
    named = ("num.partitions", "no.such", "log.retention.ms", "log.segment.bytes.a", "CORDWOOD_NODE_IDD", "node.id")
    for name in named:
        assert any(name in problem for problem in caught.value.problems), (name, caught.value.problems)
    assert len(caught.value.problems) == len(named)


def test_a_misspelt_variable_is_an_error_that_suggests_the_right_one() -> None:
    with pytest.raises(InvalidConfiguration, match="CORDWOOD_NUM_PARTITION is not a setting; did you mean"):
        load_settings(environment={"CORDWOOD_NUM_PARTITION": "3", "PATH": "/bin", "CORDWOOD_CONFIG": "x.toml"})


def test_variables_that_are_not_the_brokers_are_left_alone() -> None:
    environment = {"PATH": "/bin"} | dict.fromkeys(NOT_SETTINGS, "text")
    assert load_settings(environment=environment) == BrokerSettings()


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("num.partitions", "'num.partitions' must be of the form name=value"),
        ("num.partitions=many", "flags: Invalid value many for configuration num.partitions"),
        ("num=3", "flags: Unknown broker config name: num"),
    ],
)
def test_a_mistake_in_a_flag_is_said_with_its_reason(flag: str, reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=re.escape(reason)):
        load_settings(flags=[flag])


def test_a_value_may_have_an_equals_sign_and_the_last_of_two_flags_holds() -> None:
    settings = load_settings(flags=["broker.rack=a=b", "node.id=1", "node.id=2"])
    assert (settings.broker_rack, settings.node_id) == ("a=b", 2)


def test_retention_may_be_said_in_coarser_units_and_the_finest_holds() -> None:
    assert retention_ms(load_settings(flags=["log.retention.hours=2"])) == 7_200_000
    assert retention_ms(load_settings(flags=["log.retention.minutes=3", "log.retention.hours=2"])) == 180_000
    assert retention_ms(load_settings(flags=["log.retention.ms=4", "log.retention.minutes=3"])) == 4
    assert retention_ms(load_settings(flags=["log.retention.hours=-1"])) == -1


def test_a_coarser_unit_in_a_stronger_place_holds_over_a_finer_one_in_a_weaker() -> None:
    settings = load_settings("log.retention.ms = 5", {"CORDWOOD_LOG_RETENTION_HOURS": "1"})
    assert retention_ms(settings) == 3_600_000


def test_kafkas_older_names_are_taken() -> None:
    settings = load_settings(flags=["log.dir=/old", "broker.id=6"])
    assert (settings.data_directories, settings.node_id) == (("/old",), 6)


def test_what_contradicts_each_other_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="would never fit"):
        load_settings(flags=["queued.max.request.bytes=1024"])


def test_all_contradictions_are_told_at_once() -> None:
    flags = ["queued.max.request.bytes=1024", "cluster.store=etcd://a:2379", "inter.broker.listener.name=INNER"]
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(flags=flags)
    said = caught.value.problems
    assert len(said) == 4
    for problem, words in zip(said, ("would never fit", "INNER", "needs cluster.name", "needs node.id"), strict=True):
        assert words in problem


def test_the_address_of_the_store_is_checked_with_all_other_values() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        load_settings(flags=["cluster.store=etcd:/a:2379", "node.id=x"])
    assert [problem.split(": Invalid value")[0] for problem in caught.value.problems] == ["flags", "flags"]


def test_every_name_has_a_variable_of_its_own() -> None:
    names = [*BROKER_SETTINGS, *COARSER_UNITS, *OTHER_NAMES]
    assert len({variable_name(name) for name in names}) == len(names)


def test_the_configuration_reference_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference_markdown(), (
        "run: python -m cordwood.model.settings.configuration_reference > docs/configuration.md"
    )


def test_the_configuration_reference_names_every_setting() -> None:
    page = reference_markdown()
    for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS, *COARSER_UNITS, *OTHER_NAMES):
        assert f"`{name}`" in page, name
