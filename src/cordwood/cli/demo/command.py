"""`cordwood demo`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.output import print_table
from cordwood.model.failure import ExitCode, Failure, near_names


def demo(
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--chapter",
            metavar="NAME",
            help="Play only this chapter and the chapters that it needs; may be given several times.",
            show_default=False,
        ),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the chapters, and play none.")] = False,
) -> None:
    """Show the main job in the terminal: a real broker, a real client, real kills, and pipelines on a real Spark.

    The demo starts its own broker in a temporary directory, and ends by itself. Every claim is checked; the exit code
    is 0 if all held. The chapters on one broker take about a quarter of a minute, the chapter on a cluster of three
    about ten seconds. Those on Spark start it four times, which takes about 100 s on two quiet cores; without Spark
    they are left out.
    """
    from cordwood.cli.demo.chapters import UnknownChapter
    from cordwood.cli.demo.story import CHAPTERS, run

    if only_list:
        rows = [(each.name, each.about, ", ".join(each.needs)) for each in CHAPTERS]
        print_table(["chapter", "what it shows", "needs"], rows)
        return
    try:
        code = run(names or ())
    except UnknownChapter as unknown:
        hint = near_names(str(unknown), [each.name for each in CHAPTERS]) or "`cordwood demo --list` lists the chapters"
        raise Failure("USAGE", f"the demo has no chapter {unknown}", hint, ExitCode.USAGE) from None
    raise typer.Exit(code)
