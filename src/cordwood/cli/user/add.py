"""`cordwood user add`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    AsJson,
    BootstrapServers,
    TimeoutSeconds,
)
from cordwood.cli.user.password_source import PasswordFile, UserName, new_password
from cordwood.model.credentials import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_NAMES
from cordwood.model.failure import ExitCode, Failure


def add_user(
    name: UserName,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            metavar="NAME",
            help="SCRAM-SHA-256 or SCRAM-SHA-512; may be given twice. Default: both. PLAIN works with either.",
            show_default=False,
        ),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            min=MIN_ITERATIONS,
            max=MAX_ITERATIONS,
            help="Rounds of the hash: what each guess costs somebody who stole the store, and each log-in a client.",
        ),
    ] = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    dry_run: DryRun = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Add a user, for listeners with SASL. The brokers keep salted keys, and no password."""
    from cordwood.cli.terminal.output import print_json, remark, say

    for each in mechanisms or ():
        if each not in SCRAM_NAMES:
            raise Failure(
                "USAGE", f"{each!r} is no mechanism of SCRAM", f"there are {' and '.join(SCRAM_NAMES)}", ExitCode.USAGE
            )
    chosen = list(dict.fromkeys(mechanisms or SCRAM_NAMES))
    password = new_password(name, password_file)

    from cordwood.administration.connection import Connection
    from cordwood.administration.users import add_user as add

    add(
        Connection(bootstrap_servers, timeout_s),
        name,
        password,
        [SCRAM_NAMES[each] for each in chosen],
        iterations,
        dry_run=dry_run,
    )
    if as_json:
        print_json({"user": name, "mechanisms": chosen, "iterations": iterations, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"{name} can log in by {', '.join(chosen)}")
