"""`cordwood cluster elect-preferred`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    checked_name,
)
from cordwood.model.failure import Failure


def elect_preferred(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", callback=checked_name, help="Only this topic.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Give partitions the first of their replicas as the leader, if it is in sync. Loses nothing.

    Brokers do so by themselves unless `auto.leader.rebalance.enable` is false.
    """
    from cordwood.administration.asking import first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.administration.cluster.electing import NOT_NEEDED, PREFERRED, elect
    from cordwood.administration.cluster.view import partitions_of
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.quantities import count_in_words

    connection = connect(bootstrap_servers, timeout_s, client_config)
    address, found = first_answer(
        brokers(connection), lambda asked: partitions_of(asked, [topic] if topic else [], timeout_s)
    )
    if topic and not found:
        raise connection.unknown_topic(topic)
    if dry_run:
        due = [each for each in found if each.replicas and each.leader != each.replicas[0] in each.isr]
        if as_json:
            print_json({"would_elect": [{"topic": each.topic, "partition": each.partition} for each in due]})
        else:
            say(f"{count_in_words(len(due), 'partition')} would get the preferred leader.")
            remark(DRY_RUN)
        return
    asked = [(each.topic, each.partition) for each in found] if topic else None
    outcomes = [each for each in elect(address, PREFERRED, asked, timeout_s) if each.error != NOT_NEEDED]
    elected = [each for each in outcomes if not each.error]
    refused = [each for each in outcomes if each.error]
    if as_json:
        print_json(
            {
                "elected": [{"topic": each.topic, "partition": each.partition} for each in elected],
                "failed": [
                    {"topic": each.topic, "partition": each.partition, "code": each.error, "message": each.message}
                    for each in refused
                ],
            }
        )
    else:
        say(f"{count_in_words(len(elected), 'partition')} got the preferred leader.")
    if refused:
        raise Failure(
            refused[0].error,
            f"{count_in_words(len(refused), 'partition')} kept another leader, or none: {refused[0].message}",
            "`cordwood cluster status` says which replicas are missing and why",
        )
