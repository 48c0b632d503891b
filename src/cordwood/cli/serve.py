"""`cordwood serve`, as typer sees it: its options and their help. `start.py` does the work.

`cordwood.cli.main` starts the broker without importing this module when the arguments are plain; this is where help
and usage errors come from.
"""

from typing import Annotated

import typer

from cordwood.cli.start import Flags, start


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            envvar="CORDWOOD_DATA_DIR",
            help="Where the logs live. Default: ./cordwood-data.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            envvar="CORDWOOD_LISTEN",
            help="Where clients connect; port 0 picks one. Default: 127.0.0.1:9092.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="FILE", envvar="CORDWOOD_CONFIG", help="A TOML file of settings."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting; may be given several times."),
    ] = None,
) -> None:
    """Run a broker in the foreground until SIGTERM, Ctrl-C or the end of its terminal (SIGHUP).

    All three finish what is under way, flush, and close the logs. Under `nohup` the end of the terminal is ignored.

    A setting is taken from the flags, else from the environment (`CORDWOOD_LOG_RETENTION_MS`), else from the TOML file,
    else its default. `cordwood config list --brokers` explains them all. Prints one line when clients can connect.
    """
    raise typer.Exit(start(Flags(data_dir, listen, config, tuple(assignments or ()))))
