"""Arguments and options that several commands share, so that all commands spell and explain them alike."""

from collections.abc import Callable
from typing import Annotated

import typer

from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import duration_ms, in_plain_unit

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"
MAX_STRING_BYTES = 2**15 - 1
"""The longest string of the protocol. A longer one cannot be sent, and librdkafka would wait for an answer to it."""
MAX_PARTITIONS = 100_000
MAX_REPLICATION_FACTOR = 10_000
"""The largest numbers that librdkafka sends."""
MAX_WAIT_S = 86_400.0
"""A wait of more than a day is a mistake, and the client libraries count milliseconds in 32 bits."""


def checked_name(name: str | None) -> str | None:
    """The name of a topic or a group, or a transactional id, unchanged. A name that cannot be sent is a usage error."""
    if name is None:
        return None
    if not name:
        raise Failure("USAGE", "a name cannot be empty", "", ExitCode.USAGE)
    # Python hands over bytes of the command line that are no UTF-8 as lone surrogates.
    size_bytes = len(name.encode(errors="surrogateescape"))
    if size_bytes > MAX_STRING_BYTES:
        limit = f"the protocol's strings have at most {MAX_STRING_BYTES:,} bytes"
        raise Failure("USAGE", f"the name {name[:20]!r}... is too long: {size_bytes:,} bytes", limit, ExitCode.USAGE)
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise Failure("USAGE", f"the name {name!r} is no UTF-8", "", ExitCode.USAGE)
    return name


def checked_names(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        checked_name(name)
    return names


def wait_s(at_least_s: float) -> Callable[[str | float], float]:
    """The parser of an option for a wait: seconds, or a number with a unit."""

    def parse(given: str | float) -> float:
        try:
            # The default of an option is a number already.
            duration_s = float(given)
        except ValueError:
            try:
                duration_s = duration_ms(str(given)) / 1000
            except ValueError as reason:
                raise Failure("USAGE", str(reason), "seconds, or 500ms, 10s, 2m", ExitCode.USAGE) from None
        if not at_least_s <= duration_s <= MAX_WAIT_S:  # refuses NaN, too
            raise Failure(
                "USAGE",
                f"{given} is not a possible time to wait",
                f"give {at_least_s:g} to {MAX_WAIT_S:g} seconds",
                ExitCode.USAGE,
            )
        return duration_s

    return parse


BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="CORDWOOD_BOOTSTRAP",
        help="The broker to talk to. Several, separated by commas, are tried in turn.",
    ),
]

TimeoutSeconds = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=wait_s(0.1),
        help="How long to wait for the broker's answer: seconds, or 500ms, 2m.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts; errors on stderr are JSON too.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print names alone, one a line.")]

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", callback=checked_name, help="The topic's name.", show_default=False)
]

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", callback=checked_name, help="The group's name.", show_default=False)
]

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", callback=checked_name, help="The transactional id.", show_default=False)
]

AtOnce = Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Partitions that move at the same time.")]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="Bytes per second that each broker copies at most for moves: 50MiB. Replicas in sync are not slowed down.",
        show_default=False,
    ),
]
UndoFile = Annotated[
    str | None,
    typer.Option(
        "--undo-file",
        metavar="FILE",
        help="A new file for the present replicas; an existing one is refused. Default: a file here, with the time.",
    ),
]

TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", callback=checked_names, help="One or more topics.", show_default=False),
]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A setting of the topic; may be given several times. Durations and sizes may have a unit: "
        "retention.ms=1d, retention.bytes=10GiB. `cordwood config list` explains them all.",
        show_default=False,
    ),
]

DEFAULT_TIMEOUT_S = 10.0


def parse_assignments(texts: list[str] | None) -> dict[str, str]:
    """`["a=1", "b="]` as a mapping, with durations and sizes as plain numbers. A text without `=` is a usage error."""
    settings: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise Failure(
                "USAGE",
                f"{text!r} is not NAME=VALUE",
                "write it as retention.ms=60000 or retention.ms=1d",
                ExitCode.USAGE,
            )
        try:
            settings[name.strip()] = in_plain_unit(name.strip(), value.strip())
        except ValueError as reason:
            raise Failure("USAGE", f"{text!r}: {reason}", "", ExitCode.USAGE) from None
    return settings
