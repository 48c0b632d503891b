"""`cordwood cluster rebalance`: evens out the brokers of a cluster."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    AtOnce,
    Throttle,
    TimeoutSeconds,
    UndoFile,
    wait_s,
)


def rebalance(
    sample_s: Annotated[
        float,
        typer.Option(
            "--sample",
            metavar="DURATION",
            parser=wait_s(0.0),
            help="How long to watch the logs grow, to even out traffic as well. 0: traffic is not looked at.",
        ),
    ] = 2.0,
    yes: Yes = False,
    dry_run: DryRun = False,
    at_once: AtOnce = 10,
    throttle: Throttle = None,
    undo_file: UndoFile = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Even out replicas, bytes, leaderships and traffic over brokers, and replicas of each partition over racks.

    A broker that was added, for example, gets its share. Clients go on. Counts come first: brokers differ by one
    replica and one leadership at most, in each topic and in all. Then bytes and traffic are evened out, to about a
    tenth of the mean, by exchanges that leave the counts alone. Then the first replica of each partition is elected,
    even if nothing moves. A plan that was carried out leaves nothing to do for the next one.
    """
    from cordwood.administration.cluster.gathering import gather
    from cordwood.administration.cluster.plans import absent_in_words, plan_of_rebalance, with_traffic
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.terminal.output import remark

    connection = connect(bootstrap_servers, timeout_s, client_config)
    gathered = gather(connection)
    if sample_s:
        gathered = with_traffic(connection, gathered, sample_s)
    for text in absent_in_words(gathered):
        remark(text)
    carry_out(
        connection,
        gathered,
        plan_of_rebalance(gathered),
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
        every_leader=True,
    )
