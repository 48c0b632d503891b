"""A topic as a client sees it: partitions, offsets, sizes, settings and promises."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.connection import WHY_END_UNKNOWN, Connection
from cordwood.administration.topic.damage import DamageView, RepairView, Told, known_damage
from cordwood.administration.topic.promises import Promise, ack_promise, order_promise
from cordwood.client.settings import Address
from cordwood.model.failure import Failure
from cordwood.model.settings.setting import HIDDEN
from cordwood.wire.apis import ApiKey

NAMED = 10
"""The partitions that a sentence names."""
SET_BY_SOMEBODY = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
        ConfigSource.STATIC_BROKER_CONFIG.value,
        ConfigSource.GROUP_CONFIG.value,
    }
)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition. Offsets are None if it has no leader. The end is also None if its leader does not know it."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    """Replicas out of sync that may still be elected, since they have every committed record; None: unknown."""
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def span(self) -> int | None:
        """The number of offsets from start to end: the number of records, unless compaction or markers left gaps."""
        return None if self.start_offset is None or self.end_offset is None else self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class SettingView:
    name: str
    value: str | None
    source: str
    changed: bool
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionView, ...]
    settings: Mapping[str, SettingView]
    damage: tuple[DamageView, ...] = ()
    repairs: tuple[RepairView, ...] = ()

    @property
    def order(self) -> Promise:
        return order_promise(self._value("ordering.scope"), len(self.partitions))

    @property
    def ack(self) -> Promise:
        return ack_promise(self._value("ack.durability"))

    @property
    def changed_settings(self) -> dict[str, SettingView]:
        return {name: setting for name, setting in sorted(self.settings.items()) if setting.changed}

    def unknown_ends(self) -> Iterator[str]:
        """Texts about the partitions whose offsets are unknown."""
        leaderless = [part.partition for part in self.partitions if part.leader is None]
        waiting = [part.partition for part in self.partitions if part.leader is not None and part.end_offset is None]
        if leaderless:
            yield (
                f"No leader: partition {_some(leaderless)}. `cordwood cluster status` says what a partition waits for."
            )
        if waiting:
            yield (
                f"End unknown: partition {_some(waiting)}. {WHY_END_UNKNOWN[0].upper()}{WHY_END_UNKNOWN[1:]}: start "
                "the other replicas' brokers. `cordwood cluster status` names them."
            )

    def _value(self, name: str) -> str | None:
        setting = self.settings.get(name)
        return None if setting is None else setting.value


def _some(partitions: list[int]) -> str:
    shown = ", ".join(str(partition) for partition in partitions[:NAMED])
    return f"{shown} and {len(partitions) - NAMED} more" if len(partitions) > NAMED else shown


def describe(connection: Connection, name: str, *, measured: bool = True) -> TopicView:
    """Everything that a topic's description shows. Raises Failure; for an unknown topic, with similar names.

    `measured=False` leaves out offsets and sizes, which take a question about every partition.
    """
    description = _description(connection, name)
    starts: Mapping[int, int] = {}
    ends: Mapping[int, int] = {}
    sizes: Mapping[int, int] = {}
    told = Told()
    eligible: Mapping[int, tuple[int, ...]] = {}
    if measured:
        led = [index for indexes in _leaders(connection, description).values() for index in indexes]
        starts = connection.known_offsets(name, led, OffsetSpec.earliest())
        ends = connection.known_offsets(name, led, OffsetSpec.latest())
        sizes = _sizes(connection, name, description)
        eligible = _eligible(connection, name)
        told = known_damage(_replicas(connection, description), name, connection.timeout_s)
    return TopicView(
        name=name,
        topic_id=topic_id_of(str(description.topic_id)),
        internal=bool(description.is_internal),
        partitions=tuple(
            PartitionView(
                partition=partition.id,
                leader=partition.leader.id if partition.leader is not None else None,
                replicas=tuple(replica.id for replica in partition.replicas),
                isr=tuple(replica.id for replica in partition.isr),
                elr=eligible.get(partition.id),
                start_offset=starts.get(partition.id),
                end_offset=ends.get(partition.id),
                size_bytes=sizes.get(partition.id),
            )
            for partition in sorted(description.partitions, key=lambda partition: partition.id)
        ),
        settings=settings_of(connection, ConfigResource(ConfigResource.Type.TOPIC, name)),
        damage=told.damage,
        repairs=told.repairs,
    )


def partition_indexes(connection: Connection, name: str) -> list[int]:
    """The partitions of a topic. Raises Failure for an unknown topic, and never creates it."""
    return sorted(partition.id for partition in _description(connection, name).partitions)


def sizes_of(connection: Connection, name: str) -> dict[int, int]:
    """Bytes of each partition's log; partitions whose leaders do not say are left out."""
    return _sizes(connection, name, _description(connection, name))


