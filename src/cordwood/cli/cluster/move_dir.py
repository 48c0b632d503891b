"""`cordwood cluster move-dir`: moves logs to another data directory of their broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Throttle,
    TimeoutSeconds,
    checked_name,
)
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.client.settings import Address


def move_dir(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", callback=checked_name, help="A topic.", show_default=False)],
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", min=0, help="Default: all partitions.", show_default=False)
    ] = None,
    to: Annotated[
        str,
        typer.Option("--to", metavar="DIRECTORY", help="One of the broker's log.dirs, or the end of its path."),
    ] = "",
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", help="The broker. Default: the only one.", show_default=False),
    ] = None,
    throttle: Throttle = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait for the end of the moves.")] = True,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Move the logs of a topic to another data directory of a broker, while clients write and read.

    Without `--to` the command shows where the logs are. The present directory of a log as the target ends its move.
    """
    from cordwood.administration.cluster.directories import (
        await_moves,
        begin_moves,
        directories_of,
        named_directory,
        throttled,
    )
    from cordwood.administration.cluster.moving import rate_of
    from cordwood.cli.terminal.output import print_json, print_table, remark, say
    from cordwood.model.quantities import count_in_words, size_in_words

    if throttle is not None and not wait:
        raise Failure("USAGE", "the throttle is lifted when the moves end: --throttle needs --wait", "", ExitCode.USAGE)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    node_id, address = _broker(connection, broker)
    told = directories_of(address, topic, timeout_s)
    logs = [log for log in told.logs if not log.is_future and partition in (None, log.partition)]
    if not logs:
        raise Failure(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"broker {node_id} has no replica of {topic if partition is None else f'{topic}-{partition}'}",
            "",
            ExitCode.NOT_FOUND,
        )
    if to:
        to = named_directory(to, told.paths, node_id)
    if to and dry_run:
        moves = [log for log in logs if log.directory != to]
        if as_json:
            print_json({"broker": node_id, "would_move": [log._asdict() for log in moves], "to": to})
        else:
            rows = [(log.partition, log.directory, to, size_in_words(log.size_bytes)) for log in moves]
            print_table(["partition", "from", "to", "size"], rows)
            remark(DRY_RUN)
        return
    if to:
        say_progress = (lambda text: None) if as_json else remark
        with throttled(connection, node_id, rate_of(throttle), remark):
            begin_moves(address, topic, [log.partition for log in logs], to, timeout_s)
            if wait:
                await_moves(address, node_id, topic, {log.partition for log in logs}, to, timeout_s, say_progress)
    found = [log for log in directories_of(address, topic, timeout_s).logs if partition in (None, log.partition)]
    if as_json:
        print_json({"broker": node_id, "logs": [log._asdict() for log in found]})
        return
    if to and wait:
        say(f"{count_in_words(len(logs), 'partition')} of {topic} {'is' if len(logs) == 1 else 'are'} in {to} now.")
        return
    print_table(
        ["partition", "directory", "size", ""],
        [
            (
                log.partition,
                log.directory,
                size_in_words(log.size_bytes),
                f"a copy, {log.lag} offsets behind" if log.is_future else "",
            )
            for log in found
        ],
    )


def _broker(connection: "Connection", broker: int | None) -> "tuple[int, Address]":
    from cordwood.administration.asking import first_answer
    from cordwood.administration.brokers import brokers
    from cordwood.administration.cluster.view import nodes_of

    _, (_, nodes) = first_answer(brokers(connection), lambda asked: nodes_of(asked, connection.timeout_s))
    if broker is None:
        if len(nodes) > 1:
            ids = ", ".join(str(node.node_id) for node in nodes)
            raise Failure("USAGE", f"which broker? Each has its own directories: {ids}", "--broker ID", ExitCode.USAGE)
        broker = nodes[0].node_id
    for node in nodes:
        if node.node_id == broker:
            return broker, node.address
    raise Failure("BROKER_NOT_FOUND", f"there is no broker {broker}", "", ExitCode.NOT_FOUND)
