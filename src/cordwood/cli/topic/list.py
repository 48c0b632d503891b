"""`cordwood topic list`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
from cordwood.model.identifiers import INTERNAL_TOPICS


def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="List the broker's internal topics, too.")] = False,
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the topics."""

    connection = connect(bootstrap_servers, timeout_s, client_config)
    metadata = connection.call(lambda: connection.admin().list_topics(timeout=timeout_s))
    topics = [
        {
            "name": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(part.replicas) for part in topic.partitions.values()), default=0),
            "internal": name in INTERNAL_TOPICS,
        }
        for name, topic in sorted(metadata.topics.items())
        if internal or name not in INTERNAL_TOPICS
    ]
    if as_json:
        print_json(topics)
    elif quiet:
        print_names(str(topic["name"]) for topic in topics)
    elif topics:
        print_table(
            ["topic", "partitions", "replicas"],
            [(topic["name"], topic["partitions"], topic["replication_factor"]) for topic in topics],
        )
    else:
        remark("No topics yet. `cordwood topic create NAME` creates one.")
