"""`cordwood config describe`."""

from typing import Annotated

import typer

from cordwood.cli.config.resource import BrokerOption, GroupOption, TopicOption, named_resource
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_table, remark


def describe(
    topic: TopicOption = None,
    group: GroupOption = None,
    broker: BrokerOption = None,
    only_changed: Annotated[
        bool, typer.Option("--changed", help="Leave out settings that have their defaults.")
    ] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a topic, a group or a broker: each value, and its source."""
    from cordwood.administration.topic.view import settings_of
    from cordwood.model.failure import Failure

    connection = connect(bootstrap_servers, timeout_s, client_config)
    resource = named_resource(connection, topic, group, broker)
    try:
        settings = settings_of(connection, resource)
    except Failure as failure:
        if topic is not None and failure.code == "UNKNOWN_TOPIC_OR_PARTITION":
            raise connection.unknown_topic(topic) from failure
        raise
    shown = [setting for _, setting in sorted(settings.items()) if setting.changed or not only_changed]
    if as_json:
        print_json(
            {
                setting.name: {"value": setting.value, "source": setting.source, "read_only": setting.read_only}
                for setting in shown
            }
        )
    elif shown:
        print_table(["setting", "value", "set on"], [(row.name, row.value, row.source) for row in shown])
    else:
        remark("All settings have their defaults.")
