"""`cordwood topic alter`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    MAX_PARTITIONS,
    AsJson,
    Assignments,
    BootstrapServers,
    TimeoutSeconds,
    TopicName,
    parse_assignments,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection

KEYS_WILL_MOVE = (
    "Order by key ends now: with more partitions, producers put many keys into other partitions than before. The old "
    "and the new records of such a key are in two partitions, and between partitions there is no order. "
    "From now on the scope of order of this topic is the partition (ordering.scope=partition)."
)


def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=MAX_PARTITIONS,
            help="The new number of partitions, higher than the old one.",
        ),
    ] = None,
    config: Assignments = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Put a setting back to its default.", show_default=False),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Add partitions to a topic with ordering.scope=key: gives its order by key up."),
    ] = False,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or add partitions.

    Adding partitions moves keys to other partitions, so a topic with `ordering.scope=key` refuses it. --force first
    changes the scope to `partition`, and explains the consequence.
    """
    from cordwood.administration.config.changes import change_settings, topic_resource
    from cordwood.administration.connection import Connection
    from cordwood.administration.topic.view import partition_indexes

    settings = parse_assignments(config)
    if partitions is None and not settings and not delete_config:
        raise Failure("USAGE", "nothing to alter", "give --partitions, --config or --delete-config", ExitCode.USAGE)
    connection = Connection(bootstrap_servers, timeout_s)
    before = len(partition_indexes(connection, topic))
    if settings or delete_config:
        change_settings(connection, topic_resource(topic), settings, delete_config or [], validate_only=dry_run)
    forced = False
    if partitions is not None:
        forced = _add_partitions(connection, topic, partitions, force=force, dry_run=dry_run)
    if as_json:
        print_json(
            {
                "topic": topic,
                "partitions": partitions if partitions is not None else before,
                "set": settings,
                "deleted": delete_config or [],
                "order_by_key_given_up": forced,
                **as_dry(dry_run),
            }
        )
        return
    for name, value in settings.items():
        say(f"{topic}: {name} = {value}")
    for name in delete_config or ():
        say(f"{topic}: {name} has its default again")
    if partitions is not None:
        if forced:
            remark(KEYS_WILL_MOVE)
        say(f"{topic}: {before} → {partitions} partitions")
    if dry_run:
        remark(DRY_RUN)


def _add_partitions(connection: "Connection", topic: str, partitions: int, *, force: bool, dry_run: bool) -> bool:
    """Adds partitions to the topic. True if it lost its order by key."""
    from confluent_kafka.admin import NewPartitions

    from cordwood.administration.config.changes import change_settings, topic_resource

    def grow() -> None:
        wanted = [NewPartitions(topic, partitions)]
        connection.ask(lambda admin: admin.create_partitions(wanted, validate_only=dry_run)[topic])

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
