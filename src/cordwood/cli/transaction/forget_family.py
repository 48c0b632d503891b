"""`cordwood transaction forget-family`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, remark, say


def forget_family(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="The family's name.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Abort a family's open transactions, and forget its decided batches after ten minutes or more.

    Only for a query that never runs again: if it does, it may write its last batch once more.
    """
    from cordwood.administration.transaction.family_view import aborted, described

    connection = connect(bootstrap_servers, timeout_s, client_config)
    found = described(connection, family)
    last = "nothing" if found["last_batch_id"] is None else f"batch {found['last_batch_id']}"
    if not (yes or as_json):
        say(f"{family}: the last decision was {last}, and {found['joined_slots']} slots are joined")
    if dry_run:
        if as_json:
            print_json({"would_forget": family, "joined_slots": found["joined_slots"]})
        else:
            remark(DRY_RUN)
        return
    confirm("forgetting", "Forget?", yes=yes, otherwise="Nothing was forgotten.")
    aborted(connection, family, forget=True)
    if as_json:
        print_json({"family": family, "last_batch_id": found["last_batch_id"], "aborted_slots": found["joined_slots"]})
    else:
        say(f"{family}: will be forgotten; the last decision was {last}, {found['joined_slots']} slots were aborted")
