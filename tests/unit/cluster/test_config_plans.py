"""What can be set on topics and brokers while they run, and how it is described."""

import pytest
from tests.unit.cluster.metadata import Metadata, refusal

from cordwood.cluster.config_descriptions import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    config_resources,
    describe_configs,
)
from cordwood.cluster.planner.configs import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ResourceType,
    alteration_weight,
    plan_alterations,
    plan_incremental_alter,
    plan_replace_configs,
)
from cordwood.cluster.planner.internal_topics import internal_topic
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import CONSUMER_OFFSETS_TOPIC
from cordwood.model.settings import topic_settings
from cordwood.model.settings.broker_settings import BROKER_SETTINGS
from cordwood.model.settings.configuration import unknown_name
from cordwood.model.settings.setting import Kind
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS, resolve

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
SET, DELETE, APPEND, SUBTRACT = AlterOperation


async def with_topic(**texts: str) -> Metadata:
    metadata = await Metadata(**texts).register(1)
    await metadata.create(NewTopic("t", 2, configs={"retention.ms": "1000"}))
    return metadata


async def alter(metadata: Metadata, resource: ConfigResource, *changes: ConfigChange) -> None:
    await metadata.carry_out(plan_incremental_alter(metadata.image, resource, changes).plan)


async def test_what_is_not_named_in_an_incremental_change_stays() -> None:
    metadata = await with_topic()
    await alter(metadata, TOPIC, ConfigChange("segment.bytes", SET, "5000"))
    assert metadata.image.topics["t"].overrides == {"retention.ms": "1000", "segment.bytes": "5000"}
    await alter(metadata, TOPIC, ConfigChange("retention.ms", DELETE, None))
    assert metadata.image.topics["t"].overrides == {"segment.bytes": "5000"}
    assert metadata.image.topics["t"].settings.segment_bytes == 5000


async def test_what_is_not_named_in_a_replacement_goes_back_to_its_default() -> None:
    metadata = await with_topic()
    await metadata.carry_out(plan_replace_configs(metadata.image, TOPIC, [("segment.bytes", "5000")]).plan)
    assert metadata.image.topics["t"].overrides == {"segment.bytes": "5000"}
    await metadata.carry_out(plan_replace_configs(metadata.image, TOPIC, []).plan)
    assert metadata.image.topics["t"].overrides == {}
    assert metadata.image.topics["t"].config_mod_revision == 0


async def test_a_change_to_what_is_set_already_writes_nothing() -> None:
    metadata = await with_topic()
    alteration = plan_incremental_alter(
        metadata.image, TOPIC, [ConfigChange("retention.ms", SET, "1000"), ConfigChange("segment.ms", DELETE, None)]
    )
    assert alteration.plan is None


async def test_parts_are_added_to_lists_once_and_taken_from_them() -> None:
    metadata = await with_topic()
    await alter(metadata, TOPIC, ConfigChange("cleanup.policy", APPEND, "compact,delete"))
    assert metadata.image.topics["t"].overrides["cleanup.policy"] == "delete,compact"
    await alter(metadata, TOPIC, ConfigChange("cleanup.policy", SUBTRACT, "delete"))
    assert metadata.image.topics["t"].settings.cleanup_policy == ("compact",)


