"""`cordwood transaction describe`."""

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
    TransactionalId,
)
from cordwood.cli.terminal.output import facts, print_json, print_table


def describe_transaction(
    transactional_id: TransactionalId,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show a transactional id: its state, its producer, how long its transaction is open, and the partitions in it."""
    from cordwood.administration.transaction.view import described

    found = described(connect(bootstrap_servers, timeout_s, client_config), transactional_id)
    if as_json:
        print_json(found)
        return
    open_for_ms = found["open_for_ms"]
    facts(
        [
            ("state", found["state"] if open_for_ms is None else f"{found['state']}, for {open_for_ms / 1000:.1f} s"),
            ("producer", f"id {found['producer_id']}, epoch {found['producer_epoch']}"),
            ("timeout", f"{found['timeout_ms'] / 1000:g} s"),
        ]
    )
    if found["partitions"]:
        print_table(["topic", "partition"], [(each["topic"], each["partition"]) for each in found["partitions"]])
