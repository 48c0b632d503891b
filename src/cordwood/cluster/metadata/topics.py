"""One topic in the image of the cluster's metadata, and the stored keys from which it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.cluster.metadata.partitions import PartitionImage, partition_image, partition_images
from cordwood.cluster.metadata.rows import DamagedMetadata, PartitionRow, TopicRow, Unknown
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId
from cordwood.model.settings.setting import InvalidSetting
from cordwood.model.settings.topic_settings import TopicSettings, resolve

NOTHING: Mapping[str, str] = MappingProxyType({})
"""No settings."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    overrides: Mapping[str, str]
    """The settings that were set on the topic itself."""
    settings: TopicSettings
    """The effective settings: the topic's overrides, else the broker's defaults."""
    internal: bool = False
    mod_revision: int = 0
    """The revision of the key that holds the partition count."""
    config_mod_revision: int = 0
    """The revision of the key that holds the overrides; 0: no such key."""
    unknown: Unknown = ()
    """Fields of the row that this release does not know, for a row that is written again."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    before: TopicImage
    after: TopicImage


@dataclass(slots=True)
class StoredTopic:
    """The keys that the store holds for one topic id, complete or not."""

    topic_id: TopicId
    row: TopicRow | None = None
    row_revision: int = 0
    name: str | None = None
    """The topic's name, while the name key points to this id."""
    partitions: dict[int, tuple[PartitionRow, int]] = field(default_factory=dict)
    """Rows with their mod_revision, by partition."""
    overrides: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    overrides_revision: int = 0
    image: TopicImage | None = None
    """The topic's image; None while the topic has no name."""

    def empty(self) -> bool:
        return self.row is None and self.name is None and not self.partitions and not self.overrides_revision


def topic_image(
    stored: StoredTopic, partitions: set[int] | None, defaults: Mapping[str, str], problems: list[str]
) -> TopicImage | None:
    """The image of a stored topic; None while it has no name. Only `partitions` changed since its present image; None:
    anything may have changed. `defaults`: the broker's settings for topics. Settings that cannot be used are added to
    `problems`."""
    before = stored.image
    if stored.name is None:
        return None
    if stored.row is None or stored.row.name != stored.name:
        raise DamagedMetadata(f"topic {stored.name} points to id {stored.topic_id}, which holds {stored.row}")
    count = stored.row.partition_count
    try:
        if before is not None and partitions is not None:
            renewed = list(before.partitions)
            for partition in partitions:
                if partition < count:
                    renewed[partition] = partition_image(*stored.partitions[partition])
            images = tuple(renewed)
        else:
            images = partition_images(stored.partitions, count)
    except KeyError as error:
        raise DamagedMetadata(f"topic {stored.name} lacks partition {error}") from None
    return TopicImage(
        stored.name,
        stored.topic_id,
        images,
        stored.overrides,
        _settings_of(stored.name, stored.overrides, images, defaults, problems),
        stored.name in INTERNAL_TOPICS,
        stored.row_revision,
        stored.overrides_revision,
        stored.row.unknown,
    )


def _settings_of(
    name: str,
    overrides: Mapping[str, str],
    partitions: Sequence[PartitionImage],
    defaults: Mapping[str, str],
    problems: list[str],
) -> TopicSettings:
    settings = _topic_settings(name, overrides, defaults, problems)
    if name in INTERNAL_TOPICS and settings.min_insync_replicas > 1:
        # The setting is for the future replicas of the topic. Until then all present replicas are needed.
        fewest = min(len(partition.replicas) - len(partition.adding) for partition in partitions)
        if settings.min_insync_replicas > fewest:
            return _topic_settings(name, {**overrides, "min.insync.replicas": str(fewest)}, defaults, problems)
    return settings


def _topic_settings(
    name: str, overrides: Mapping[str, str], defaults: Mapping[str, str], problems: list[str]
) -> TopicSettings:
    try:
        return resolve(overrides, defaults)
    except InvalidSetting:
        # Another version stored these settings. The topic must stay usable, so unusable settings are left out.
        usable = {}
        for setting, text in overrides.items():
            try:
                resolve({setting: text})
                usable[setting] = text
            except InvalidSetting as error:
                problems.append(f"topic {name}: {error}")
        return resolve(usable, defaults)
