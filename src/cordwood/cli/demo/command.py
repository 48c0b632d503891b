"""`cordwood demo`."""

import typer


def demo() -> None:
    """Show the main job in the terminal, in under a minute: a real broker, a real client, real kills.

    Starts a broker of its own in a temporary directory, and ends by itself. Every claim is checked; the exit code is 0
    if all held.
    """
    from cordwood.cli.demo.story import run

    raise typer.Exit(run())
