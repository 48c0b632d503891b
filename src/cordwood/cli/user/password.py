"""`cordwood user password`."""

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.user.left_tokens import as_json as tokens_as_json
from cordwood.cli.user.left_tokens import left_tokens
from cordwood.cli.user.password_source import PasswordFile, UserName, new_password


def change_password(
    name: UserName,
    password_file: PasswordFile = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change a user's password, for all mechanisms of the user. Open connections stay until they log in again, and so
    do the user's delegation tokens until they are over: the command names them.

    Files with which the user logs in, which `cordwood serve --secure` or `cordwood user add` made beside the file of
    --client-config, get the new password, too. Where there are such files, the password is made up if none is given.
    """
    from cordwood.administration.access.users import existing_user, set_password
    from cordwood.broker.secure.client_files import SecureDirectory
    from cordwood.cli.terminal.output import print_json, remark, say

    connection = connect(bootstrap_servers, timeout_s, client_config)
    user = existing_user(connection, name)
    secure = None if client_config is None else SecureDirectory.around(client_config)
    password = new_password(name, password_file, generated=secure is not None and secure.has_files(name))
    written: dict[str, str] = {}
    if not dry_run:
        set_password(connection, name, password, user.iterations)
        if secure is not None:
            written = secure.rewrite_files(name, password)
    if not as_json and not dry_run:
        say(f"{name} has a new password")
        for path in written.values():
            say(path)
    left = left_tokens(name, bootstrap_servers, client_config, timeout_s)
    if as_json:
        files = {"files": written} if written else {}
        print_json({"user": name, "changed": not dry_run, **files, **tokens_as_json(left), **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
