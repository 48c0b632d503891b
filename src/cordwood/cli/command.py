"""The boundary at which a failure of a command becomes text on stderr and an exit code.

Commands raise `Failure`, typer raises usage errors, and both are reported in the same shape. Stdout carries results and
nothing else.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from cordwood.cli.terminal.escaping import as_text
from cordwood.model.failure import ExitCode, Failure

COMMAND_ORDER = [
    "serve",
    "cluster",
    "demo",
    "topic",
    "produce",
    "consume",
    "group",
    "client",
    "config",
    "transaction",
    "user",
    "acl",
    "quota",
    "token",
    "pipeline",
    "spark",
    "audit",
    "doctor",
    "support-bundle",
    "inspect",
    "recover",
    "history",
]


class CordwoodGroup(TyperGroup):
    """The root of the command line: runs a command, and reports the errors that the command raises."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        _prepare_streams()
        code: int = ExitCode.DONE
        try:
            result = super().main(
                words,
                prog_name=prog_name or "cordwood",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            # A `typer.Exit` comes back as its code; commands themselves return nothing.
            code = result if isinstance(result, int) else ExitCode.DONE
        except Failure as failure:
            code = report(failure, as_json="--json" in words)
        except (KeyboardInterrupt, typer.Abort):
            code = ExitCode.INTERRUPTED
        except Exception as error:
            code = _usage_exit_code(error, as_json="--json" in words)
        sys.exit(code)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The commands in the order in which a newcomer meets them; typer would put groups last."""
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: COMMAND_ORDER.index(name) if name in COMMAND_ORDER else len(known))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of the pipe has seen enough (`cordwood consume t | head`): that is no error. Python would
            # still complain while closing stdout, so stdout now leads nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.DONE) from None


def _prepare_streams() -> None:
    """Lets a terminal or a file whose encoding is not UTF-8 take any text: a character that it lacks is escaped. With
    NO_COLOR, help has no escape sequences either."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None


def report(failure: Failure, *, as_json: bool) -> int:
    """Prints the failure on stderr, and returns the exit code."""
    if as_json:
        print(failure.as_json(), file=sys.stderr)
    elif not sys.stderr.isatty():
        print(as_text(failure.as_text()), file=sys.stderr)
    else:
        from rich.table import Table
        from rich.text import Text

        from cordwood.cli.terminal.output import console

        lines = Table.grid(padding=(0, 1))
        lines.add_row(Text("error:", "bold red"), Text(as_text(failure.message)))
        if failure.hint:
            lines.add_row(Text("hint:", "bold"), Text(as_text(failure.hint)))
        console(stderr=True).print(lines)
    return int(failure.exit_code)


def _usage_exit_code(error: Exception, *, as_json: bool) -> int:
    """Reports a usage error of typer's in our shape; raises every other error again."""
    # Typer has its parser under different module names from version to version: only the shape is stable.
    format_message = getattr(error, "format_message", None)
    if format_message is None or getattr(error, "exit_code", None) != ExitCode.USAGE:
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        # A group without a command: making the error has already shown the group's help.
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "cordwood"
    return report(Failure("USAGE", str(format_message()), f"see `{path} --help`", ExitCode.USAGE), as_json=as_json)
