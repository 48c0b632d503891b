"""`cordwood config alter`."""

from typing import Annotated

import typer

from cordwood.cli.config.resource import BrokerOption, GroupOption, TopicOption, named_resource, one_resource_only
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    parse_assignments,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode, Failure


def alter(
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    all_brokers: Annotated[
        bool,
        typer.Option(
            "--all-brokers",
            help="The default of all brokers is meant: it holds where a broker has no value of its own.",
        ),
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="NAME=VALUE", help="A setting and its new value; may be given several times."
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete", "-d", metavar="NAME", help="A setting to put back to its default; may be given several times."
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic, a group, a running broker or all brokers. If one change is refused, none is made."""
    from cordwood.administration.config.changes import change_broker, change_settings

    settings = parse_assignments(assignments)
    if not settings and not delete:
        raise Failure("USAGE", "nothing to alter", "give --set NAME=VALUE or --delete NAME", ExitCode.USAGE)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    if all_brokers:
        if (topic, group, broker) != (None, None, None):
            raise one_resource_only()
        change_broker(connection, None, settings, delete or [], validate_only=dry_run)
    else:
        resource = named_resource(connection, topic, group, broker)
        change_settings(connection, resource, settings, delete or [], validate_only=dry_run)
    if as_json:
        print_json({"set": settings, "deleted": delete or [], **as_dry(dry_run)})
        return
    for name, value in settings.items():
        say(f"{name} = {value}")
    for name in delete or ():
        say(f"{name} has its default again")
    if dry_run:
        remark(DRY_RUN)
