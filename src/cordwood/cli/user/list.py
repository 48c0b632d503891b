"""`cordwood user list`."""

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def list_users(
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the users, with their mechanisms and iterations."""
    from cordwood.administration.access.users import users

    found = users(connect(bootstrap_servers, timeout_s, client_config))
    if as_json:
        print_json([user.as_json() for user in found])
    elif quiet:
        print_names(user.name for user in found)
    elif found:
        print_table(
            ["user", "mechanism", "iterations"],
            [(user.name, each.sasl_name, count) for user in found for each, count in user.iterations.items()],
        )
    else:
        remark("No users yet: `cordwood user add NAME` adds one.")
