"""`cordwood transaction families`."""

import time

from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, print_table, remark


def list_families(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List families, such as Spark queries: the batch they decided last, and who has joined for the next.

    A slot is joined by a writer, open once something is written, and completing while its markers are on their way.
    """
    from cordwood.cli.connection import Connection
    from cordwood.cli.transaction.family_view import families

    found = families(Connection(bootstrap_servers, timeout_s))
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ["family", "last batch", "decided", "slots", "joined", "open", "completing"],
            [
                (
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
