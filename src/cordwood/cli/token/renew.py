"""`cordwood token renew`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.token.shown import TokenId, period_ms, time_of


def renew_token(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="DURATION",
            help="How long from now: 12h. Default, and at most: delegation.token.expiry.time.ms.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Renew a delegation token of yours, or of which you are a renewer."""
    from cordwood.administration.access import tokens
    from cordwood.cli.terminal.output import print_json, remark, say

    wanted_ms = period_ms(period, -1)
    bootstrap = bootstrap_of(bootstrap_servers, client_config)
    if dry_run:
        expires_ms = tokens.existing_token(bootstrap, timeout_s, token_id).token.expires_ms
    else:
        expires_ms = tokens.renew_token(bootstrap, timeout_s, token_id, wanted_ms)
    if as_json:
        print_json({"id": token_id, "expires_ms": expires_ms, **as_dry(dry_run)})
    else:
        say(f"token {token_id}: until {time_of(expires_ms)}")
        if dry_run:
            remark(DRY_RUN)
