"""`cordwood topic alter`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    MAX_PARTITIONS,
    AsJson,
    Assignments,
    TimeoutSeconds,
    TopicName,
    parse_assignments,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode, Failure


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
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or add partitions.

    Adding partitions moves keys to other partitions, so a topic with `ordering.scope=key` refuses it. --force first
    changes the scope to `partition`, and explains the consequence.
    """
    from cordwood.administration.config.changes import change_settings, topic_resource
    from cordwood.administration.topic.creating import KEYS_WILL_MOVE, add_partitions
    from cordwood.administration.topic.view import partition_indexes

    settings = parse_assignments(config)
    if partitions is None and not settings and not delete_config:
        raise Failure("USAGE", "nothing to alter", "give --partitions, --config or --delete-config", ExitCode.USAGE)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    before = len(partition_indexes(connection, topic))
    if settings or delete_config:
        change_settings(connection, topic_resource(topic), settings, delete_config or [], validate_only=dry_run)
    forced = False
    if partitions is not None:
        forced = add_partitions(connection, topic, partitions, force=force, dry_run=dry_run)
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
