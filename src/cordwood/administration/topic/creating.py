"""Topics that are made, and partitions that are added to one."""

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import admin

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.config.changes import change_settings, topic_resource
from cordwood.administration.connection import Connection
from cordwood.administration.topic.view import TopicView
from cordwood.model.failure import Failure
from cordwood.model.quantities import count_in_words
from cordwood.wire.apis import ApiKey

KEYS_WILL_MOVE = (
    "Order by key ends now: with more partitions, producers put many keys into other partitions than before. The old "
    "and the new records of such a key are in two partitions, and between partitions there is no order. "
    "From now on the scope of order of this topic is the partition (ordering.scope=partition)."
)


class NewTopic(NamedTuple):
    """A wanted topic. None: the broker's default."""

    name: str
    partitions: int | None
    replication_factor: int | None
    settings: Mapping[str, str]


class Shape(NamedTuple):
    partitions: int
    replication_factor: int

    def __str__(self) -> str:
        partitions, replicas = (
            count_in_words(self.partitions, "partition"),
            count_in_words(self.replication_factor, "replica"),
        )
        return f"{partitions}, {replicas}{' each' if self.partitions > 1 else ''}"


def shape_of(view: TopicView) -> Shape:
    return Shape(len(view.partitions), max((len(each.replicas) for each in view.partitions), default=0))


def create_topic(connection: Connection, wanted: NewTopic, *, if_not_exists: bool, dry_run: bool) -> bool:
    """Creates the topic. False if it exists and `if_not_exists` accepts it. With `dry_run` the broker only checks it.
    Raises Failure."""
    asked = admin.NewTopic(
        wanted.name,
        num_partitions=_or_default(wanted.partitions),
        replication_factor=_or_default(wanted.replication_factor),
        config=dict(wanted.settings),
    )
    try:
        connection.ask(
            lambda client: client.create_topics([asked], operation_timeout=connection.timeout_s, validate_only=dry_run)[
                wanted.name
            ]
        )
    except Failure as failure:
        if failure.code != "TOPIC_ALREADY_EXISTS" or not if_not_exists:
            raise
        return False
    return True


def _or_default(number: int | None) -> int:
    return -1 if number is None else number


def planned_shape(connection: Connection, wanted: NewTopic) -> Shape:
    """The shape that a topic would get, with the broker's defaults. librdkafka has no way to ask for it."""
    topic = {
        "name": wanted.name,
        "num_partitions": _or_default(wanted.partitions),
        "replication_factor": _or_default(wanted.replication_factor),
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in wanted.settings.items()],
    }
    values = {"topics": [topic], "timeout_ms": int(connection.timeout_s * 1000), "validate_only": True}
    _, told = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.CREATE_TOPICS, 7, values, connection.timeout_s)
    )
    return Shape(told.topics[0].num_partitions, told.topics[0].replication_factor)


def add_partitions(connection: Connection, topic: str, partitions: int, *, force: bool, dry_run: bool) -> bool:
    """Adds partitions to the topic. True if it lost its order by key, or would lose it. Raises Failure."""

    def grow() -> None:
        wanted = [admin.NewPartitions(topic, partitions)]
        connection.ask(lambda client: client.create_partitions(wanted, validate_only=dry_run)[topic])

    try:
        grow()
    except Failure as refused:
        if refused.code != "POLICY_VIOLATION":
            raise
        if not force:
            raise Failure(
                refused.code,
                refused.message,
                "--force first changes ordering.scope to partition, which gives up order by key",
            ) from refused
        if not dry_run:
            change_settings(connection, topic_resource(topic), {"ordering.scope": "partition"}, [])
            grow()
        return True
    return False
