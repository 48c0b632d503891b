"""The cluster's metadata as this broker knows it: topics, partitions, brokers and what was configured while running.

The image is built from a listing of the store and kept up by its events, in the event loop. Its values (`TopicImage`,
`PartitionImage`, `BrokerImage`) never change: a change replaces them, so a reference taken at the start of a request
stays coherent. Deltas are sorted by topic name.

A topic is in the image if and only if its name key is in the store. Keys without one are halves of a creation or a
deletion that was interrupted: the image holds them apart (`strays`) for the controller to sweep.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.cluster.rows import (
    BROKER_EPOCHS,
    BROKERS,
    CLUSTER_ID,
    DELETED_TOPICS,
    PARTITIONS,
    TOPIC_CONFIGS,
    TOPIC_NAMES,
    TOPICS,
    BrokerRow,
    DamagedMetadata,
    Endpoint,
    PartitionRow,
    TopicRow,
    decode_broker,
    decode_overrides,
    decode_partition,
    decode_topic,
)
from cordwood.cluster.stores.interface import Event, KeyValue, Listing
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.group_settings import OneGroupSettings, resolve_group
from cordwood.model.identifiers import INTERNAL_TOPICS, TopicId
from cordwood.model.settings import InvalidSetting
from cordwood.model.topic_settings import TopicSettings, resolve

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. Equal partitions of a topic may be one object."""

    leader: int
    """-1: nobody leads."""
    leader_epoch: int
    """The epoch in which the leader leads now: it rises at every restart of the leader, without a write."""
    leader_broker_epoch: int
    """The registration of the leader that leader_epoch belongs to."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    recovering: bool = False
    mod_revision: int = 0
    """The store's, for a compare-and-set of this partition."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    overrides: Mapping[str, str]
    """What was set on the topic."""
    settings: TopicSettings
    """What holds for the topic: its overrides, else the broker's defaults."""
    internal: bool = False
    mod_revision: int = 0
    """Of the key that holds the partition count."""
    config_mod_revision: int = 0
    """Of the key that holds the overrides; 0: there is none."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None


@dataclass(frozen=True, slots=True)
class TopicChange:
    before: TopicImage
    after: TopicImage


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """What a batch of events changed. A topic deleted and created anew is in both lists, with different ids."""

    revision: int
    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    brokers_changed: bool = False
    broker_settings_changed: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.created or self.deleted or self.changed or self.brokers_changed or self.broker_settings_changed
        )


@dataclass(frozen=True, slots=True)
class Strays:
    """Keys that belong to no topic: what an interrupted creation or deletion left."""

    topic_ids: tuple[TopicId, ...]
    """Topics without a name: everything under these ids goes."""
    partitions: tuple[tuple[TopicId, int], ...]
    """Partitions at or beyond their topic's partition count."""


@dataclass(slots=True)
class _Topic:
    """What the store holds under one topic id, complete or not."""

    topic_id: TopicId
    row: TopicRow | None = None
    row_revision: int = 0
    name: str | None = None
    """Set while the name key points here."""
    partitions: dict[int, tuple[PartitionRow, int]] = field(default_factory=dict)
    """The row and its mod_revision."""
    overrides: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    overrides_revision: int = 0
    image: TopicImage | None = None
    """What the others see of it."""

    def empty(self) -> bool:
        return self.row is None and self.name is None and not self.partitions and not self.overrides_revision


