"""`cordwood cluster rebalance`: evens out the brokers of a cluster."""

import dataclasses
import time
from typing import Annotated

import typer

from cordwood.cli.cluster.move_options import AtOnce, Throttle, UndoFile
from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
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
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Even out replicas, bytes, leaderships and traffic over brokers, and replicas of each partition over racks.

    A broker that was added, for example, gets its share. Clients go on. Counts come first: brokers differ by one
    replica and one leadership at most, in each topic and in all. Then bytes and traffic are evened out, to about a
    tenth of the mean, by exchanges that leave the counts alone. Then the first replica of each partition is elected,
    even if nothing moves. A plan that was carried out leaves nothing to do for the next one.
    """
    from cordwood.administration.cluster.gathering import ABSENT, gather
    from cordwood.administration.connection import Connection
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.terminal.output import remark
    from cordwood.cluster.planner.rebalancing.plan import plan_rebalance

    connection = Connection(bootstrap_servers, timeout_s)
    gathered = gather(connection)
    if sample_s:
        time.sleep(sample_s)
        later = {each.key: each.size_bytes for each in gather(connection).partitions}
        grown = ((each, later.get(each.key, each.size_bytes) - each.size_bytes) for each in gathered.partitions)
        partitions = tuple(each._replace(traffic=max(0, more) / sample_s) for each, more in grown)
        gathered = dataclasses.replace(gathered, partitions=partitions)
    for node, state in gathered.states.items():
        if state == ABSENT:
            remark(f"node {node} does not run, and keeps its replicas: `cordwood cluster drain {node}` moves them")
    carry_out(
        connection,
        gathered,
        plan_rebalance(gathered.movable, gathered.racks),
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
        every_leader=True,
    )
