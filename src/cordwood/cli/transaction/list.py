"""`cordwood transaction list`."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
from cordwood.model.failure import ExitCode

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection


def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            callback=checked_names,
            help="Only transactions in this state, such as `Ongoing`; may be given several times.",
        ),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option("--hanging", help="Find transactions that are open in a partition, and that nobody will end."),
    ] = False,
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, the state of their last transaction, how long it is open, and their producers.

    All slots of a family share a line; with `--json` each slot has a line of its own.

    A transaction that hangs keeps readers of committed records from all later records of its partition. `--hanging`
    compares the open transactions of all partitions with the knowledge of their coordinators, and ends with code 5 if
    it finds one.
    """
    from cordwood.administration.transaction.view import listed

    connection = connect(bootstrap_servers, timeout_s, client_config)
    if hanging:
        _show_hanging(connection, quiet=quiet, as_json=as_json)
        return
    found = listed(connection, states or [])
    if as_json:
        print_json(found)
    elif quiet:
        print_names(str(each["transactional_id"]) for each in found)
    elif found:
        print_table(["transactional id", "state", "open for", "producer id"], _rows(found))
    else:
        remark("No transactions.")


def _show_hanging(connection: "Connection", *, quiet: bool, as_json: bool) -> None:
    from cordwood.administration.transaction.hanging import hanging
    from cordwood.model.quantities import duration_in_words

    found = hanging(connection)
    if as_json:
        print_json([each._asdict() for each in found])
    elif quiet:
        print_names(f"{each.topic}-{each.partition}" for each in found)
    elif not found:
        remark("No transaction hangs.")
    else:
        print_table(
            ["topic", "partition", "from offset", "producer id", "transactional id", "last write", "why"],
            [
                (
                    each.topic,
                    each.partition,
                    each.start_offset,
                    each.producer_id,
                    each.transactional_id,
                    None if each.idle_ms is None else f"{duration_in_words(each.idle_ms)} ago",
                    each.why,
                )
                for each in found
            ],
        )
        remark(
            "`cordwood transaction abort ID` ends one with a transactional id, any other `cordwood transaction abort "
            "--topic TOPIC --partition N --start-offset OFFSET`."
        )
    if found:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def _rows(found: list[dict[str, Any]]) -> list[tuple[str, str, str | None, int | None]]:
    from cordwood.model.families import FAMILY_PREFIX, slot_of
    from cordwood.model.quantities import duration_in_words

    rows: list[tuple[str, str, str | None, int | None]] = []
    families: dict[str, Counter[str]] = {}
    for each in found:
        slot = slot_of(each["transactional_id"])
        if slot is None:
            open_for = None if each["open_for_ms"] is None else duration_in_words(each["open_for_ms"])
            rows.append((each["transactional_id"], each["state"], open_for, each["producer_id"]))
        else:
            families.setdefault(slot.family, Counter())[each["state"]] += 1
    for family, states in families.items():
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        rows.append((f"{FAMILY_PREFIX}{family}/*", counted, None, None))
    return sorted(rows, key=lambda row: row[0])