class ClusterImage:
    """Start with an empty one, `load` a listing of the whole store, then `apply` every event after it."""

    def __init__(self, node_id: int, settings: BrokerSettings) -> None:
        """`node_id` is the broker that reads this image; `settings` are those it was started with."""
        self.node_id = node_id
        self.static_settings = settings
        self.settings = settings
        """The settings that hold on this broker now: those it was started with, changed by what was set since."""
        self.revision = 0
        self.cluster_id = ""
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[TopicId, TopicImage] = {}
        self.deleted_topics: dict[TopicId, str] = {}
        """Tombstones: topics that were deleted and whose directories may still be there, by id, with their names."""
        self.brokers: dict[int, BrokerImage] = {}
        self.broker_epochs: dict[int, int] = {}
        self.default_broker_config: Mapping[str, str] = _NOTHING
        self.broker_configs: dict[int, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.config_mod_revisions: dict[str, int] = {}
        """Of the keys of configurations of brokers and groups that exist."""
        self.partition_count = 0
        """Over all topics."""
        self.problems: list[str] = []
        """Stored settings that this version does not take, and therefore leaves out."""
        self._stored: dict[str, _Topic] = {}
        """By topic id as text: hashing a UUID costs more than all else that is done with a partition's event."""
        self._ids_by_name: dict[str, str] = {}
        self._by_plain_name: dict[str, str] = {}
        self._sorted: list[TopicImage] | None = None

    @property
    def controller_id(self) -> int:
        """One node is its own controller; -1: nobody is registered yet."""
        return min(self.brokers, default=-1)

    def topic_like(self, name: str) -> str | None:
        """The topic whose name differs from this one only in '.' and '_', if there is one: metrics would mix them."""
        return self._by_plain_name.get(plain_name(name))

    def group_settings(self, group_id: str) -> OneGroupSettings:
        """What holds for the group: what was set on it, else this broker's settings."""
        overrides = self.group_configs.get(group_id, _NOTHING)
        try:
            return resolve_group(overrides, self.settings.texts)
        except InvalidSetting:
            # Valid when they were set; the broker's own have changed since, and hold together.
            return resolve_group(_NOTHING, self.settings.texts)

    def sorted_topics(self) -> list[TopicImage]:
        """All topics by name. Not to be changed by the caller."""
        if self._sorted is None:
            self._sorted = [self.topics[name] for name in sorted(self.topics)]
        return self._sorted

    def strays(self) -> Strays:
        nameless = sorted(stored.topic_id for stored in self._stored.values() if stored.name is None)
        beyond = [
            (stored.topic_id, partition)
            for stored in self._stored.values()
            if stored.name is not None and stored.row is not None
            if len(stored.partitions) > stored.row.partition_count
            for partition in stored.partitions
            if partition >= stored.row.partition_count
        ]
        return Strays(tuple(nameless), tuple(sorted(beyond)))

    def load(self, listing: Listing) -> ImageDelta:
        """What the store holds as of one revision. Instead of what the image held before: a relist also comes here."""
        events: list[Event | KeyValue] = list(listing.items)
        if self.revision:
            listed = {item.key for item in listing.items}
            events += [Event(key, None, 0, listing.revision) for key in self._known_keys() if key not in listed]
        return self._apply(events, listing.revision)

    def apply(self, events: Iterable[Event]) -> ImageDelta:
        """Whole revisions, in their order. Events that the image has already seen change nothing."""
        fresh = [event for event in events if event.mod_revision > self.revision]
        return self._apply(fresh, fresh[-1].mod_revision if fresh else self.revision)

    def _known_keys(self) -> Iterable[str]:
        """Every key that the image was built from."""
        if self.cluster_id:
            yield CLUSTER_ID
        yield from (f"{BROKER_EPOCHS}{broker_id}" for broker_id in self.broker_epochs)
        yield from (f"{BROKERS}{broker_id}" for broker_id in self.brokers)
        yield from self.config_mod_revisions
        yield from (f"{DELETED_TOPICS}{topic_id}" for topic_id in self.deleted_topics)
        for topic_text, stored in self._stored.items():
            if stored.name is not None:
                yield TOPIC_NAMES + stored.name
            if stored.row is not None:
                yield TOPICS + topic_text
            if stored.overrides_revision:
                yield TOPIC_CONFIGS + topic_text
            yield from (f"{PARTITIONS}{topic_text}/{partition}" for partition in stored.partitions)

    def _apply(self, events: Sequence[Event | KeyValue], revision: int) -> ImageDelta:
        assert revision >= self.revision, f"the store went back from revision {self.revision} to {revision}"
        touched = _Touched()
        for event in events:
            try:
                if event.key.startswith(PARTITIONS):
                    self._take_partition(event, touched)
                else:
                    self._take(event, touched)
            except (ValueError, TypeError, AttributeError) as error:
                raise DamagedMetadata(f"{event.key!r} holds {event.value!r:.80}: {error}") from error
        self.revision = revision
        defaults_before = self.settings.topic_defaults
        if touched.broker_settings:
            self.settings = self.static_settings.changed_by(
                self.default_broker_config, self.broker_configs.get(self.node_id, _NOTHING)
            )
        if touched.epochs or self.settings.topic_defaults != defaults_before:
            touched.topics.update(dict.fromkeys(self._stored))
        return self._delta(touched)

    def _take(self, event: Event | KeyValue, touched: "_Touched") -> None:
        """Bring the image's raw state up to one event, and note what has to be rebuilt."""
        kind, _, rest = event.key.partition("/")
        match kind:
            case "topic_names":
                self._take_name(rest, event, touched)
            case "topics":
                stored = self._topic(rest)
                stored.row = None if event.value is None else decode_topic(event.key, event.value)
                stored.row_revision = event.mod_revision
                touched.topics[rest] = None
            case "deleted_topics":
                if event.value is None:
                    self.deleted_topics.pop(TopicId(rest), None)
                else:
                    self.deleted_topics[TopicId(rest)] = event.value.decode()
            case "configs":
                self._take_config(rest, event, touched)
            case "brokers":
                self._take_broker(int(rest), event)
                touched.brokers = True
            case "broker_epoch":
                if event.value is None:
                    self.broker_epochs.pop(int(rest), None)
                else:
                    self.broker_epochs[int(rest)] = int(event.value)
                touched.epochs = True
            case "cluster_id":
                self.cluster_id = (event.value or b"").decode()

    def _topic(self, topic_text: str) -> _Topic:
        stored = self._stored.get(topic_text)
        if stored is None:
            try:
                stored = self._stored[topic_text] = _Topic(TopicId(topic_text))
            except ValueError:
                raise DamagedMetadata(f"not a topic id: {topic_text!r}") from None
        return stored

    def _take_partition(self, event: Event | KeyValue, touched: "_Touched") -> None:
        topic_text, _, number = event.key[len(PARTITIONS) :].partition("/")
        partition = int(number)
        stored = self._stored.get(topic_text) or self._topic(topic_text)
        if event.value is None:
            stored.partitions.pop(partition, None)
        else:
            stored.partitions[partition] = (decode_partition(event.value), event.mod_revision)
        partitions = touched.topics.setdefault(topic_text, None if stored.name is None else set())
        if partitions is not None:
            partitions.add(partition)

    def _take_name(self, name: str, event: Event | KeyValue, touched: "_Touched") -> None:
        before = self._ids_by_name.pop(name, None)
        if before is not None:
            self._stored[before].name = None
            touched.topics[before] = None
        if event.value is not None:
            topic_text = event.value.decode()
            self._ids_by_name[name] = topic_text
            self._topic(topic_text).name = name
            touched.topics[topic_text] = None

    def _take_config(self, rest: str, event: Event | KeyValue, touched: "_Touched") -> None:
        of, _, name = rest.partition("/")
        overrides: Mapping[str, str] = _NOTHING
        if event.value is not None:
            overrides = MappingProxyType(decode_overrides(event.key, event.value))
        if of == "topics":
            stored = self._topic(name)
            stored.overrides = overrides
            stored.overrides_revision = 0 if event.value is None else event.mod_revision
            touched.topics[name] = None
            return
        if event.value is None:
            self.config_mod_revisions.pop(event.key, None)
        else:
            self.config_mod_revisions[event.key] = event.mod_revision
        if of == "groups":
            if event.value is None:
                self.group_configs.pop(name, None)
            else:
                self.group_configs[name] = overrides
            return
        if name == "default":
            self.default_broker_config = overrides
        elif event.value is None:
            self.broker_configs.pop(int(name), None)
        else:
            self.broker_configs[int(name)] = overrides
        touched.broker_settings = True

    def _take_broker(self, broker_id: int, event: Event | KeyValue) -> None:
        if event.value is None:
            self.brokers.pop(broker_id, None)
            return
        row: BrokerRow = decode_broker(event.key, event.value)
        self.brokers[broker_id] = BrokerImage(broker_id, row.epoch, row.incarnation, row.endpoints, row.rack)

    def _delta(self, touched: "_Touched") -> ImageDelta:
        created, deleted, changed = [], [], []
        renewed: list[tuple[TopicImage | None, TopicImage | None]] = []
        for topic_text, partitions in touched.topics.items():
            stored = self._stored[topic_text]
            before = stored.image
            after = stored.image = self._topic_image(stored, before, partitions)
            if stored.empty():
                del self._stored[topic_text]
            if before != after:
                renewed.append((before, after))
        # All that goes, goes before anything comes: a name may have moved from one id to another.
        for before, _ in renewed:
            if before is not None:
                self._drop(before)
        for before, after in renewed:
            if after is not None:
                self._add(after)
                if before is None:
                    created.append(after)
                else:
                    changed.append(TopicChange(before, after))
            elif before is not None:
                deleted.append(before)
        if renewed:
            self._sorted = None
        return ImageDelta(
            self.revision,
            tuple(sorted(created, key=lambda topic: topic.name)),
            tuple(sorted(deleted, key=lambda topic: topic.name)),
            tuple(sorted(changed, key=lambda change: change.after.name)),
            touched.brokers,
            touched.broker_settings,
        )

    def _drop(self, topic: TopicImage) -> None:
        del self.topics_by_id[topic.topic_id]
        del self.topics[topic.name]
        self.partition_count -= len(topic.partitions)
        if self._by_plain_name.get(plain_name(topic.name)) == topic.name:
            del self._by_plain_name[plain_name(topic.name)]

    def _add(self, topic: TopicImage) -> None:
        self.topics_by_id[topic.topic_id] = topic
        self.topics[topic.name] = topic
        self.partition_count += len(topic.partitions)
        self._by_plain_name[plain_name(topic.name)] = topic.name

    def _topic_image(self, stored: _Topic, before: TopicImage | None, partitions: set[int] | None) -> TopicImage | None:
        """The topic as it is stored now. `partitions`: only these changed since `before` (None: anything may have)."""
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
                        renewed[partition] = self._partition_image(*stored.partitions[partition])
                images = tuple(renewed)
            else:
                images = self._partition_images(stored, count)
        except KeyError as error:
            raise DamagedMetadata(f"topic {stored.name} lacks partition {error}") from None
        return TopicImage(
            stored.name,
            stored.topic_id,
            images,
            stored.overrides,
            self._topic_settings(stored.name, stored.overrides),
            stored.name in INTERNAL_TOPICS,
            stored.row_revision,
            stored.overrides_revision,
        )

    def _partition_images(self, stored: _Topic, count: int) -> tuple[PartitionImage, ...]:
        """One object for all partitions that are stored alike: a topic of 10,000 is made of about 80."""
        shared: dict[tuple[int, int], PartitionImage] = {}
        images = []
        for partition in range(count):
            row, mod_revision = stored.partitions[partition]
            image = shared.get((id(row), mod_revision))
            if image is None:
                image = shared[id(row), mod_revision] = self._partition_image(row, mod_revision)
            images.append(image)
        return tuple(images)

    def _partition_image(self, row: PartitionRow, mod_revision: int) -> PartitionImage:
        broker_epoch = self.broker_epochs.get(row.leader, row.leader_broker_epoch)
        assert broker_epoch >= row.leader_broker_epoch, f"broker {row.leader} lost its epoch"
        return PartitionImage(
            row.leader,
            row.leader_epoch + broker_epoch - row.leader_broker_epoch,
            broker_epoch,
            row.replicas,
            row.isr,
            row.partition_epoch,
            row.elr,
            row.adding,
            row.removing,
            row.recovering,
            mod_revision,
        )

    def _topic_settings(self, name: str, overrides: Mapping[str, str]) -> TopicSettings:
        try:
            return resolve(overrides, self.settings.topic_defaults)
        except InvalidSetting:
            # Stored by a version with other settings: the topic must stay usable, so what cannot be taken is left out.
            usable = {}
            for setting, text in overrides.items():
                try:
                    resolve({setting: text})
                    usable[setting] = text
                except InvalidSetting as error:
                    self.problems.append(f"topic {name}: {error}")
            return resolve(usable, self.settings.topic_defaults)


class _Touched:
    """What a batch of events changed: per topic the partitions, or None for more than partitions."""

    def __init__(self) -> None:
        self.topics: dict[str, set[int] | None] = {}
        self.brokers = False
        self.epochs = False
        self.broker_settings = False


def plain_name(name: str) -> str:
    """Names with the same plain name collide, as in Kafka: '.' and '_' are one character to its metrics."""
    return name.replace(".", "_")
