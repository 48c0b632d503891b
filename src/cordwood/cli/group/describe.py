"""`cordwood group describe`."""

import time
from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    GroupName,
    TimeoutSeconds,
    wait_s,
)
from cordwood.cli.terminal.output import print_json, print_table, say
from cordwood.model.quantities import count_in_words


def describe_group(
    name: GroupName,
    sample_s: Annotated[
        float,
        typer.Option(
            "--sample",
            metavar="DURATION",
            parser=wait_s(0.0),
            help="How long to measure the speed of writers and readers; 0 takes both as 0.",
        ),
    ] = 1.0,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show a group: its state, its members, and in every partition its lag and the time until it loses records."""
    from cordwood.administration.group.lag import LagReader
    from cordwood.cli.group.table import COLUMNS, cells

    reader = LagReader(connect(bootstrap_servers, timeout_s, client_config), name)
    group, found = reader.look()
    if sample_s and found:
        time.sleep(sample_s)
        group, found = reader.look()
    if as_json:
        print_json(
            {
                "name": group.name,
                "state": group.state,
                "protocol": group.protocol,
                "assignor": group.assignor,
                "members": [
                    {
                        "member_id": member.member_id,
                        "instance_id": member.instance_id,
                        "client_id": member.client_id,
                        "host": member.host,
                        "protocol": member.protocol,
                        "partitions": [{"topic": topic, "partition": index} for topic, index in member.partitions],
                    }
                    for member in group.members
                ],
                "positions": [row.as_json() for row in found],
            }
        )
        return
    say(f"{group.name}: {group.state}, {count_in_words(len(group.members), 'member')}, {group.protocol} protocol")
    if group.members:
        print_table(
            ["member", "client", "host", "protocol", "partitions"],
            [
                (each.member_id, each.client_id, each.host, each.protocol, len(each.partitions))
                for each in group.members
            ],
        )
    if group.protocol == "consumer" and (classic := sum(each.protocol == "classic" for each in group.members)):
        verb = "speaks" if classic == 1 else "speak"
        members = count_in_words(len(group.members), "member")
        say(f"{classic} of {members} still {verb} the classic protocol; the group uses the consumer protocol")
    if found:
        print_table(COLUMNS, [cells(row) for row in found])
