"""`cordwood token expire`."""

from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.token.shown import TokenId, period_ms, time_of


def expire_token(
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="How long from now: 10m. Default: at once.", show_default=False),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """End a delegation token of yours, or of which you are a renewer, and with it the sessions that began by it.

    Who has the right Alter of the cluster, as a super user has, ends every token that he may see.
    """
    from cordwood.administration.access import tokens
    from cordwood.cli.terminal.output import print_json, remark, say

    wanted_ms = period_ms(period, -1)
    bootstrap = bootstrap_of(bootstrap_servers, client_config)
    expires_ms = tokens.existing_token(bootstrap, timeout_s, token_id).token.expires_ms
    if not dry_run:
        confirm("ending a token", f"End token {token_id}?", yes=yes, otherwise="The token was not ended.")
        expires_ms = tokens.expire_token(bootstrap, timeout_s, token_id, wanted_ms)
    if as_json:
        print_json({"id": token_id, "expires_ms": expires_ms, **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        say(f"token {token_id}: over at {time_of(expires_ms)}")
