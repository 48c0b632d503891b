"""The command line. One file per command; everything that talks to a broker is an ordinary Kafka client.

`main` is the console script. It starts a broker without importing typer, rich or a client library when the arguments
are plain `serve` flags: those imports take longer than the broker's whole start (docs/decisions). Whatever it does not
recognise, help and mistakes included, goes to typer.
"""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command that the process's arguments name, and exits with its code."""
    from cordwood.cli.start import plain_serve_flags, start

    flags = plain_serve_flags(sys.argv[1:])
    if flags is not None:
        sys.exit(start(flags))
    from cordwood.cli.app import app

    app()
    raise AssertionError("a command always ends the process")