def _description(connection: Connection, name: str) -> Any:
    try:
        return connection.ask(lambda admin: admin.describe_topics(TopicCollection([name]))[name])
    except Failure as failure:
        if failure.code == "UNKNOWN_TOPIC_OR_PARTITION":
            raise connection.unknown_topic(name) from failure
        raise


def topic_id_of(text: str) -> str:
    """A topic id as Kafka prints it, in base64 for URLs. librdkafka prints the other alphabet of base64."""
    return text.replace("+", "-").replace("/", "_")


def settings_of(connection: Connection, resource: ConfigResource) -> dict[str, SettingView]:
    """The settings of a topic, a group or a broker, each with the source of its value."""
    entries = connection.ask(lambda admin: admin.describe_configs([resource])[resource])
    return {
        entry.name: SettingView(
            name=entry.name,
            value=HIDDEN if entry.is_sensitive and _changed(entry.source) else entry.value or "",
            source=_source_name(entry.source),
            changed=_changed(entry.source),
            read_only=bool(entry.is_read_only),
        )
        for entry in entries.values()
    }


def _changed(source: Any) -> bool:
    return _source_value(source) in SET_BY_SOMEBODY


def _source_value(source: Any) -> int:
    return int(getattr(source, "value", source))


def _source_name(source: Any) -> str:
    names = {
        ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
        ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
        ConfigSource.STATIC_BROKER_CONFIG: "broker's file, environment or flags",
        ConfigSource.GROUP_CONFIG: "group",
        ConfigSource.DEFAULT_CONFIG: "default",
    }
    return next((words for known, words in names.items() if known.value == _source_value(source)), "unknown")


def damage_in(connection: Connection, name: str) -> tuple[DamageView, ...]:
    """The damage that the brokers of a topic know."""
    return known_damage(_replicas(connection, _description(connection, name)), name, connection.timeout_s).damage


def _replicas(connection: Connection, description: Any) -> dict[int, Address]:
    """The addresses of the brokers that have a replica of the topic, by id."""
    return {
        node.id: connection.address(node.host, node.port)
        for partition in description.partitions
        for node in sorted(partition.replicas, key=lambda node: node.id)
        if node.host
    }


def _leaders(connection: Connection, description: Any) -> dict[Address, list[int]]:
    """The partitions of the topic by the address of the broker that leads them."""
    led: dict[Address, list[int]] = {}
    for partition in description.partitions:
        if partition.leader is not None and partition.leader.host:
            led.setdefault(connection.address(partition.leader.host, partition.leader.port), []).append(partition.id)
    return led


def _eligible(connection: Connection, name: str) -> dict[int, tuple[int, ...]]:
    """The eligible leader replicas of each partition; empty if the broker does not say."""
    from cordwood.administration.cluster.view import partitions_of

    try:
        _, found = first_answer(brokers(connection), lambda asked: partitions_of(asked, (name,), connection.timeout_s))
    except Failure:
        return {}  # an older broker, or one behind authentication
    return {each.partition: each.elr for each in found}


def _sizes(connection: Connection, name: str, description: Any) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for address, indexes in _leaders(connection, description).items():
        values = {"topics": [{"topic": name, "partitions": sorted(indexes)}]}
        try:
            told = ask(address, ApiKey.DESCRIBE_LOG_DIRS, 1, values, connection.timeout_s)
        except Failure:
            continue  # a broker behind authentication gives no sizes; all else is still shown
        sizes.update(
            (each.partition_index, each.partition_size)
            for directory in told.results
            for topic in directory.topics
            if topic.name == name
            for each in topic.partitions
            if not each.is_future_key
        )
    return sizes
