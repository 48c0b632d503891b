"""How a command reaches the brokers: their addresses, and a file with the client's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.options import DEFAULT_BOOTSTRAP_SERVERS

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection
    from cordwood.client.bootstrap import Bootstrap

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="CORDWOOD_BOOTSTRAP",
        help="The broker to talk to. Several, separated by commas, are tried in turn. Default: those of "
        f"--client-config, else {DEFAULT_BOOTSTRAP_SERVERS}.",
        show_default=False,
    ),
]

ClientConfig = Annotated[
    str | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        envvar="CORDWOOD_CLIENT_CONFIG",
        help="The client's settings under librdkafka's names, one name=value a line: TLS and the log-in.",
        show_default=False,
    ),
]


def bootstrap_of(servers: str | None, client_config: str | None) -> Bootstrap:
    """The brokers that the options describe, for clients of our own and for Spark. Raises Failure."""
    from cordwood.administration.client_config import read_client_config
    from cordwood.client.bootstrap import SERVERS, Bootstrap
    from cordwood.model.failure import ExitCode, Failure
    from cordwood.security.connection_settings import parse_security

    settings = {} if client_config is None else read_client_config(client_config)
    try:
        security = parse_security(settings)
    except ValueError as reason:
        raise Failure("INVALID_CONFIG", f"the client's settings are refused: {reason}", "", ExitCode.USAGE) from None
    return Bootstrap(servers or settings.get(SERVERS) or DEFAULT_BOOTSTRAP_SERVERS, security)


def connect(servers: str | None, timeout_s: float, client_config: str | None) -> Connection:
    """The connection that the options describe. Raises Failure."""
    from cordwood.administration.client_config import read_client_config
    from cordwood.administration.connection import Connection
    from cordwood.client.bootstrap import SERVERS

    settings = {} if client_config is None else read_client_config(client_config)
    return Connection(servers or settings.get(SERVERS) or DEFAULT_BOOTSTRAP_SERVERS, timeout_s, settings)
