"""`cordwood cluster import`."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DryRun, Yes
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, Throttle, TimeoutSeconds
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.broker.importing.carrying_out import Imported, ImportRequest
    from cordwood.model.settings.broker_settings import BrokerSettings

REPLICAS = 3
MOVES_AT_ONCE = 10


def import_directory(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The data directory of the stopped broker.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="The name of the cluster, which is empty.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="The cluster's metadata store: etcd://HOST:PORT,HOST:PORT."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="FILE", envvar="CORDWOOD_CONFIG", help="The broker's file of settings."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting of the broker, as with `serve`."),
    ] = None,
    raise_to: Annotated[
        int | None,
        typer.Option(
            "--raise",
            metavar="N",
            min=2,
            help="Then wait until N brokers serve, and give every topic N replicas. Also after an import that ended.",
            show_default=False,
        ),
    ] = None,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Take an import back that was begun and is not committed.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Take the data directory of a single broker into an empty cluster, as the directory of its first broker.

    Stop the broker first. Records stay where they are; topics, settings, counters and the cluster's id go to the
    cluster's store. Positions, producers and open transactions are part of the records, and go on. The directory then
    starts with `cordwood serve --cluster --store --node-id`, and never again without.

    The command may be killed and given again at any time; until it has ended, no broker starts on the directory. A
    broker that did not stop cleanly is recovered first. The last lines of output name the next steps: start more
    brokers, and give every topic three replicas, the cluster's own topics first.
    """
    import asyncio
    import os
    import sys

    from cordwood.broker.importing.carrying_out import ImportRequest, Place, carry_out_import, described
    from cordwood.cli.serving.start import Flags, settings_from
    from cordwood.cli.terminal.output import print_json, remark, say

    if as_json and raise_to is not None:
        raise Failure(
            "USAGE", "--raise has no JSON", "use `cordwood cluster reassign --all --replication-factor`", ExitCode.USAGE
        )
    if raise_to is not None and not (yes or dry_run or sys.stdin.isatty()):
        # The refusal comes before the command waits for brokers, which an operator may take long to start.
        raise _no_terminal("--raise moves partitions: this")
    path = os.path.abspath(directory)
    flags = Flags(data_dir=path, config=config, cluster=cluster, store=store, assignments=tuple(assignments or ()))

    def settings_at(place: Place) -> "BrokerSettings":
        there = flags._replace(node_id=str(place.node_id), cluster=place.cluster, store=place.store)
        return settings_from(there, os.environ)

    request = ImportRequest(path, cluster, store, settings_at, dry_run=dry_run, give_up=give_up)

    def confirmed(found: "Imported") -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise _no_terminal("an import")
        say(described(found))
        if not typer.confirm(f"Make {found.directory} the directory of node {found.node_id} of that cluster?"):
            remark("Nothing was changed.")
            raise typer.Exit(ExitCode.FAILED)

    done = asyncio.run(carry_out_import(request, confirmed, remark))
    if as_json:
        print_json(done._asdict())
    else:
        _say_done(done)
    if done.state != "imported":
        return
    if raise_to is None and not as_json and sys.stdin.isatty() and not yes:
        question = f"Wait here until {REPLICAS} brokers serve, then give every topic {REPLICAS} replicas?"
        raise_to = REPLICAS if typer.confirm(question) else None
    if raise_to is not None:
        _raise_topics(done, request, raise_to, timeout_s, yes=yes, throttle=throttle)


def _no_terminal(what: str) -> Failure:
    words = f"{what} needs a confirmation, and there is no terminal to ask on"
    return Failure("USAGE", words, "add --yes", ExitCode.USAGE)


def _say_done(done: "Imported") -> None:
    from cordwood.broker.importing.carrying_out import described
    from cordwood.cli.terminal.output import say

    if done.state == "given up":
        say(f"The import is given up. `cordwood serve --data-dir {done.directory}` starts the broker alone, as before.")
    elif done.state == "planned":
        say(described(done))
    else:
        where = f"--cluster {done.cluster} --store {done.store}"
        say(f"{done.directory} is the directory of node {done.node_id} of cluster {done.cluster}. What comes next:")
        say(f"  cordwood serve --data-dir {done.directory} {where} --node-id {done.node_id} --listen HOST:PORT")
        say(f"  cordwood serve --data-dir DIR {where} --node-id N --listen HOST:PORT  # {REPLICAS - 1} more machines")
        say(
            "HOST is a name or an address of the machine that clients and the other brokers reach, not 127.0.0.1. Then:"
        )
        say(f"  cordwood cluster reassign --all --replication-factor {REPLICAS}    # every topic gets replicas")


def _raise_topics(
    done: "Imported", request: "ImportRequest", factor: int, timeout_s: float, *, yes: bool, throttle: str | None
) -> None:
    """Waits until enough brokers serve, and gives every topic this many replicas. Raises Failure."""
    import asyncio

    from cordwood.administration.cluster.gathering import gather, moves_to
    from cordwood.administration.cluster.plans import targets_of_all, wait_for_own_topics
    from cordwood.administration.connection import Connection
    from cordwood.broker.importing.carrying_out import Place, until_enough_serve
    from cordwood.cli.cluster.carrying_out import carry_out
    from cordwood.cli.terminal.output import remark
    from cordwood.model.errors import EnvironmentFailure

    settings = request.settings_at(Place(done.node_id, done.cluster, done.store))
    try:
        servers = asyncio.run(until_enough_serve(settings, factor, remark))
    except EnvironmentFailure as failure:
        raise Failure("CLUSTER", str(failure)) from failure
    connection = Connection(servers, timeout_s)
    wait_for_own_topics(connection, remark)
    gathered = gather(connection)
    carry_out(
        connection,
        gathered,
        moves_to(gathered, targets_of_all(gathered, factor)),
        yes=yes,
        dry_run=False,
        at_once=MOVES_AT_ONCE,
        throttle=throttle,
        undo_file=None,
        as_json=False,
    )
