"""Plans changes of the settings of topics, brokers and groups, and refuses them as Kafka does.

A setting that is set on a running broker overrides the setting at its start: for one broker (resource name: its id) or
for all brokers (resource name empty). Only settings that are marked changeable can be set on a running broker.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.cluster.metadata.rows import (
    DEFAULT_BROKER_CONFIG,
    broker_config_key,
    encode_overrides,
    group_config_key,
    topic_config_key,
    topic_key,
    topic_name_key,
)
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn
from cordwood.cluster.planner.topic_configs import check_overrides, check_scope, text_weight
from cordwood.cluster.planner.topics import topic_by_name
from cordwood.cluster.stores.interface import Compare, Delete, Operation, Put, absent, has_mod_revision, has_value
from cordwood.model.coordination import MAX_NAME_BYTES, is_too_long
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.broker_settings import BROKER_SETTINGS
from cordwood.model.settings.configuration import unknown_name
from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS, group_defaults, resolve_group
from cordwood.model.settings.replication_settings import CORDONED
from cordwood.model.settings.setting import LONGEST_TEXT, InvalidSetting, Kind, Setting, has_no_room
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS

Change = TypeVar("Change", "ConfigChange", tuple[str, str | None])
"""A changed setting: its name comes first, its value last."""


class ResourceType(IntEnum):
    """The kind of a resource with settings, numbered as on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A topic or a group by name, a broker by id, or all brokers (an empty name)."""

    resource_type: int
    name: str


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    resource: ConfigResource
    overrides: Mapping[str, str]
    """The overrides of the resource after the change."""
    plan: Plan | None
    """None: the resource has these overrides already."""


def plan_incremental_alter(
    image: ClusterImage, resource: ConfigResource, changes: Sequence[ConfigChange]
) -> ConfigAlteration:
    """Plans an IncrementalAlterConfigs: settings that are not named stay."""
    _check_names(change.name for change in changes)
    missing = [change.name for change in changes if change.value is None and change.operation != AlterOperation.DELETE]
    if missing:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(sorted(missing))}")
    target = _target(image, resource)
    overrides = dict(target.overrides)
    for change in changes:
        _change(target, overrides, change)
    return _alteration(image, resource, target, overrides)


def plan_replace_configs(
    image: ClusterImage, resource: ConfigResource, configs: Sequence[tuple[str, str | None]]
) -> ConfigAlteration:
    """Plans an AlterConfigs: settings that are not named go back to their defaults."""
    _check_names(name for name, _ in configs)
    missing = sorted(name for name, text in configs if text is None)
    if missing:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")
    overrides = {name: text for name, text in configs if text is not None}
    return _alteration(image, resource, _target(image, resource), overrides)


def plan_alterations(
    plan: Callable[[ClusterImage, ConfigResource, Sequence[Change]], ConfigAlteration],
    image: ClusterImage,
    alterations: Sequence[tuple[ConfigResource, Sequence[Change]]],
) -> dict[ConfigResource, ConfigAlteration | ProtocolError]:
    """Plans a whole request with `plan`; outcomes by resource, in the order of the request."""
    counts = Counter(resource for resource, _ in alterations)
    outcomes: dict[ConfigResource, ConfigAlteration | ProtocolError] = {}
    for resource, changes in alterations:
        try:
            if counts[resource] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            outcomes[resource] = plan(image, resource, changes)
        except ProtocolError as error:
            outcomes[resource] = error
    return outcomes


def alteration_weight(image: ClusterImage, resource: ConfigResource, changes: Sequence[Change]) -> int:
    """The cost of planning these changes, in settings of ordinary length: the settings that the resource has are read
    again with the changed ones."""
    stored: Mapping[str, str] = {}
    if resource.resource_type == ResourceType.TOPIC:
        topic = image.topics.get(resource.name)
        stored = {} if topic is None else topic.overrides
    return text_weight(stored) + text_weight((change[0], change[-1]) for change in changes)


class _Target(NamedTuple):
    """The present overrides of a resource, and the key that holds them."""

    key: str
    mod_revision: int
    table: Mapping[str, Setting]
    overrides: Mapping[str, str]
    defaults: Mapping[str, str]
    """Values of settings that are not overridden, where they differ from the setting's own default."""
    topic: TopicImage | None


def _check_names(names: Iterable[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(twice)}")


def _target(image: ClusterImage, resource: ConfigResource) -> _Target:
    if resource.resource_type == ResourceType.TOPIC:
        topic = topic_by_name(image, resource.name)
        by_broker_name = image.settings.topic_defaults
        defaults = {
            name: by_broker_name[setting.broker_name]
            for name, setting in TOPIC_SETTINGS.items()
            if setting.broker_name is not None and setting.broker_name in by_broker_name
        }
        key = topic_config_key(topic.topic_id)
        return _Target(key, topic.config_mod_revision, TOPIC_SETTINGS, topic.overrides, defaults, topic)
    if resource.resource_type == ResourceType.GROUP:
        return _group_target(image, resource.name)
    if resource.resource_type != ResourceType.BROKER:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource.resource_type}.")
    overrides: Mapping[str, str]
    if resource.name == "":
        key, overrides = DEFAULT_BROKER_CONFIG, image.default_broker_config
    else:
        broker_id = broker_id_of(image, resource, may_be_away=True)
        key, overrides = broker_config_key(broker_id), image.broker_configs.get(broker_id, {})
    mod_revision = image.config_mod_revisions.get(key, 0)
    return _Target(key, mod_revision, BROKER_SETTINGS, overrides, image.settings.texts, None)


