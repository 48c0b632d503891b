"""`cordwood token create`."""

import os
from typing import Annotated

import typer

from cordwood.cli.terminal.asking import DRY_RUN, DryRun, as_dry
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.token.shown import period_ms, time_of


def create_token(
    renewers: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer",
            metavar="USER",
            help="A user who may renew and end the token, and see it; may be given several times.",
            show_default=False,
        ),
    ] = None,
    owner: Annotated[
        str,
        typer.Option(
            "--owner",
            metavar="USER",
            help="The user as whom the token's holder acts. Default: you. Another one needs the right CreateTokens.",
            show_default=False,
        ),
    ] = "",
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            metavar="DURATION",
            help="How long the token lasts at most, however often it is renewed: 12h. Default: the cluster's longest.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Write the JAAS line with the secret into this file, which only you can read, and show no secret.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Have a delegation token made: a program that has it acts as its owner, without the password, until it is over."""
    from cordwood.administration.access import tokens
    from cordwood.cli.terminal.output import print_json, remark, say
    from cordwood.model.failure import ExitCode, Failure

    wanted_ms = period_ms(max_lifetime, -1)
    if file is not None and os.path.lexists(file):
        raise Failure("USAGE", f"{file} is there already", "name a new file", ExitCode.USAGE)
    bootstrap = bootstrap_of(bootstrap_servers, client_config)
    if dry_run:
        tokens.check_may_ask(bootstrap, timeout_s)
        if as_json:
            print_json(as_dry(dry_run))
        else:
            remark(DRY_RUN)
        return
    held = tokens.create_token(bootstrap, timeout_s, owner, renewers or [], wanted_ms)
    line = (
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{held.token.token_id}" password="{held.password}" tokenauth="true";'
    )
    if file is not None:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
            target.write(f"{line}\n")
    if as_json:
        print_json(tokens.as_json(held, with_secret=file is None) | ({"file": file} if file is not None else {}))
        return
    say(f"token {held.token.token_id} for {held.token.owner}, until {time_of(held.token.expires_ms)}")
    say(f"with renewals until {time_of(held.token.ends_ms)}")
    if file is None:
        say(line)
        remark("Who has this line acts as the owner: --file writes it into a file instead.")
    else:
        say(f"written: {file}")
