"""`cordwood transaction list`."""

from collections import Counter
from typing import Annotated, Any

import typer

from cordwood.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.output import print_json, print_table, remark


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
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, the state of their last transaction and their producers.

    All slots of a family share a line; with `--json` each slot has a line of its own.
    """
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.view import listed

    found = listed(Connection(bootstrap_servers, timeout_s), states or [])
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ["transactional id", "state", "producer id"],
            _rows(found),
        )
    else:
        remark("No transactions.")


def _rows(found: list[dict[str, Any]]) -> list[tuple[str, str, int | None]]:
    from cordwood.model.families import FAMILY_PREFIX, slot_of

    rows: list[tuple[str, str, int | None]] = []
    families: dict[str, Counter[str]] = {}
    for each in found:
        slot = slot_of(each["transactional_id"])
        if slot is None:
            rows.append((each["transactional_id"], each["state"], each["producer_id"]))
        else:
            families.setdefault(slot.family, Counter())[each["state"]] += 1
    for family, states in families.items():
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        rows.append((f"{FAMILY_PREFIX}{family}/*", counted, None))
    return sorted(rows)
