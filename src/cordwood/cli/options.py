"""Arguments and options that several commands share, so that they are spelled and explained alike."""

from typing import Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"

BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="CORDWOOD_BOOTSTRAP",
        help="The broker to talk to; several, separated by commas, are tried in turn.",
    ),
]

TimeoutSeconds = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for the broker's answer."),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts; errors on stderr are JSON too.")]

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A setting of the topic; may be given several times. `cordwood config list` explains them all.",
        show_default=False,
    ),
]

DEFAULT_TIMEOUT_S = 10.0


def parse_assignments(texts: list[str] | None) -> dict[str, str]:
    """`["a=1", "b="]` as a mapping; a usage error if one has no `=`."""
    settings: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise Failure("USAGE", f"{text!r} is not NAME=VALUE", "write it as retention.ms=60000", ExitCode.USAGE)
        settings[name.strip()] = value.strip()
    return settings
