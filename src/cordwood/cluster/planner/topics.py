"""Plans to create and delete topics and to add partitions, and refuses them as Kafka does.

Every function plans a whole request: an earlier topic of the request takes its name and its share of the partition
limit from later topics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.cluster.metadata.image import ClusterImage, TopicImage, plain_name
from cordwood.cluster.metadata.rows import (
    PartitionRow,
    TopicRow,
    broker_epoch_key,
    deleted_topic_key,
    encode_partition,
    encode_topic,
    partitions_prefix,
    storage_key,
    topic_config_key,
    topic_key,
    topic_name_key,
)
from cordwood.cluster.metadata.strays import StrayPartitions
from cordwood.cluster.metadata.tombstones import tombstone_of
from cordwood.cluster.planner.placement import Assignment, check_assignment, default_replicas, place_new
from cordwood.cluster.planner.store_transactions import Plan, StoreTxn, plan_creation, plan_in_chunks
from cordwood.cluster.planner.topic_configs import check_overrides, check_partition_growth, check_scope
from cordwood.cluster.stores.interface import (
    Compare,
    Delete,
    DeletePrefix,
    Put,
    absent,
    has_mod_revision,
    has_value,
    present,
)
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    ZERO_TOPIC_ID,
    TopicId,
    check_topic_name,
    no_topic_with,
)
from cordwood.model.settings.topic_settings import TopicSettings

MAX_CREATED_AT_ONCE = 10_000
"""The most new partitions of one request, as in Kafka: planning them and adding them to the image holds the loop."""

MAX_ADDED_AT_ONCE = 5_000
"""The same bound for topics that grow, whose plans have a way back as well."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic as a client asks for it; -1 takes the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[Assignment, ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TopicCreation:
    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    overrides: Mapping[str, str]
    plan: Plan


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """The wanted partition count of a topic; `assignments`, if given, has the brokers of each new partition."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionAddition:
    name: str
    partition_count: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class TopicReference:
    """A topic by its name or by its id; an id of zeros means no id, as on the wire."""

    name: str | None = None
    topic_id: TopicId | None = None

    @property
    def by_id(self) -> TopicId | None:
        return None if self.topic_id == ZERO_TOPIC_ID else self.topic_id


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    name: str
    topic_id: TopicId
    plan: Plan


def plan_create_topics(
    image: ClusterImage,
    topics: Iterable[NewTopic],
    new_topic_id: Callable[[], TopicId],
    *,
    internal: bool = False,
) -> dict[str, TopicCreation | ProtocolError]:
    """Plans by name, in the order of the request. `internal` allows the broker's own topics."""
    topics = list(topics)
    counts = Counter(topic.name for topic in topics)
    outcomes: dict[str, TopicCreation | ProtocolError] = {}
    names: dict[str, str] = {}
    partition_count = image.partition_count
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_new_name(image, topic.name, names, internal)
            # The count is checked before the plan: planning 10,000 partitions takes 40 ms.
            wanted = len(topic.assignments) or max(topic.partition_count, 1)
            _check_at_once(partition_count - image.partition_count + wanted, MAX_CREATED_AT_ONCE)
            creation = _plan_creation(image, topic, new_topic_id())
            _check_partition_limit(image, partition_count + creation.partition_count)
        except ProtocolError as error:
            outcomes[topic.name] = error
            continue
        names[plain_name(topic.name)] = topic.name
        partition_count += creation.partition_count
        outcomes[topic.name] = creation
    return outcomes


def _check_new_name(image: ClusterImage, name: str, names: Mapping[str, str], internal: bool) -> None:
    check_topic_name(name)
    if name in image.topics:
        raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name in INTERNAL_TOPICS and not internal:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"Topic '{name}' is internal: the broker creates it when it needs it."
        )
    other = image.topic_like(name) or names.get(plain_name(name))
    if other is not None:
        raise ProtocolError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other} (names that differ only in '.' and '_' do).",
        )


def _check_partition_limit(image: ClusterImage, partition_count: int) -> None:
    limit = image.settings.partitions_max
    if partition_count > limit:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster would have {partition_count} partitions, but partitions.max allows {limit}.",
        )


def _check_at_once(partition_count: int, limit: int) -> None:
    if partition_count > limit:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition_count} new partitions are too many for one request: create at most {limit} at a time.",
        )


