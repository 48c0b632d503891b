"""`cordwood doctor`: needs no broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.options import AsJson
from cordwood.model.failure import ExitCode

if TYPE_CHECKING:
    from cordwood.administration.doctor.judgement import Finding


def doctor(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            envvar="CORDWOOD_DATA_DIR",
            help="The broker's directory, or several with commas.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="FILE", envvar="CORDWOOD_CONFIG", help="The broker's TOML file."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting; may be given several times."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at this machine as a broker with these settings would: disk, log file, limits, memory, clock, ports, store.

    Reports trouble before it happens, and what to do; of a broker in a cluster also the topics that have one replica
    where there could be more. Ends with exit code 5 if a broker would not start, or if
    acknowledged records would not be safe. Writes one small file for a moment, to time the disk.
    """
    import os

    from cordwood.administration.doctor.judgement import State
    from cordwood.cli.doctor.measuring import findings_of
    from cordwood.cli.serving.start import Flags, settings_from
    from cordwood.cli.terminal.output import print_json, print_table

    settings = settings_from(Flags(data_dir=data_dir, config=config, assignments=tuple(assignments or ())), os.environ)
    findings = findings_of(settings)
    if as_json:
        print_json(findings_as_json(findings))
    else:
        rows = [
            (each.area, each.state, f"{each.words}. Remedy: {each.remedy}" if each.remedy else each.words)
            for each in findings
        ]
        print_table(["area", "state", "what"], rows)
    if any(each.state is State.PROBLEM for each in findings):
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def findings_as_json(findings: "list[Finding]") -> list[dict[str, str]]:
    return [
        {"area": each.area, "state": str(each.state), "words": each.words, "remedy": each.remedy} for each in findings
    ]
