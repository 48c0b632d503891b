"""`cordwood user list`."""

from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    Quiet,
    TimeoutSeconds,
)
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def list_users(
    quiet: Quiet = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the users, with their mechanisms and iterations."""
    from cordwood.administration.connection import Connection
    from cordwood.administration.users import users

    found = users(Connection(bootstrap_servers, timeout_s))
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