def _plan_creation(image: ClusterImage, topic: NewTopic, topic_id: TopicId) -> TopicCreation:
    overrides, settings = check_overrides(image, topic.configs)
    if topic.assignments:
        replicas = _assigned(image, topic)
    else:
        replicas = _placed(image, topic, topic_id, settings)
    partition_count = len(replicas)
    check_scope(topic.name, settings.ordering_scope, partition_count)
    plan = plan_creation(
        topic_id,
        TopicRow(topic.name, partition_count),
        _new_partitions(image, topic_id, range(partition_count), replicas),
        commit_compares=_same_brokers(image, replicas),
        overrides=overrides,
    )
    return TopicCreation(topic.name, topic_id, partition_count, len(replicas[0]), overrides, plan)


def _assigned(image: ClusterImage, topic: NewTopic) -> list[tuple[int, ...]]:
    """The replicas of each partition, as the client wants them."""
    for field_name, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.partition_count),
    ):
        if value != -1:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field_name} was not set to -1.",
            )
    members = image.members
    by_partition: dict[int, tuple[int, ...]] = {}
    replication_factor: int | None = None
    for partition, brokers in topic.assignments:
        if partition in by_partition:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        check_assignment(brokers, members, replication_factor)
        replication_factor = len(brokers)
        _check_replication_factor(image, replication_factor)
        by_partition[partition] = tuple(brokers)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_partition[partition] for partition in range(len(by_partition))]


def _placed(image: ClusterImage, topic: NewTopic, topic_id: TopicId, settings: TopicSettings) -> list[tuple[int, ...]]:
    """The replicas of each partition, as the cluster chooses them."""
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partition_count == 0 or topic.partition_count < -1:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid non-positive value: {topic.partition_count}. It must be "
            "larger than 0, or -1 to use the default value.",
        )
    partition_count = topic.partition_count
    if partition_count == -1:
        partition_count = 1 if settings.ordering_scope == "global" else image.settings.num_partitions
    _check_partition_limit(image, partition_count)
    replication_factor = topic.replication_factor
    if replication_factor == -1:
        replication_factor = default_replicas(image)
    _check_replication_factor(image, replication_factor)
    return place_new(image, range(partition_count), replication_factor, topic_id.int)


def _check_replication_factor(image: ClusterImage, replication_factor: int) -> None:
    most = image.settings.replication_factor_max
    if replication_factor > most:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} is more than replication.factor.max allows, which is {most}.",
        )


def _new_partitions(
    image: ClusterImage, topic_id: TopicId, partitions: range, replicas: Sequence[tuple[int, ...]]
) -> list[Put]:
    encoded: dict[tuple[int, ...], bytes] = {}
    prefix = partitions_prefix(topic_id)
    electable = set(image.electable_brokers())
    puts = []
    for partition, brokers in zip(partitions, replicas, strict=True):
        value = encoded.get(brokers)
        if value is None:
            isr = tuple(broker for broker in brokers if broker in electable)
            if not isr:
                raise ProtocolError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"All brokers specified in the manual partition assignment for partition {partition} are away, "
                    "fenced or in controlled shutdown.",
                )
            row = PartitionRow(isr[0], image.broker_epochs[isr[0]], 0, replicas=brokers, isr=isr)
            value = encoded[brokers] = encode_partition(row, image.metadata_version)
        puts.append(Put(f"{prefix}{partition}", value))
    return puts


def _same_brokers(image: ClusterImage, replicas: Iterable[tuple[int, ...]]) -> tuple[Compare, ...]:
    """Comparisons that hold while the brokers of the replicas keep the registrations that the plan assumes, and absent
    ones are not forgotten."""
    brokers = sorted({broker for partition in replicas for broker in partition})
    return tuple(
        has_value(broker_epoch_key(broker), b"%d" % image.broker_epochs[broker])
        if broker in image.brokers
        else present(storage_key(broker))
        for broker in brokers
    )


def plan_create_partitions(
    image: ClusterImage, topics: Iterable[MorePartitions]
) -> dict[str, PartitionAddition | ProtocolError]:
    """Plans by name, in the order of the request."""
    topics = list(topics)
    counts = Counter(topic.name for topic in topics)
    outcomes: dict[str, PartitionAddition | ProtocolError] = {}
    partition_count = image.partition_count
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            existing = topic_by_name(image, topic.name)
            _check_growth(existing, topic)
            added = topic.count - len(existing.partitions)
            _check_partition_limit(image, partition_count + added)
            _check_at_once(partition_count - image.partition_count + added, MAX_ADDED_AT_ONCE)
            outcomes[topic.name] = _plan_addition(image, existing, topic)
            partition_count += added
        except ProtocolError as error:
            outcomes[topic.name] = error
    return outcomes


