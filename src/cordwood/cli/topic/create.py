"""`cordwood topic create`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    MAX_PARTITIONS,
    MAX_REPLICATION_FACTOR,
    AsJson,
    Assignments,
    BootstrapServers,
    TimeoutSeconds,
    TopicName,
    parse_assignments,
)
from cordwood.cli.terminal.output import facts, print_json, remark, say
from cordwood.model.failure import Failure
from cordwood.model.quantities import count_in_words

if TYPE_CHECKING:
    from confluent_kafka.admin import NewTopic

    from cordwood.administration.connection import Connection


class OrderingScope(StrEnum):
    KEY = "key"
    PARTITION = "partition"
    GLOBAL = "global"


class Shape(NamedTuple):
    partitions: int
    replication_factor: int

    def __str__(self) -> str:
        partitions, replicas = (
            count_in_words(self.partitions, "partition"),
            count_in_words(self.replication_factor, "replica"),
        )
        return f"{partitions}, {replicas}{' each' if self.partitions > 1 else ''}"


def create(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=MAX_PARTITIONS,
            help="How many partitions. Default: the broker's num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=MAX_REPLICATION_FACTOR,
            help="How many brokers keep a copy of each partition. Default: the broker's default.replication.factor.",
        ),
    ] = None,
    order: Annotated[
        OrderingScope | None,
        typer.Option("--order", help="The scope of order that readers may rely on; sets ordering.scope."),
    ] = None,
    config: Assignments = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="If the topic exists already, change nothing and succeed.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Create a topic, and show its promises.

    Records are ordered within a partition. More partitions let more readers share the work; a topic whose records must
    all be in one order has one partition (`--order global`).
    """
    from confluent_kafka.admin import NewTopic

    from cordwood.administration.connection import Connection
    from cordwood.administration.topic.view import describe

    settings = parse_assignments(config)
    if order is not None:
        settings["ordering.scope"] = order.value
    connection = Connection(bootstrap_servers, timeout_s)
    wanted = NewTopic(
        topic,
        num_partitions=partitions if partitions is not None else (1 if order is OrderingScope.GLOBAL else -1),
        replication_factor=replication_factor if replication_factor is not None else -1,
        config=settings,
    )
    created = True
    try:
        connection.ask(
            lambda admin: admin.create_topics([wanted], operation_timeout=timeout_s, validate_only=dry_run)[topic]
        )
    except Failure as failure:
        if failure.code != "TOPIC_ALREADY_EXISTS" or not if_not_exists:
            raise
        created = False
    if dry_run and created:
        planned = _planned(connection, wanted, settings)
        if as_json:
            print_json({"topic": topic, "would_create": True, **planned._asdict()})
        else:
            say(f"{topic}: would be created with {planned}")
            remark(DRY_RUN)
        return
    view = describe(connection, topic, measured=False)
    shape = Shape(len(view.partitions), max((len(each.replicas) for each in view.partitions), default=0))
    if as_json:
        outcome = {"would_create": False} if dry_run else {"created": created, "topic_id": view.topic_id}
        print_json({"topic": topic, **outcome, **shape._asdict()})
        return
    say(f"{topic}: {'created' if created else 'exists'} with {shape}")
    facts([(f"order ({view.order.name})", view.order.meaning), (f"ack ({view.ack.name})", view.ack.meaning)])


def _planned(connection: "Connection", wanted: "NewTopic", settings: Mapping[str, str]) -> Shape:
    """The shape that a topic would get, with the broker's defaults. librdkafka has no way to ask for it."""
    from cordwood.administration.asking import ask, first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.wire.apis import ApiKey

    topic = {
        "name": wanted.topic,
        "num_partitions": wanted.num_partitions,
        "replication_factor": wanted.replication_factor,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in settings.items()],
    }
    values = {"topics": [topic], "timeout_ms": int(connection.timeout_s * 1000), "validate_only": True}
    _, told = first_answer(
        brokers(connection), lambda asked: ask(asked, ApiKey.CREATE_TOPICS, 7, values, connection.timeout_s)
    )
    return Shape(told.topics[0].num_partitions, told.topics[0].replication_factor)
