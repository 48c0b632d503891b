"""Confirmations and dry runs, spelled and asked alike by every command that changes or deletes something."""

import sys
from typing import Annotated

import typer

from cordwood.cli.terminal.escaping import as_text
from cordwood.cli.terminal.output import remark
from cordwood.model.failure import ExitCode, Failure

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; needed in scripts.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]

DRY_RUN = "Dry run: nothing was changed."


def as_dry(dry_run: bool) -> dict[str, bool]:
    """The fields that the JSON of a dry run has beside those of a change."""
    return {"dry_run": True} if dry_run else {}


def confirm(doing: str, question: str, *, yes: bool, otherwise: str = "Nothing was changed.") -> None:
    """Returns if `yes` was given or a person agrees. Ends the command if a person does not, or if there is none to ask.

    `doing` begins a sentence: "deleting" needs a confirmation.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            "USAGE", f"{doing} needs a confirmation, and there is no terminal to ask on", "add --yes", ExitCode.USAGE
        )
    if not typer.confirm(as_text(question)):
        remark(otherwise)
        raise typer.Exit(ExitCode.FAILED)
