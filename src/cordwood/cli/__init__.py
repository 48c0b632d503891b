"""The command line. One file per command; everything that talks to a broker is an ordinary Kafka client.

`main` is the console script. Plain `serve` flags start a broker without importing typer, rich or a client library: the
imports would take longer than the broker's whole start (docs/decisions). All other arguments, help and mistakes
included, go to typer, and so does a shell that asks for completions.
"""

import os
import sys
from typing import NoReturn

COMPLETION_VARIABLE = "_CORDWOOD_COMPLETE"
"""Set by the completion scripts of shells, which run `cordwood` at each TAB."""


def main() -> NoReturn:
    """Runs the command that the process's arguments name, and exits with its code."""
    from cordwood.cli.serving.start import plain_serve_flags, start

    flags = plain_serve_flags(sys.argv[1:])
    if flags is not None and COMPLETION_VARIABLE not in os.environ:
        sys.exit(start(flags))
    from cordwood.cli.app import app

    app()
    raise AssertionError("a command always ends the process")
