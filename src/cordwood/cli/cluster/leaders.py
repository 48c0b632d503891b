"""`cordwood cluster leaders`: the leaderships of each broker."""

from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)


def cluster_leaders(
    node: Annotated[
        int | None, typer.Argument(metavar="NODE", min=0, help="Only this broker.", show_default=False)
    ] = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show which partitions each broker leads, by topic. Partitions without a leader come first.

    `cordwood topic describe --led-by NODE` lists them one by one.
    """
    from cordwood.administration.topic.by_state import all_partitions
    from cordwood.cli.terminal.output import print_json, print_table, remark
    from cordwood.model.quantities import ranges

    led: dict[tuple[int, str], list[int]] = {}
    for each in all_partitions(connect(bootstrap_servers, timeout_s, client_config)):
        if node in (None, each.leader):
            led.setdefault((each.leader, each.topic), []).append(each.partition)
    rows = sorted(led.items())
    if as_json:
        print_json(
            [
                {"leader": None if leader < 0 else leader, "topic": topic, "partitions": partitions}
                for (leader, topic), partitions in rows
            ]
        )
    elif rows:
        print_table(
            ["leader", "topic", "leads", "partitions"],
            [
                (None if leader < 0 else leader, topic, len(partitions), ranges(partitions))
                for (leader, topic), partitions in rows
            ],
        )
    else:
        remark("There are no partitions yet." if node is None else f"Broker {node} leads nothing.")