def _group_target(image: ClusterImage, group_id: str) -> _Target:
    """The target for a group's settings. A group may be configured before it has members."""
    if not group_id:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if is_too_long(group_id):
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID, f"A group's name has at most {MAX_NAME_BYTES} bytes.")
    if group_id not in image.group_configs and len(image.group_configs) >= image.settings.groups_max:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"{len(image.group_configs)} groups are configured: groups.max is reached."
        )
    key = group_config_key(group_id)
    defaults = group_defaults(image.settings.texts)
    overrides = image.group_configs.get(group_id, {})
    return _Target(key, image.config_mod_revisions.get(key, 0), ONE_GROUP_SETTINGS, overrides, defaults, None)


def broker_id_of(image: ClusterImage, resource: ConfigResource, *, may_be_away: bool = False) -> int:
    """The broker that a resource names: registered, or, if it may be away, not forgotten by the cluster. Raises
    ProtocolError."""
    try:
        broker_id = int(resource.name)
    except ValueError:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource.name}"
        ) from None
    if broker_id not in image.brokers and not (may_be_away and _is_remembered(image, broker_id)):
        raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")
    return broker_id


def _is_remembered(image: ClusterImage, broker_id: int) -> bool:
    """True if a broker that is away has served before, or is a replica."""
    return broker_id in image.storage_ids or broker_id in image.replica_ids()


def _change(target: _Target, overrides: dict[str, str], change: ConfigChange) -> None:
    name = change.name
    if change.operation == AlterOperation.DELETE:
        overrides.pop(name, None)
        return
    assert change.value is not None
    if change.operation == AlterOperation.SET:
        overrides[name] = change.value
        return
    if change.operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation}.")
    setting = target.table.get(name)
    if setting is None or setting.kind is not Kind.LIST:
        operation = AlterOperation(change.operation).name
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {name} because its type is not LIST.")
    current = overrides.get(name, target.defaults.get(name, setting.format(setting.default)))
    parts = _parts(current)
    named = dict.fromkeys(_parts(change.value))
    if change.operation == AlterOperation.APPEND:
        present = frozenset(parts)
        parts += [part for part in named if part not in present]
    else:
        parts = [part for part in parts if part not in named]
    overrides[name] = ",".join(parts)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _alteration(
    image: ClusterImage, resource: ConfigResource, target: _Target, overrides: dict[str, str]
) -> ConfigAlteration:
    for name, text in overrides.items():
        if has_no_room(text) and target.overrides.get(name) != text:
            raise ProtocolError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {name:.100} would have more than {LONGEST_TEXT} bytes, which no answer has room for.",
            )
    if target.topic is not None:
        compares = _check_topic(image, target.topic, overrides)
    elif resource.resource_type == ResourceType.GROUP:
        _check_group(image, overrides)
        compares = ()
    else:
        _check_broker(image, target, overrides)
        compares = ()
    if overrides == dict(target.overrides):
        return ConfigAlteration(resource, overrides, None)
    operation: Operation = Put(target.key, encode_overrides(overrides)) if overrides else Delete(target.key)
    commit = StoreTxn((has_mod_revision(target.key, target.mod_revision), *compares), (operation,))
    happened = has_value(target.key, operation.value) if isinstance(operation, Put) else absent(target.key)
    return ConfigAlteration(resource, overrides, Plan((), commit, happened=(happened,)))


def _check_topic(image: ClusterImage, topic: TopicImage, overrides: dict[str, str]) -> tuple[Compare, ...]:
    """Refuses overrides that the topic cannot have. Returns the conditions that must hold when they are written."""
    _, settings = check_overrides(image, overrides)
    if settings.ordering_scope != topic.settings.ordering_scope:
        check_scope(topic.name, settings.ordering_scope, len(topic.partitions), ErrorCode.INVALID_CONFIG)
    if topic.internal and settings.cleanup_policy != topic.settings.cleanup_policy:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{topic.name}' is internal: its cleanup.policy decides what the broker still knows after a "
            "restart, and cannot be changed.",
        )
    return (
        has_value(topic_name_key(topic.name), str(topic.topic_id).encode()),
        has_mod_revision(topic_key(topic.topic_id), topic.mod_revision),
    )


def _check_group(image: ClusterImage, overrides: dict[str, str]) -> None:
    for name in overrides:
        if name not in ONE_GROUP_SETTINGS:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, unknown_name("group", name, ONE_GROUP_SETTINGS))
    try:
        resolve_group(overrides, image.settings.texts)
    except InvalidSetting as error:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker(image: ClusterImage, target: _Target, overrides: dict[str, str]) -> None:
    for name, text in overrides.items():
        if target.overrides.get(name) == text:
            continue
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, unknown_name("broker", name, BROKER_SETTINGS))
        if not setting.changeable:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: {name}. The setting is read when the broker starts.",
            )
        try:
            setting.parse(text)
        except InvalidSetting as error:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if target.key == DEFAULT_BROKER_CONFIG and overrides.get(CORDONED):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{CORDONED} is set for single brokers only.")
    layers = [image.default_broker_config, image.broker_configs.get(image.node_id, {})]
    if target.key == DEFAULT_BROKER_CONFIG:
        layers[0] = overrides
    elif target.key == broker_config_key(image.node_id):
        layers[1] = overrides
    settings = image.static_settings.changed_by(*layers)
    try:
        settings.check_together()
    except InvalidSetting as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from None
    _check_topics_under(image, settings.topic_settings.ordering_scope)


def _check_topics_under(image: ClusterImage, default_scope: str) -> None:
    """Refuses a default scope of order that an existing topic cannot keep."""
    if default_scope != image.settings.topic_settings.ordering_scope:
        for topic in image.sorted_topics():
            if "ordering.scope" not in topic.overrides:
                check_scope(topic.name, default_scope, len(topic.partitions), ErrorCode.INVALID_CONFIG)