async def test_parts_are_added_to_the_brokers_default_where_the_topic_has_none_of_its_own() -> None:
    metadata = await with_topic(log_cleanup_policy="compact")
    await alter(metadata, TOPIC, ConfigChange("cleanup.policy", APPEND, "delete"))
    assert metadata.image.topics["t"].overrides["cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize(
    ("resource", "change", "code", "reason"),
    [
        (
            TOPIC,
            ConfigChange("retention.ms", SET, "soon"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms",
        ),
        (TOPIC, ConfigChange("retention", SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention"),
        (TOPIC, ConfigChange("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value not supported for"),
        (
            TOPIC,
            ConfigChange("retention.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            ConfigChange("no.such.name", SUBTRACT, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key no.such.name",
        ),
        (TOPIC, ConfigChange("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG, "must be one of delete"),
        (TOPIC, ConfigChange("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "Unknown operation type 9"),
        (
            TOPIC,
            ConfigChange("ordering.scope", SET, "global"),
            ErrorCode.INVALID_CONFIG,
            "needs exactly one partition",
        ),
        (
            ConfigResource(ResourceType.TOPIC, "missing"),
            ConfigChange("retention.ms", SET, "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'missing' does not exist.",
        ),
        (
            ConfigResource(ResourceType.CLIENT_METRICS, "m"),
            ConfigChange("a", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected resource type",
        ),
        (
            ConfigResource(ResourceType.BROKER, "one"),
            ConfigChange("log.retention.ms", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: one",
        ),
        (
            ConfigResource(ResourceType.BROKER, "9"),
            ConfigChange("log.retention.ms", SET, "1"),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No node with id 9 found.",
        ),
        (
            BROKER,
            ConfigChange("num.partitions", SET, "3"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: num.partitions",
        ),
        (
            ALL_BROKERS,
            ConfigChange("log.retention.m", SET, "3"),
            ErrorCode.INVALID_REQUEST,
            "did you mean log.retention.ms?",
        ),
        (ALL_BROKERS, ConfigChange("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST, "Invalid value x"),
        (
            ALL_BROKERS,
            ConfigChange("log.cleaner.max.compaction.lag.ms", SET, "1"),
            ErrorCode.INVALID_REQUEST,
            "conflict topic config setting",
        ),
        (
            ALL_BROKERS,
            ConfigChange("log.ordering.scope", SET, "global"),
            ErrorCode.INVALID_CONFIG,
            "Topic 't' has ordering.scope=global",
        ),
    ],
)
async def test_what_cannot_be_set_is_refused_with_kafkas_code_and_the_reason(
    resource: ConfigResource, change: ConfigChange, code: ErrorCode, reason: str
) -> None:
    metadata = await with_topic(log_cleaner_min_compaction_lag_ms="5")
    with pytest.raises(ProtocolError) as refused:
        plan_incremental_alter(metadata.image, resource, [change])
    assert refused.value.code is code
    assert reason in refused.value.message


async def test_one_name_twice_in_one_change_is_refused() -> None:
    metadata = await with_topic()
    changes = [ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", DELETE, None)]
    with pytest.raises(ProtocolError, match=r"duplicate config keys : retention\.ms"):
        plan_incremental_alter(metadata.image, TOPIC, changes)
    with pytest.raises(ProtocolError, match=r"duplicate config keys : retention\.ms"):
        plan_replace_configs(metadata.image, TOPIC, [("retention.ms", "1"), ("retention.ms", "2")])


async def test_a_replacement_without_a_value_is_refused() -> None:
    metadata = await with_topic()
    with pytest.raises(ProtocolError, match=r"Null value not supported for : retention\.ms"):
        plan_replace_configs(metadata.image, TOPIC, [("retention.ms", None)])


async def test_a_resource_twice_in_one_request_is_refused_once() -> None:
    metadata = await with_topic()
    outcomes = plan_alterations(plan_incremental_alter, metadata.image, [(TOPIC, []), (BROKER, []), (TOPIC, [])])
    assert list(outcomes) == [TOPIC, BROKER]
    assert refusal(outcomes[TOPIC]) == (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


async def test_the_order_of_a_topic_can_be_promised_and_given_up_where_it_can_be_kept() -> None:
    metadata = await with_topic()
    await alter(metadata, TOPIC, ConfigChange("ordering.scope", SET, "key"))
    await alter(metadata, TOPIC, ConfigChange("ordering.scope", SET, "partition"))
    assert metadata.image.topics["t"].settings.ordering_scope == "partition"


async def test_the_brokers_own_topic_stays_compacted() -> None:
    metadata = await with_topic()
    await metadata.create(internal_topic(CONSUMER_OFFSETS_TOPIC, metadata.settings, 1), internal=True)
    resource = ConfigResource(ResourceType.TOPIC, CONSUMER_OFFSETS_TOPIC)
    with pytest.raises(ProtocolError) as refused:
        plan_incremental_alter(metadata.image, resource, [ConfigChange("cleanup.policy", SET, "delete")])
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await alter(metadata, resource, ConfigChange("segment.bytes", SET, "5000"))
    assert metadata.image.topics[CONSUMER_OFFSETS_TOPIC].settings.segment_bytes == 5000


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


async def test_a_setting_is_described_with_all_places_that_set_it_the_strongest_first() -> None:
    metadata = await with_topic(log_retention_ms="4")
    await alter(metadata, ALL_BROKERS, ConfigChange("log.retention.ms", SET, "3"))
    await alter(metadata, BROKER, ConfigChange("log.retention.ms", SET, "2"))
    described = entry(describe_configs(metadata.image, TOPIC), "retention.ms")
    assert (described.value, described.source) == ("1000", ConfigSource.DYNAMIC_TOPIC)
    assert described.synonyms == (
        ConfigSynonym("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC),
        ConfigSynonym("log.retention.ms", "2", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.ms", "604800000", ConfigSource.DEFAULT),
    )
    assert (described.kind, described.read_only, described.is_sensitive) == (Kind.LONG, False, False)
    assert described.documentation == TOPIC_SETTINGS["retention.ms"].meaning


async def test_the_value_described_is_the_value_that_holds() -> None:
    metadata = await with_topic(log_segment_bytes="9999")
    topic = metadata.image.topics["t"]
    for described in describe_configs(metadata.image, TOPIC):
        held = getattr(topic.settings, described.name.replace(".", "_"))
        assert TOPIC_SETTINGS[described.name].parse(described.value or "") == held


async def test_a_broker_describes_every_setting_and_which_of_them_can_be_altered() -> None:
    metadata = await with_topic(num_partitions="5")
    entries = describe_configs(metadata.image, BROKER)
    assert [each.name for each in entries] == sorted(BROKER_SETTINGS)
    partitions = entry(entries, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("5", ConfigSource.STATIC_BROKER, True)
    assert not entry(entries, "log.retention.ms").read_only
    assert entry(entries, "delete.topic.enable").source is ConfigSource.DEFAULT


async def test_for_all_brokers_only_what_was_set_on_all_of_them_is_described() -> None:
    metadata = await with_topic()
    assert describe_configs(metadata.image, ALL_BROKERS) == []
    await alter(metadata, ALL_BROKERS, ConfigChange("log.retention.ms", SET, "3"))
    assert [(each.name, each.value) for each in describe_configs(metadata.image, ALL_BROKERS)] == [
        ("log.retention.ms", "3")
    ]


async def test_only_the_names_asked_for_are_described_and_unknown_ones_are_left_out() -> None:
    metadata = await with_topic()
    entries = describe_configs(metadata.image, TOPIC, ["segment.ms", "retention.ms", "no.such.name"])
    assert [each.name for each in entries] == ["retention.ms", "segment.ms"]
    assert len(describe_configs(metadata.image, TOPIC, [])) == len(TOPIC_SETTINGS)


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (ConfigResource(ResourceType.TOPIC, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(ResourceType.BROKER, "2"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.BROKER, "9"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(ResourceType.BROKER, "x"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.CLIENT_METRICS, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_here_is_not_described(resource: ConfigResource, code: ErrorCode) -> None:
    metadata = await with_topic()
    await metadata.register(2)
    with pytest.raises(ProtocolError) as refused:
        describe_configs(metadata.image, resource)
    assert refused.value.code is code


async def test_topics_brokers_and_their_loggers_are_listed_as_having_a_configuration() -> None:
    metadata = await with_topic()
    assert config_resources(metadata.image) == [TOPIC, BROKER, ConfigResource(ResourceType.BROKER_LOGGER, BROKER.name)]
    assert config_resources(metadata.image, [ResourceType.BROKER]) == [BROKER]


THROTTLED = "leader.replication.throttled.replicas"


def replicas(first: int, end: int) -> str:
    return ",".join(f"{partition}:1" for partition in range(first, end))


async def test_parts_that_are_appended_twice_are_there_once() -> None:
    metadata = await with_topic()
    await alter(metadata, TOPIC, ConfigChange(THROTTLED, APPEND, "0:1,1:1"))
    await alter(metadata, TOPIC, ConfigChange(THROTTLED, APPEND, "1:1,2:1,2:1"))
    assert metadata.image.topics["t"].overrides[THROTTLED] == "0:1,1:1,2:1"
    await alter(metadata, TOPIC, ConfigChange(THROTTLED, SUBTRACT, "1:1,7:7"))
    assert metadata.image.topics["t"].settings.leader_replication_throttled_replicas == ("0:1", "2:1")


async def test_a_value_that_would_grow_beyond_what_a_message_has_room_for_is_refused() -> None:
    metadata = await with_topic()
    for first in range(0, 4000, 1000):
        await alter(metadata, TOPIC, ConfigChange(THROTTLED, APPEND, replicas(first, first + 1000)))
    with pytest.raises(ProtocolError, match="more than 32767 bytes") as refused:
        await alter(metadata, TOPIC, ConfigChange(THROTTLED, APPEND, replicas(4000, 6000)))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    stored = metadata.image.topics["t"].overrides[THROTTLED]
    assert stored == replicas(0, 4000)


async def test_a_value_that_an_earlier_release_stored_and_no_message_has_room_for_is_described_as_null() -> None:
    metadata = await Metadata(**{"log.cleanup.policy": "delete," * 5000}).register(1)
    await metadata.create(NewTopic("t", 1))
    (entry,) = describe_configs(metadata.image, TOPIC, ["cleanup.policy"])
    assert len(entry.value or "") == 35_000
    assert entry.told_value is None
    (other,) = describe_configs(metadata.image, TOPIC, ["retention.ms"])
    assert other.told_value == other.value


async def test_settings_are_refused_for_a_group_whose_name_no_group_can_have() -> None:
    metadata = await Metadata().register(1)
    group = ConfigResource(ResourceType.GROUP, "g" * 1025)
    with pytest.raises(ProtocolError) as refused:
        plan_replace_configs(metadata.image, group, [("consumer.session.timeout.ms", "50000")])
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


def test_only_a_name_of_ordinary_length_gets_a_hint() -> None:
    assert unknown_name("topic", "retentoin.ms", TOPIC_SETTINGS).endswith("did you mean retention.ms?")
    assert "did you mean" not in unknown_name("topic", "retention.ms" * 11, TOPIC_SETTINGS)
    assert "did you mean" not in unknown_name("topic", "", TOPIC_SETTINGS)


async def test_long_texts_weigh_more_when_a_request_is_cut_into_slices() -> None:
    metadata = await with_topic()
    short = [ConfigChange("retention.ms", SET, "5")]
    long = [ConfigChange(THROTTLED, SET, "1:1," * 8000)]
    assert alteration_weight(metadata.image, TOPIC, short) == 2
    assert alteration_weight(metadata.image, TOPIC, long) > 100
    await alter(metadata, TOPIC, ConfigChange(THROTTLED, SET, ",".join(f"{number}:1" for number in range(4000))))
    assert alteration_weight(metadata.image, TOPIC, short) > 80


def test_settings_with_long_texts_are_not_kept_for_the_next_topic() -> None:
    kept = topic_settings._resolved_before.cache_info().currsize
    for number in range(5):
        resolve({THROTTLED: ",".join(f"{number}:{partition}" for partition in range(500))})
    assert topic_settings._resolved_before.cache_info().currsize == kept
