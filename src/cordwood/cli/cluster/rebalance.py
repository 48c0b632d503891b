"""`cordwood cluster rebalance`: evens out the brokers of a cluster."""

import time
from typing import Annotated

import typer

from cordwood.cli.cluster.move_options import AtOnce, DryRun, Throttle, UndoFile, Yes
from cordwood.cli.options import (
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
            help="How long to watch the logs grow, to even out traffic as well. 0: leaderships are counted alike.",
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
    """Even out bytes, replicas, leaderships and traffic over brokers, and replicas of each partition over racks.

    After a broker was added, say: it gets its share. Clients go on. The plan is shown first; brokers within a tenth of
    the mean are left alone.
    """
    from cordwood.cli.cluster.moving import carry_out, gather
    from cordwood.cli.connection import Connection
    from cordwood.cluster.planner.balance import plan_rebalance

    connection = Connection(bootstrap_servers, timeout_s)
    gathered = gather(connection)
    partitions = gathered.partitions
    if sample_s:
        time.sleep(sample_s)
        later = {(each.topic, each.partition): each.size_bytes for each in gather(connection).partitions}
        partitions = tuple(
            each._replace(
                traffic=max(0, later.get((each.topic, each.partition), each.size_bytes) - each.size_bytes) / sample_s
            )
            for each in partitions
        )
    carry_out(
        connection,
        gathered,
        plan_rebalance(partitions, gathered.racks),
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        throttle=throttle,
        undo_file=undo_file,
        as_json=as_json,
    )
