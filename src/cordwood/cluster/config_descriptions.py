"""Settings as DescribeConfigs and CreateTopics show them: the effective value and its source."""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.planner.configs import ConfigResource, ResourceType, broker_id_of
from cordwood.cluster.planner.placement import default_replicas
from cordwood.cluster.planner.topics import topic_by_name
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import check_topic_name
from cordwood.model.settings.broker_settings import BROKER_SETTINGS, broker_setting
from cordwood.model.settings.cluster_settings import DEFAULT_REPLICATION_FACTOR
from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS
from cordwood.model.settings.setting import Kind, Setting, has_no_room
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS


class ConfigSource(IntEnum):
    """The source of a value, numbered as on the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


_LISTED_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}


class ConfigSynonym(NamedTuple):
    """One place where a setting has a value; the first synonym is in effect."""

    name: str
    value: str | None
    """None: the value is a secret."""
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None: the value is a secret."""
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    kind: Kind
    documentation: str
    is_sensitive: bool = False

    @property
    def told_value(self) -> str | None:
        return told(self.value)


def told(text: str | None) -> str | None:
    """A value as it stands in answers. None for a secret, and for a value too long for any message: an earlier release
    stored such values, and a shortened list would be taken for the whole one."""
    return None if text is None or has_no_room(text) else text


def describe_configs(
    image: ClusterImage, resource: ConfigResource, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic, of a group, of this broker, or those set on all brokers, sorted. `names` limits them."""
    named = frozenset(names) if names else None
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(resource.name)
        return topic_entries(image, topic_by_name(image, resource.name).overrides, named)
    if resource.resource_type == ResourceType.GROUP:
        return _group_entries(image, resource.name, named)
    if resource.resource_type != ResourceType.BROKER:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    if resource.name == "":
        return _default_broker_entries(image, named)
    broker_id = broker_id_of(image, resource)
    if broker_id != image.node_id:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {image.node_id} or empty string, but received {resource.name}",
        )
    settings = {**BROKER_SETTINGS, **_of_listeners(image)}
    return [_entry(setting, _broker_layers(image, setting)) for _, setting in _among(settings, named)]


def _of_listeners(image: ClusterImage) -> dict[str, Setting]:
    """The settings that single listeners have for themselves, by name."""
    given = {name: broker_setting(name) for name in image.static_settings.texts if name not in BROKER_SETTINGS}
    return {name: setting for name, setting in given.items() if setting is not None}


def _among(settings: Mapping[str, Setting], named: frozenset[str] | None) -> Iterable[tuple[str, Setting]]:
    """The settings with these names: a request may ask for one setting of thousands of resources."""
    if named is None:
        return settings.items()
    return [(name, setting) for name, setting in settings.items() if name in named]


def config_resources(image: ClusterImage, resource_types: Collection[int] = ()) -> list[ConfigResource]:
    """The resources with a configuration, for ListConfigResources: of these types, or of all.

    Raises UNSUPPORTED_VERSION for a type that does not exist: the client takes it for a type of a later protocol.
    """
    unknown = sorted(set(resource_types) - _LISTED_TYPES)
    if unknown:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource types: {unknown}")
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in image.sorted_topics()]
    resources += [ConfigResource(ResourceType.GROUP, group_id) for group_id in sorted(image.group_configs)]
    for of_broker in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        resources += [ConfigResource(of_broker, str(broker_id)) for broker_id in sorted(image.brokers)]
    return [each for each in resources if not resource_types or each.resource_type in resource_types]


def topic_entries(
    image: ClusterImage, overrides: Mapping[str, str], named: frozenset[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic that has these overrides, whether or not it exists yet."""
    return _entries(image, _among(TOPIC_SETTINGS, named), overrides, ConfigSource.DYNAMIC_TOPIC)


def _group_entries(image: ClusterImage, group_id: str, named: frozenset[str] | None) -> list[ConfigEntry]:
    """The settings of a group, as in Kafka whether or not the group exists."""
    if not group_id:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    overrides = image.group_configs.get(group_id, {})
    return _entries(image, _among(ONE_GROUP_SETTINGS, named), overrides, ConfigSource.DYNAMIC_GROUP)


def _entries(
    image: ClusterImage,
    settings: Iterable[tuple[str, Setting]],
    overrides: Mapping[str, str],
    source: ConfigSource,
) -> list[ConfigEntry]:
    """Entries of settings that can be overridden on one topic or group; their defaults are the broker's."""
    entries = []
    for name, setting in settings:
        layers = []
        if name in overrides:
            layers.append(ConfigSynonym(name, overrides[name], source))
        if setting.broker_name is not None:
            layers += _broker_layers(image, BROKER_SETTINGS[setting.broker_name])
        else:
            layers.append(ConfigSynonym(name, setting.format(setting.default), ConfigSource.DEFAULT))
        entries.append(_entry(setting, layers))
    return entries


def _default_broker_entries(image: ClusterImage, named: frozenset[str] | None) -> list[ConfigEntry]:
    """Settings that were set on all brokers while they ran, and as in Kafka only those."""
    return [
        _entry(BROKER_SETTINGS[name], [ConfigSynonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)])
        for name, text in sorted(image.default_broker_config.items())
        if name in BROKER_SETTINGS and (named is None or name in named)
    ]


def _broker_layers(image: ClusterImage, setting: Setting) -> list[ConfigSynonym]:
    """The places where a broker's setting has a value, the strongest first."""
    name = setting.name
    layers = [
        ConfigSynonym(name, texts[name], source)
        for texts, source in (
            (image.broker_configs.get(image.node_id, {}), ConfigSource.DYNAMIC_BROKER),
            (image.default_broker_config, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (image.static_settings.texts, ConfigSource.STATIC_BROKER),
        )
        if name in texts
    ]
    default = ConfigSynonym(name, _default_text(image, setting), ConfigSource.DEFAULT)
    # A setting of 0 is the default in another word; clients take the first value for a number of replicas.
    chosen = [each for each in layers if name != DEFAULT_REPLICATION_FACTOR or (each.value or "").strip() != "0"]
    return [*chosen, default]


def _default_text(image: ClusterImage, setting: Setting) -> str:
    """The text of a setting's default. The number of replicas follows the members of the cluster."""
    if setting.name == DEFAULT_REPLICATION_FACTOR:
        return str(default_replicas(image))
    return setting.format(setting.default)


def _entry(setting: Setting, layers: list[ConfigSynonym]) -> ConfigEntry:
    if setting.secret:
        layers = [layer._replace(value=None) for layer in layers]
    return ConfigEntry(
        setting.name,
        layers[0].value,
        layers[0].source,
        not setting.changeable,
        tuple(layers),
        setting.kind,
        setting.meaning,
        is_sensitive=setting.secret,
    )
