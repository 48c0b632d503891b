"""`cordwood history`: checks the writes and reads of clients, on any Kafka-compatible broker."""

from typing import Annotated

import typer

from cordwood.cli.terminal.options import AsJson
from cordwood.model.failure import ExitCode, Failure


def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="A recorded history (JSON lines); several are merged.", show_default=False),
    ],
    listed: Annotated[int, typer.Option("--list", min=1, help="How many findings of each kind to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Look for lost, changed, duplicated or reordered records in a recorded history.

    Exits with 0 if nothing is wrong, else with 5. docs/history.md explains the format, the recording of a history, and
    each finding.
    """
    from cordwood.history import InvalidHistory
    from cordwood.history import check as check_history

    try:
        report = check_history(*files, listed_per_anomaly=listed)
    except InvalidHistory as error:
        raise Failure("INVALID_HISTORY", str(error), "docs/history.md describes the format") from error
    except FileNotFoundError as error:
        raise Failure("NO_SUCH_FILE", f"there is no file {error.filename}", "", ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise Failure("NOT_READABLE", f"{error.filename} cannot be read: {error.strerror}") from error
    typer.echo(report.to_json() if as_json else report.render())
    if not report.clean:
        raise typer.Exit(ExitCode.PROBLEM_FOUND)
