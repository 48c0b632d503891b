"""`cordwood topic create`."""

from enum import StrEnum
from typing import Annotated

import typer

from cordwood.cli.asking import DRY_RUN, DryRun
from cordwood.cli.failure import Failure
from cordwood.cli.options import (
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
from cordwood.cli.output import count_in_words, facts, print_json, remark, say


class OrderingScope(StrEnum):
    KEY = "key"
    PARTITION = "partition"
    GLOBAL = "global"


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
            help="How many brokers keep a copy of each partition.",
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
    """Create a topic, and show what it promises.

    Records are ordered within a partition. More partitions let more readers share the work; a topic whose records must
    all be in one order has one partition (`--order global`).
    """
    from confluent_kafka.admin import NewTopic

    from cordwood.cli.connection import Connection
    from cordwood.cli.topic.view import describe

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
    if dry_run:
        if as_json:
            print_json({"topic": topic, "would_create": created})
        else:
            say(f"{topic}: {'would be created' if created else 'exists'}")
            remark(DRY_RUN)
        return
    view = describe(connection, topic, measured=False)
    if as_json:
        print_json({"topic": topic, "created": created, "partitions": len(view.partitions), "topic_id": view.topic_id})
        return
    say(f"{topic}: {'created' if created else 'exists'} with {count_in_words(len(view.partitions), 'partition')}")
    facts([(f"order ({view.order.name})", view.order.meaning), (f"ack ({view.ack.name})", view.ack.meaning)])
