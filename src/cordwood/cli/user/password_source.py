"""Where a password comes from: a file, the environment, or a person. Never an argument, which every user of the machine
can read while the command runs."""

import os
import secrets
import sys
from typing import Annotated

import typer

from cordwood.cli.terminal.options import checked_name
from cordwood.model.failure import ExitCode, Failure

VARIABLE = "CORDWOOD_USER_PASSWORD"
_GENERATED_BYTES = 24

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


def new_password(name: str, file: str | None, *, generated: bool = False) -> str:
    """The password for a user. A usage error if there is none. `generated`: it is written into a file, so nobody has to
    know it, and one is made up if none is given."""
    password = _read(file) if file is not None else os.environ.get(VARIABLE)
    if password is None and generated:
        return secrets.token_urlsafe(_GENERATED_BYTES)
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
