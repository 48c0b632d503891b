"""Where a password comes from: a file, the environment, or a person. Never an argument, which every user of the machine
can read while the command runs."""

import os
import sys
from typing import Annotated

import typer

from cordwood.cli.terminal.options import checked_name
from cordwood.model.failure import ExitCode, Failure

VARIABLE = "CORDWOOD_USER_PASSWORD"

UserName = Annotated[
    str, typer.Argument(metavar="USER", callback=checked_name, help="The user's name.", show_default=False)
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"The file with the password, in one line. Default: the environment variable {VARIABLE}, else a prompt.",
        show_default=False,
    ),
]


def new_password(name: str, file: str | None) -> str:
    """The password for a user. A usage error if there is none."""
    password = _read(file) if file is not None else os.environ.get(VARIABLE)
    if password is None:
        if not sys.stdin.isatty():
            raise Failure(
                "USAGE",
                "a password is needed, and there is no terminal to ask on",
                f"give --password-file FILE, or set {VARIABLE}",
                ExitCode.USAGE,
            )
        password = str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True))
    if not password:
        raise Failure("USAGE", "a password cannot be empty", "", ExitCode.USAGE)
    if "\0" in password or "\n" in password:
        raise Failure("USAGE", "a password is one line, without NUL: SASL/PLAIN cannot send others", "", ExitCode.USAGE)
    return password


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Failure("USAGE", f"the password file {path} cannot be read: {reason}", "", ExitCode.USAGE) from error
