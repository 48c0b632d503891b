"""`cordwood topic delete`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.deleting import delete_each
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TopicNames,
)
from cordwood.cli.terminal.output import print_json, remark, say
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words


def delete(
    topics: TopicNames,
    dry_run: DryRun = False,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. There is no way back."""
    from cordwood.administration.topic.view import describe

    connection = connect(bootstrap_servers, timeout_s, client_config)
    found = []
    for topic in dict.fromkeys(topics):
        try:
            found.append(describe(connection, topic))
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_FOUND or not if_exists:
                raise
    if found and not (yes or as_json):
        for view in found:
            records = sum(part.span or 0 for part in view.partitions)
            say(f"{view.name}: {count_in_words(records, 'record')} will be gone for every reader")
    if dry_run:
        if as_json:
            print_json({"would_delete": [view.name for view in found]})
        else:
            remark(DRY_RUN)
        return
    if found:
        confirm("deleting", "Delete?", yes=yes, otherwise="Nothing was deleted.")
    delete_each(
        "topic",
        [view.name for view in found],
        lambda name: connection.ask_all(lambda admin: admin.delete_topics([name], operation_timeout=timeout_s)),
        as_json=as_json,
    )
