"""`cordwood user remove`."""

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.user.left_tokens import as_json as tokens_as_json
from cordwood.cli.user.left_tokens import left_tokens
from cordwood.cli.user.password_source import UserName


def remove_user(
    name: UserName,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Remove a user. Open connections stay until they log in again, and so do the user's delegation tokens until
    they are over: the command names them.
    """
    from cordwood.administration.access.users import existing_user
    from cordwood.administration.access.users import remove_user as remove
    from cordwood.cli.terminal.output import print_json, remark, say

    connection = connect(bootstrap_servers, timeout_s, client_config)
    user = existing_user(connection, name)
    if not dry_run:
        confirm("removing", f"Remove {name}?", yes=yes, otherwise="Nothing was removed.")
        remove(connection, user)
    if not as_json and not dry_run:
        say(f"{name} is removed")
    left = left_tokens(name, bootstrap_servers, client_config, timeout_s)
    if as_json:
        print_json({"user": name, "removed": not dry_run, **tokens_as_json(left), **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
