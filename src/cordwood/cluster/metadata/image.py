"""The cluster's metadata as this broker knows it: topics, partitions, brokers and dynamic settings.

The image is built from a listing of the store and kept up by the store's events, in the event loop. Its values
(`TopicImage`, `PartitionImage`, `BrokerRow`) are immutable: a change replaces a value, so a reference taken at the
start of a request stays coherent. Deltas are sorted by topic name.

A topic is in the image if and only if its name key is in the store. Other keys of a topic id without a name key are
left from an interrupted creation or deletion: the image holds them apart (`strays`) for the sweep at a start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from cordwood.cluster.metadata.acls import AclTable, LastChange
from cordwood.cluster.metadata.partitions import Leadership, PartitionImage
from cordwood.cluster.metadata.quotas import QuotaTable
from cordwood.cluster.metadata.roll_calls import RollCallTable
from cordwood.cluster.metadata.rows import (
    ACLS,
    ACLS_CHANGED,
    BROKER_EPOCHS,
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    DELETED_TOPICS,
    EVIDENCE,
    MEMBERS,
    METADATA_VERSION,
    PARTITIONS,
    QUOTAS,
    STORAGE_IDS,
    TOKENS,
    TOPIC_CONFIGS,
    TOPIC_NAMES,
    TOPICS,
    USERS,
    USERS_SECRET,
    BrokerRow,
    DamagedMetadata,
    MemberRow,
    decode_broker,
    decode_controller,
    decode_member,
    decode_overrides,
    decode_partition,
    decode_topic,
)
from cordwood.cluster.metadata.strays import StrayPartitions, Strays, StrayTopic
from cordwood.cluster.metadata.tokens import TokenTable
from cordwood.cluster.metadata.tombstones import Tombstone, decode_tombstone
from cordwood.cluster.metadata.topics import NOTHING, StoredTopic, topic_image
from cordwood.cluster.metadata.topics import TopicChange as TopicChange
from cordwood.cluster.metadata.topics import TopicImage as TopicImage
from cordwood.cluster.metadata.users import UserTable
from cordwood.cluster.metadata.versions import FIRST_VERSION, VersionRange, check_supported, supported_up_to
from cordwood.cluster.stores.interface import Event, KeyValue, Listing, StoreWentBack
from cordwood.model.identifiers import ZERO_TOPIC_ID, TopicId
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.group_settings import OneGroupSettings, resolve_group
from cordwood.model.settings.replication_settings import ALL_DIRECTORIES, CORDONED
from cordwood.model.settings.setting import InvalidSetting

K = TypeVar("K")
T = TypeVar("T")


class ControllerImage(NamedTuple):
    broker_id: int
    broker_epoch: int
    create_revision: int
    """The controller's epoch: the revision at which the broker became the controller."""


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The changes of a batch of events. A topic that was deleted and created anew is in both lists."""

    revision: int
    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    brokers_changed: bool = False
    """Brokers registered, changed or went, or another broker is the controller."""
    broker_settings_changed: bool = False
    evidence_changed: bool = False
    access_changed: bool = False
    """Rules of access, quotas or delegation tokens changed."""
    registered: frozenset[int] = frozenset()
    """Brokers whose broker epoch or fence changed. Leaderships that depend on these epochs are not in `changed`."""

    def __bool__(self) -> bool:
        return bool(
            self.created
            or self.deleted
            or self.changed
            or self.brokers_changed
            or self.broker_settings_changed
            or self.evidence_changed
            or self.access_changed
            or self.registered
        )


class ClusterImage:
    """The metadata of the cluster. `load` takes a listing of the whole store, `apply` every later event."""

    def __init__(self, node_id: int, settings: BrokerSettings, metadata_versions: VersionRange | None = None) -> None:
        """`node_id` is the broker that reads this image; `settings` are the settings at its start."""
        self.node_id = node_id
        self.static_settings = settings
        self.settings = settings
        """The effective settings of this broker: those at its start, changed by dynamic settings."""
        self.revision = 0
        self.cluster_id = ""
        self.metadata_version = FIRST_VERSION
        """The finalised version, which writers write."""
        self.metadata_version_revision = 0
        """The revision at which the version was finalised."""
        self.metadata_versions = metadata_versions or supported_up_to(settings.metadata_version_max)
        """The versions that this broker supports."""
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[TopicId, TopicImage] = {}
        self.deleted_topics: dict[TopicId, Tombstone] = {}
        """Tombstones of deleted topics whose directories may still exist."""
        self.brokers: dict[int, BrokerRow] = {}
        self.broker_epochs: dict[int, int] = {}
        self.storage_ids: dict[int, str] = {}
        """The storage ids with which the fences of brokers were lifted last."""
        self._last_seen: dict[int, MemberRow] = {}
        """The addresses of brokers at that time."""
        self.controller: ControllerImage | None = None
        self.evidence: dict[tuple[int, int], frozenset[int]] = {}
        """The brokers whose connections were refused, by the id and the epoch of the broker that refused them."""
        self.roll_calls = RollCallTable()
        self.epochs_revision = 0
        """The revision of the last change of a broker epoch, for caches of leaderships."""
        self.brokers_revision = 0
        """The revision of the last change of a broker's registration, for caches of registered brokers."""
        self.default_broker_config: Mapping[str, str] = NOTHING
        self.broker_configs: dict[int, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.config_mod_revisions: dict[str, int] = {}
        """Revisions of the keys with settings of brokers and groups."""
        self.users = UserTable()
        self.acls = AclTable()
        self.quotas = QuotaTable()
        self.tokens = TokenTable()
        self.partition_count = 0
        """The number of partitions of all topics."""
        self.problems: list[str] = []
        """Stored settings that this version cannot use and leaves out."""
        self._stored: dict[str, StoredTopic] = {}
        """Stored keys by topic id as text: hashing a UUID costs more than the rest of a partition's event."""
        self._ids_by_name: dict[str, str] = {}
        self._by_plain_name: dict[str, str] = {}
        self._sorted: list[TopicImage] | None = None
        self._replica_ids: frozenset[int] | None = None

    @property
    def controller_id(self) -> int:
        """The broker id that clients are told as the controller's: the controller, or else the lowest unfenced broker,
        which forwards requests; -1: there is none. A client waits for a controller that is not among the brokers which
        it is told, and librdkafka asks again only after minutes."""
        unfenced = [broker_id for broker_id, broker in self.brokers.items() if not broker.fenced]
        if self.controller is not None and self.controller.broker_id in unfenced:
            return self.controller.broker_id
        return min(unfenced, default=-1)

    def registered_epoch(self, broker_id: int) -> int:
        """The broker epoch of a broker that is registered; -1 for any other."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    @property
    def members(self) -> dict[int, MemberRow]:
        """All brokers, by id: those that are registered, and those that took part and were not forgotten since."""
        return {
            broker_id: MemberRow(known.endpoints, known.rack)
            for broker_id in sorted({*self.storage_ids, *self.brokers})
            for known in [self.brokers.get(broker_id) or self._last_seen.get(broker_id) or MemberRow()]
        }

    def electable_brokers(self) -> list[int]:
        """The brokers that may lead and be in sync, sorted."""
        return sorted(broker_id for broker_id, broker in self.brokers.items() if broker.electable)

    def cordoned_brokers(self) -> list[int]:
        """The brokers that get no replicas of new partitions, sorted."""
        found = self.broker_configs.items()
        return sorted(broker_id for broker_id, config in found if config.get(CORDONED, "").strip() == ALL_DIRECTORIES)

    def leadership(self, partition: PartitionImage) -> Leadership:
        """The leader of the partition, and the leader epoch.

        A lone replica leads on after a restart of its broker: its epoch rises by as much as the broker's epoch, once
        the broker's fence is lifted. A partition with several replicas has no leader in that case until the controller
        writes one.
        """
        leader = partition.leader
        broker_epoch = self.broker_epochs.get(leader, partition.leader_broker_epoch)
        registrations = broker_epoch - partition.leader_broker_epoch
        if not registrations:
            return Leadership(leader, partition.leader_epoch)
        assert registrations > 0, f"broker {leader} lost its epoch"
        if len(partition.replicas) == 1:
            broker = self.brokers.get(leader)
            fenced = broker is not None and broker.fenced
            return Leadership(-1 if fenced else leader, partition.leader_epoch + registrations)
        return Leadership(-1, partition.leader_epoch)

    def partition_of(self, topic: str, index: int) -> PartitionImage | None:
        """The partition; None if it does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def topic_name(self, topic_id: TopicId) -> str | None:
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> TopicId:
        """The topic's id; ZERO_TOPIC_ID if there is no such topic."""
        topic = self.topics.get(name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def topic_like(self, name: str) -> str | None:
        """The topic whose name differs from `name` only in '.' and '_', if any: metrics would mix the two."""
        return self._by_plain_name.get(plain_name(name))

    def group_settings(self, group_id: str) -> OneGroupSettings:
        """The effective settings of a group: its overrides, else this broker's settings."""
        overrides = self.group_configs.get(group_id, NOTHING)
        try:
            return resolve_group(overrides, self.settings.texts)
        except InvalidSetting:
            # The overrides were valid when they were set, but do not fit the broker's newer settings.
            return resolve_group(NOTHING, self.settings.texts)

    def sorted_topics(self) -> list[TopicImage]:
        """All topics, sorted by name. The caller must not change the list."""
        if self._sorted is None:
            self._sorted = [self.topics[name] for name in sorted(self.topics)]
        return self._sorted

    def replica_ids(self) -> frozenset[int]:
        """All brokers that are replicas of some partition, registered or not."""
        if self._replica_ids is None:
            self._replica_ids = frozenset(
                broker_id
                for topic in self.topics.values()
                for replicas in {partition.replicas for partition in topic.partitions}
                for broker_id in replicas
            )
        return self._replica_ids

    def strays(self) -> Strays:
        topics, partitions = [], []
        for stored in sorted(self._stored.values(), key=lambda stored: stored.topic_id):
            row = stored.row
            if stored.name is None:
                topics.append(StrayTopic(stored.topic_id, stored.row_revision))
            elif row is not None and len(stored.partitions) > row.partition_count:
                beyond = tuple(sorted(number for number in stored.partitions if number >= row.partition_count))
                partitions.append(StrayPartitions(stored.topic_id, row, stored.row_revision, beyond))
        return Strays(tuple(topics), tuple(partitions))

    def load(self, listing: Listing) -> ImageDelta:
        """Replaces the image by the store's content at one revision. Used at the start and after a compaction.

        Raises StoreWentBack if the image is of a later revision, UnsupportedMetadata if the store is of another
        version than this broker supports.
        """
        if listing.revision < self.revision:
            raise StoreWentBack(self.revision, listing.revision)
        for item in listing.items:
            if item.key == METADATA_VERSION:
                # The version comes before any row: a row of a newer version would be misread, or taken for a damaged
                # one.
                check_supported(_version(item.value), self.metadata_versions)
        events: list[Event | KeyValue] = list(listing.items)
        if self.revision:
            listed = {item.key for item in listing.items}
            events += [Event(key, None, 0, listing.revision) for key in self._known_keys() if key not in listed]
        return self._apply(events, listing.revision)

    def apply(self, events: Iterable[Event], revision: int = 0) -> ImageDelta:
        """Applies whole revisions, in their order. Events that the image has seen already change nothing. `revision`:
        nothing else has changed up to this revision, which may be later than the last event."""
        fresh = [event for event in events if event.mod_revision > self.revision]
        return self._apply(fresh, max(fresh[-1].mod_revision if fresh else self.revision, revision))

    def _known_keys(self) -> Iterable[str]:
        """Yields every key that the image was built from."""
        if self.cluster_id:
            yield CLUSTER_ID
        yield METADATA_VERSION
        yield from (f"{BROKER_EPOCHS}{broker_id}" for broker_id in self.broker_epochs)
        yield from (f"{BROKERS}{broker_id}" for broker_id in self.brokers)
        yield from (f"{STORAGE_IDS}{broker_id}" for broker_id in self.storage_ids)
        yield from (f"{MEMBERS}{broker_id}" for broker_id in self._last_seen)
        if self.controller is not None:
            yield CONTROLLER
        for (broker_id, epoch), observers in self.evidence.items():
            yield from (f"{EVIDENCE}{broker_id}/{epoch}/{observer}" for observer in observers)
        yield from self.roll_calls.keys()
        yield from self.config_mod_revisions
        yield from (ACLS + acl_id for acl_id in self.acls.rows)
        if self.acls.last_change.revision:
            yield ACLS_CHANGED
        yield from (QUOTAS + quota_id for quota_id in self.quotas.mod_revisions)
        yield from (TOKENS + token_id for token_id in (*self.tokens.rows, *self.tokens.foreign))
        yield from (USERS + name for name in self.users.rows)
        if self.users.secret:
            yield USERS_SECRET
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
                self.default_broker_config, self.broker_configs.get(self.node_id, NOTHING)
            )
        if touched.registered:
            self.epochs_revision = revision
        if touched.brokers:
            self.brokers_revision = revision
        if self.settings.topic_defaults != defaults_before:
            touched.topics.update(dict.fromkeys(self._stored))
        return self._delta(touched)

    def _take(self, event: Event | KeyValue, touched: "_Touched") -> None:
        """Takes one event into the raw state, and notes the parts to rebuild."""
        kind, _, rest = event.key.partition("/")
        match kind:
            case "topic_names":
                self._take_name(rest, event, touched)
            case "topics":
                stored = self._topic(rest)
                stored.row = None if event.value is None else decode_topic(event.key, event.value)
                stored.row_revision = 0 if event.value is None else event.mod_revision
                touched.topics[rest] = None
            case "deleted_topics":
                stone = None if event.value is None else decode_tombstone(event.value, event.mod_revision)
                _keep(self.deleted_topics, TopicId(rest), stone)
            case "configs":
                self._take_config(rest, event, touched)
            case "brokers":
                before = self.brokers.pop(int(rest), None)
                if event.value is not None:
                    after = decode_broker(event.key, event.value)
                    self.brokers[int(rest)] = after
                    if before is not None and before.fenced != after.fenced:
                        touched.registered.add(int(rest))
                touched.brokers = True
            case "controller":
                row = None if event.value is None else decode_controller(event.value)
                self.controller = None if row is None else ControllerImage(row.broker, row.epoch, event.create_revision)
                touched.brokers = True
            case "evidence":
                self._take_evidence(rest, event)
                touched.evidence = True
            case "roll_calls":
                self.roll_calls.take(rest, event.value)
            case "storage":
                _keep(self.storage_ids, int(rest), None if event.value is None else event.value.decode())
            case "members":
                member = None if event.value is None else decode_member(event.key, event.value)
                _keep(self._last_seen, int(rest), member)
            case "broker_epoch":
                _keep(self.broker_epochs, int(rest), None if event.value is None else int(event.value))
                touched.registered.add(int(rest))
            case "acls":
                self.acls.take(rest, event.value, event.mod_revision)
                touched.access = True
            case "acls_changed":
                self.acls.last_change = LastChange(int(event.value or 0), event.mod_revision)
            case "quotas":
                self.quotas.take(rest, event.value, event.mod_revision)
                touched.access = True
            case "tokens":
                self.tokens.take(rest, event.value, event.mod_revision)
                touched.access = True
            case "users":
                self.users.take(rest, event.value, event.mod_revision)
            case "users_secret":
                self.users.secret = event.value or b""
            case "cluster_id":
                self.cluster_id = (event.value or b"").decode()
            case "metadata_version":
                version = FIRST_VERSION if event.value is None else _version(event.value)
                check_supported(version, self.metadata_versions)
                self.metadata_version = version
                self.metadata_version_revision = event.mod_revision

    def _take_evidence(self, rest: str, event: Event | KeyValue) -> None:
        broker_id, epoch, observer = map(int, rest.split("/"))
        observers = self.evidence.pop((broker_id, epoch), frozenset()) - {observer}
        if event.value is not None:
            observers |= {observer}
        if observers:
            self.evidence[broker_id, epoch] = observers

    def _topic(self, topic_text: str) -> StoredTopic:
        stored = self._stored.get(topic_text)
        if stored is None:
            try:
                stored = self._stored[topic_text] = StoredTopic(TopicId(topic_text))
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
        overrides: Mapping[str, str] = NOTHING
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
            _keep(self.group_configs, name, None if event.value is None else overrides)
            return
        if name == "default":
            self.default_broker_config = overrides
        else:
            _keep(self.broker_configs, int(name), None if event.value is None else overrides)
        touched.broker_settings = True

    def _delta(self, touched: "_Touched") -> ImageDelta:
        created, deleted, changed = [], [], []
        renewed: list[tuple[TopicImage | None, TopicImage | None]] = []
        defaults = self.settings.topic_defaults
        for topic_text, partitions in touched.topics.items():
            stored = self._stored[topic_text]
            before = stored.image
            after = stored.image = topic_image(stored, partitions, defaults, self.problems)
            if stored.empty():
                del self._stored[topic_text]
            if before != after:
                renewed.append((before, after))
        # Old images are dropped before new ones are added: a name may have moved from one id to another.
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
            self._sorted = self._replica_ids = None
        return ImageDelta(
            self.revision,
            tuple(sorted(created, key=lambda topic: topic.name)),
            tuple(sorted(deleted, key=lambda topic: topic.name)),
            tuple(sorted(changed, key=lambda change: change.after.name)),
            touched.brokers,
            touched.broker_settings,
            touched.evidence,
            touched.access,
            frozenset(touched.registered),
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


class _Touched:
    """The parts that a batch of events changed: for each topic the partitions, or None for more."""

    def __init__(self) -> None:
        self.topics: dict[str, set[int] | None] = {}
        self.brokers = False
        self.registered: set[int] = set()
        self.broker_settings = False
        self.evidence = False
        self.access = False


def _keep(table: dict[K, T], key: K, value: T | None) -> None:
    """Notes a value; None: its key is gone."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _version(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise DamagedMetadata(f"{METADATA_VERSION} does not hold a number: {value[:80]!r}") from None


def plain_name(name: str) -> str:
    """The name with '_' for '.'. Equal plain names collide, as in Kafka's metrics."""
    return name.replace(".", "_")