def _check_growth(existing: TopicImage, topic: MorePartitions) -> None:
    current = len(existing.partitions)
    if topic.count == current:
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if topic.count < current:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {topic.count} would not be an increase.",
        )
    if existing.internal:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{topic.name}' is internal: with another number of partitions its records could not be found.",
        )
    check_partition_growth(topic.name, existing.settings.ordering_scope, topic.count)


def _plan_addition(image: ClusterImage, existing: TopicImage, topic: MorePartitions) -> PartitionAddition:
    topic_id = existing.topic_id
    current = len(existing.partitions)
    partitions = range(current, topic.count)
    replication_factor = len(existing.partitions[0].replicas)
    if topic.assignments:
        if len(topic.assignments) != len(partitions):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {len(partitions)} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        members = image.members
        for brokers in topic.assignments:
            check_assignment(brokers, members, replication_factor)
        replicas = [tuple(brokers) for brokers in topic.assignments]
    else:
        replicas = place_new(image, partitions, replication_factor, topic_id.int)
    # Rows at or beyond the partition count may be overwritten, counted partitions may not: so every transaction
    # requires the count that was read.
    guards = (has_mod_revision(topic_key(topic_id), existing.mod_revision),)
    puts = _new_partitions(image, topic_id, partitions, replicas)
    before = TopicRow(topic.name, current, existing.unknown)
    row = encode_topic(before._replace(partition_count=topic.count))
    plan = plan_in_chunks(
        puts,
        guards=guards,
        commit_compares=(
            has_value(topic_name_key(topic.name), str(topic_id).encode()),
            has_mod_revision(topic_config_key(topic_id), existing.config_mod_revision),
            *_same_brokers(image, replicas),
        ),
        commit_operations=(Put(topic_key(topic_id), row),),
        leftovers=StrayPartitions(topic_id, before, existing.mod_revision, tuple(partitions)),
        happened=(has_value(topic_key(topic_id), row),),
    )
    return PartitionAddition(topic.name, topic.count, plan)


def plan_delete_topics(
    image: ClusterImage, references: Iterable[TopicReference]
) -> dict[TopicReference, TopicDeletion | ProtocolError]:
    """Plans by reference, in the order of the request."""
    references = list(references)
    counts = Counter(references)
    named: Counter[TopicId] = Counter()
    for reference in counts:
        if (topic := _referred(image, reference)) is not None:
            named[topic.topic_id] += 1
    outcomes: dict[TopicReference, TopicDeletion | ProtocolError] = {}
    for reference in references:
        try:
            what = "name" if reference.name is not None else "id"
            if counts[reference] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            topic = _topic_to_delete(image, reference)
            if named[topic.topic_id] > 1:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
            outcomes[reference] = TopicDeletion(topic.name, topic.topic_id, _deletion(topic))
        except ProtocolError as error:
            outcomes[reference] = error
    return outcomes


def _referred(image: ClusterImage, reference: TopicReference) -> TopicImage | None:
    if reference.name is not None:
        return image.topics.get(reference.name)
    return None if reference.by_id is None else image.topics_by_id.get(reference.by_id)


def _topic_to_delete(image: ClusterImage, reference: TopicReference) -> TopicImage:
    if reference.name is not None and reference.by_id is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if reference.name is None and reference.by_id is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if not image.settings.delete_topic_enable:
        raise ProtocolError(
            ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable is false."
        )
    topic = _referred(image, reference)
    if topic is None:
        if reference.name is None:
            raise no_topic_with(reference.topic_id)
        raise _unknown(reference.name)
    if topic.internal:
        lost = "the positions of all consumers" if topic.name == CONSUMER_OFFSETS_TOPIC else "all open transactions"
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"Topic '{topic.name}' is internal: deleting it would lose {lost}."
        )
    return topic


def _deletion(topic: TopicImage) -> Plan:
    """Deletes a topic in one transaction, however many partitions it has, and leaves a tombstone
    (`tombstones.py`)."""
    name_key = topic_name_key(topic.name)
    return Plan(
        (),
        StoreTxn(
            (has_value(name_key, str(topic.topic_id).encode()),),
            (
                Delete(name_key),
                Delete(topic_key(topic.topic_id)),
                Delete(topic_config_key(topic.topic_id)),
                DeletePrefix(partitions_prefix(topic.topic_id)),
                Put(deleted_topic_key(topic.topic_id), tombstone_of(topic)),
            ),
        ),
        # Not the name: another topic may have it by now, and must not be deleted instead.
        happened=(absent(topic_key(topic.topic_id)),),
    )


def topic_by_name(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise _unknown(name)
    return topic


def _unknown(name: str) -> ProtocolError:
    return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
