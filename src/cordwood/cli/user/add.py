"""`cordwood user add`."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)
from cordwood.cli.user.password_source import PasswordFile, UserName, new_password
from cordwood.model.credentials import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_NAMES
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory


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
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Write the user into the store of this data directory, which no broker uses now: for the first user, "
            "before the first start.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Write the user into the metadata store of a cluster itself: etcd://HOST:PORT,HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="With --store: the name of the cluster.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="With --store: a broker's settings, for etcd's user and files.",
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Add a user, for listeners with SASL. The metadata store keeps salted keys, and no password.

    A broker is asked, unless --data-dir or --store names the store. For a broker of `cordwood serve --secure`, which
    --data-dir or the file of --client-config shows, files with which clients log in are written, too, and the password
    is made up if none is given.
    """
    from cordwood.cli.terminal.output import print_json, remark, say

    for each in mechanisms or ():
        if each not in SCRAM_NAMES:
            raise Failure(
                "USAGE", f"{each!r} is no mechanism of SCRAM", f"there are {' and '.join(SCRAM_NAMES)}", ExitCode.USAGE
            )
    chosen = list(dict.fromkeys(mechanisms or SCRAM_NAMES))
    if data_dir is not None and store is not None:
        raise Failure("USAGE", "--data-dir and --store name two stores", "give one of them", ExitCode.USAGE)
    secure = _secure_directory(data_dir, client_config if store is None else None)
    password = new_password(name, password_file, generated=secure is not None)
    keys = [SCRAM_NAMES[each] for each in chosen]
    if data_dir is not None or store is not None:
        from cordwood.broker.secure.first_users import add_first_user
        from cordwood.cli.serving.start import Flags, settings_from

        flags = Flags(data_dir, config=config, cluster=cluster, store=store, node_id=None if store is None else "0")
        add_first_user(settings_from(flags, os.environ), name, password, keys, iterations, dry_run=dry_run)
    else:
        from cordwood.administration.access.users import add_user as add

        add(connect(bootstrap_servers, timeout_s, client_config), name, password, keys, iterations, dry_run=dry_run)
    written: dict[str, str] = {}
    if secure is not None and not dry_run:
        servers = bootstrap_servers or secure.servers()
        written = secure.write_files(name, password, max(chosen), servers)._asdict()
    if as_json:
        files = {"files": written} if written else {}
        print_json({"user": name, "mechanisms": chosen, "iterations": iterations, **files, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"{name} can log in by {', '.join(chosen)}")
        for path in written.values():
            say(path)


def _secure_directory(data_dir: str | None, client_config: str | None) -> "SecureDirectory | None":
    """The directory of a secure broker that the options show; None: they show none."""
    from cordwood.broker.secure.client_files import SecureDirectory

    if data_dir is not None:
        found = SecureDirectory(data_dir)
        return found if found.is_complete else None
    return None if client_config is None else SecureDirectory.around(client_config)
