"""`cordwood topic create`."""

from enum import StrEnum
from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    MAX_PARTITIONS,
    MAX_REPLICATION_FACTOR,
    AsJson,
    Assignments,
    TimeoutSeconds,
    TopicName,
    parse_assignments,
)
from cordwood.cli.terminal.output import facts, print_json, remark, say


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
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Create a topic, and show its promises.

    Records are ordered within a partition. More partitions let more readers share the work; a topic whose records must
    all be in one order has one partition (`--order global`).
    """
    from cordwood.administration.topic.creating import NewTopic, create_topic, planned_shape, shape_of
    from cordwood.administration.topic.view import describe

    settings = parse_assignments(config)
    if order is not None:
        settings["ordering.scope"] = order.value
    if partitions is None and order is OrderingScope.GLOBAL:
        partitions = 1
    connection = connect(bootstrap_servers, timeout_s, client_config)
    wanted = NewTopic(topic, partitions, replication_factor, settings)
    created = create_topic(connection, wanted, if_not_exists=if_not_exists, dry_run=dry_run)
    if dry_run and created:
        planned = planned_shape(connection, wanted)
        if as_json:
            print_json({"topic": topic, "would_create": True, **planned._asdict()})
        else:
            say(f"{topic}: would be created with {planned}")
            remark(DRY_RUN)
        return
    view = describe(connection, topic, measured=False)
    shape = shape_of(view)
    if as_json:
        outcome = {"would_create": False} if dry_run else {"created": created, "topic_id": view.topic_id}
        print_json({"topic": topic, **outcome, **shape._asdict()})
        return
    say(f"{topic}: {'created' if created else 'exists'} with {shape}")
    facts([(f"order ({view.order.name})", view.order.meaning), (f"ack ({view.ack.name})", view.ack.meaning)])
