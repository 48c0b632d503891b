"""`cordwood transaction families`."""

import time

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def list_families(
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List transaction families: each is a Spark query whose writers commit a batch together.

    Each writer has a slot of its family. A slot is joined when its writer begins, open once it has written records, and
    completing while its transaction markers are being written.
    """
    from cordwood.administration.transaction.family_view import families

    found = families(connect(bootstrap_servers, timeout_s, client_config))
    if as_json:
        print_json(found)
    elif quiet:
        print_names(str(each["name"]) for each in found)
    elif found:
        print_table(
            ["query", "family", "last batch", "decided", "slots", "joined", "open", "completing"],
            [
                (
                    each["query"],
                    each["name"],
                    each["last_batch_id"],
                    _when(each["decided_ms"]) + (", to be forgotten" if each["forgotten"] else ""),
                    each["slots"],
                    each["joined_slots"],
                    each["open_slots"],
                    each["completing_slots"],
                )
                for each in found
            ],
        )
    else:
        remark("No families.")


def _when(time_ms: int | None) -> str:
    return "-" if time_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
