"""`cordwood token list`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, Quiet, TimeoutSeconds
from cordwood.cli.token.shown import time_of


def list_tokens(
    owners: Annotated[
        list[str] | None,
        typer.Option(
            "--owner",
            metavar="USER",
            help="Only tokens of this user, as owner, requester or renewer; may be given several times.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the delegation tokens that you may see, without their secrets."""
    from cordwood.administration.access import tokens
    from cordwood.cli.terminal.output import print_json, print_names, print_table, remark

    found = tokens.tokens(bootstrap_of(bootstrap_servers, client_config), timeout_s, owners or None)
    if as_json:
        print_json([tokens.as_json(held, with_secret=False) for held in found])
    elif quiet:
        print_names(held.token.token_id for held in found)
    elif found:
        print_table(
            ["token", "owner", "requester", "renewers", "until", "with renewals"],
            [
                (
                    held.token.token_id,
                    held.token.owner,
                    held.token.requester,
                    " ".join(held.token.renewers),
                    time_of(held.token.expires_ms),
                    time_of(held.token.ends_ms),
                )
                for held in found
            ],
        )
    else:
        remark("No delegation tokens: `cordwood token create` makes one.")
