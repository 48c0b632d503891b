"""`cordwood group list`."""

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def list_groups(
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the consumer groups."""
    from cordwood.administration.group.view import listed

    groups = listed(connect(bootstrap_servers, timeout_s, client_config))
    if as_json:
        print_json([group._asdict() for group in groups])
    elif quiet:
        print_names(group.name for group in groups)
    elif groups:
        print_table(["group", "state", "protocol"], groups)
    else:
        remark("No groups yet: a consumer creates its group when it joins or commits.")
